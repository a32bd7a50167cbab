//! Bytes that are kept below limits, for queries that are asked to give back memory and need some for that.
//!
//! The lowest limit on the way of each tenant keeps them. They are charged to the group of that limit, and so to all above, so they are there
//! whatever others do. A query draws by moving them to its group: no limit is charged for them again. They are kept anew before others get what returns.

use std::collections::{BTreeMap, BTreeSet};

use bursar::{Charge, Group, Machine};

use super::{After, Ledger, Level};
use crate::grow_error::DrawError;

/// A limit keeps no more than one part of it in so many. A quarter is judgement.
const PART_KEPT: u64 = 4;

impl<M: Machine> Level<M> {
    fn kept(&self) -> u64 {
        self.credit.as_ref().map_or(0, Charge::bytes)
    }
}

impl<M: Machine> Ledger<M> {
    /// Bytes that a limit is to keep, if it is the lowest on a way.
    pub(super) fn credit_of(&self, max: u64) -> u64 {
        match max {
            u64::MAX => 0,
            max => self.policy.yielding.spill_credit.min(max / PART_KEPT),
        }
    }

    /// The smallest limit on a way from a group up, less what is kept below it on that way, and the group with that limit. `u64::MAX` if there is none.
    pub(super) fn cap_on<'a>(
        &self,
        way: impl IntoIterator<Item = &'a Group<M>>,
    ) -> Option<(u64, &'a Group<M>)> {
        let mut kept = None;
        let caps = way.into_iter().map(|group| {
            let max = group.limits().max;
            if max == u64::MAX {
                return (max, group);
            }
            let kept = *kept.get_or_insert_with(|| self.credit_of(max));
            (max.saturating_sub(kept), group)
        });
        caps.min_by_key(|(cap, _)| *cap)
    }

    /// The way up from the lowest limit on a way, and the bytes that this limit is to keep.
    fn keeper<'a>(&self, way: &'a [u32]) -> Option<(&'a [u32], u64)> {
        let max = |at: &u32| self.levels[at].group.limits().max;
        let from = way.iter().position(|at| max(at) != u64::MAX)?;
        Some((&way[from..], self.credit_of(max(&way[from]))))
    }

    /// All limits that are to keep bytes: the way up from each, and the bytes. Takes time that grows with the tenants, if limits keep any.
    fn keepers(&self) -> impl Iterator<Item = (&[u32], u64)> {
        let mut seen = BTreeSet::new();
        let is_on = self.policy.yielding.spill_credit > 0;
        let tenants = is_on.then(|| self.tenants.values()).into_iter().flatten();
        let keepers = tenants.filter_map(|tenant| self.keeper(&tenant.chain));
        keepers.filter(move |(way, _)| seen.insert(way[0]))
    }

    /// Bytes that are kept on a way from a group up.
    pub(super) fn kept_on(&self, way: &[Group<M>]) -> u64 {
        let levels = way
            .iter()
            .map(|group| self.levels.get(&group.engine().number()));
        levels.flatten().map(Level::kept).sum()
    }

    /// Bytes that are kept at a level and below it.
    pub(super) fn kept_below(&self, at: u32) -> u64 {
        let kept = self.keepers().filter(|(way, _)| way.contains(&at));
        kept.map(|(way, _)| self.levels[&way[0]].kept()).sum()
    }

    /// Bytes that limits at a level and below it lack of those that they keep.
    pub(super) fn credit_missing(&self, at: u32) -> u64 {
        let lacking = self.keepers().filter(|(way, _)| way.contains(&at));
        let missing = lacking.map(|(way, bytes)| bytes.saturating_sub(self.levels[&way[0]].kept()));
        missing.fold(0, u64::saturating_add)
    }

    /// Bytes that can be charged to groups now, so that they keep as many as they are to keep. Nothing that was promised is taken. Gives back what is kept in excess.
    pub(crate) fn credits_missing(&mut self, after: &mut After<M>) -> Vec<(u32, Group<M>, u64)> {
        if self.policy.yielding.spill_credit == 0 {
            return Vec::new();
        }
        let wanted: Vec<(u32, Vec<u32>, u64)> = self
            .keepers()
            .map(|(way, bytes)| (way[0], way.to_vec(), bytes))
            .collect();
        for (at, level) in &mut self.levels {
            let bytes = wanted.iter().find(|(other, ..)| other == at);
            let bytes = bytes.map_or(0, |(.., bytes)| *bytes);
            let excess = level.kept().saturating_sub(bytes);
            if bytes == 0 {
                after.drop_charges.extend(level.credit.take());
            } else if excess > 0
                && let Some(kept) = &mut level.credit
            {
                after.drop_charges.extend(kept.split(excess).ok());
            }
        }
        let mut uncharged = None;
        let mut found = Vec::new();
        let mut taken = BTreeMap::<u32, u64>::new();
        for (at, way, bytes) in wanted {
            let missing = bytes.saturating_sub(self.levels[&at].kept());
            let room = |at: &u32| {
                let room = self.room_at_with(*at, 1, u64::MAX, &mut uncharged, 0);
                room.saturating_sub(taken.get(at).copied().unwrap_or(0))
            };
            let room = way.iter().map(room).min().unwrap_or(0).min(missing);
            if room > 0 {
                for &at in &way {
                    let taken = taken.entry(at).or_default();
                    *taken = room.saturating_add(*taken);
                }
                found.push((at, self.levels[&at].group.clone(), room));
            }
        }
        found
    }

    /// Keeps bytes that were charged to the group of a level.
    pub(crate) fn keep_credit(&mut self, at: u32, more: Charge<M>, after: &mut After<M>) {
        let Some(level) = self.levels.get_mut(&at) else {
            after.drop_charges.push(more);
            return;
        };
        match &mut level.credit {
            // They belong to one group.
            Some(kept) => after.drop_charges.extend(kept.merge(more).err()),
            None => level.credit = Some(more),
        }
    }

    /// Takes bytes for a query that was asked, and promises it as many more.
    pub(crate) fn draw(
        &mut self,
        id: u64,
        bytes: u64,
        now_ns: u64,
    ) -> Result<(u32, Charge<M>), DrawError> {
        let grant = self.grants.get(&id).ok_or(DrawError::NotAsked)?;
        let asked = grant.leaving.as_ref();
        let is_asked = asked.is_some_and(|asked| !asked.is_stop && now_ns < asked.until_ns);
        if !is_asked {
            return Err(DrawError::NotAsked);
        }
        let keeper = self.keeper(&grant.chain);
        let at = keeper.ok_or(DrawError::Exhausted { left: 0 })?.0[0];
        let level = self.levels.get_mut(&at).expect("a tenant keeps its levels");
        let left = level.kept();
        let drawn = level
            .credit
            .as_mut()
            .and_then(|kept| kept.split(bytes).ok());
        let charge = drawn.ok_or(DrawError::Exhausted { left })?;
        self.change_drawn(id, |before| before.saturating_add(bytes));
        Ok((at, charge))
    }

    /// Takes drawn bytes back that the query's group refused, and the promise.
    pub(crate) fn undo_draw(
        &mut self,
        id: u64,
        (at, charge): (u32, Charge<M>),
        after: &mut After<M>,
    ) {
        let bytes = charge.bytes();
        self.keep_credit(at, charge, after);
        self.change_drawn(id, |before| before.saturating_sub(bytes));
    }

    /// Changes what a grant has drawn since it was asked, its bytes, and what is promised with them.
    fn change_drawn(&mut self, id: u64, change: impl Fn(u64) -> u64) {
        if let Some(grant) = self.grants.get_mut(&id).filter(|grant| !grant.is_unlimited) {
            if let Some(leaving) = &mut grant.leaving {
                leaving.drawn = change(leaving.drawn);
            }
            let before = grant.bytes;
            grant.bytes = change(before);
            let (chain, tenant, now) = (grant.chain.clone(), grant.tenant, grant.bytes);
            self.change_promise(&chain, tenant, before, now);
        }
    }
}
