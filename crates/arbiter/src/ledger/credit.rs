//! Bytes that are kept below each limit, for queries that are asked to give back memory and need some for that.
//!
//! They are charged to the group of the limit, so they are there whatever others do. A query draws from the lowest limit on its way that has
//! enough: the bytes move to its group. No limit is charged for them again. They are kept anew before others get what returns.

use bursar::{Charge, Group, Machine};

use super::{After, Ledger};
use crate::grow_error::DrawError;

/// Bytes of a limit that a query draws.
pub(crate) struct Drawn<M: Machine> {
    pub(crate) charge: Charge<M>,
    /// The level that kept them.
    at: u32,
}

impl<M: Machine> Ledger<M> {
    /// The most bytes that grants can have below the limit of a group; `u64::MAX` if it has none.
    pub(super) fn max_of(&self, group: &Group<M>) -> u64 {
        match group.limits().max {
            u64::MAX => u64::MAX,
            max => max.saturating_sub(self.policy.yielding.spill_credit),
        }
    }

    /// Bytes that a level lacks of those that it is to keep.
    pub(super) fn credit_missing(&self, at: u32) -> u64 {
        let level = &self.levels[&at];
        let kept = level.credit.as_ref().map_or(0, Charge::bytes);
        match level.group.limits().max {
            u64::MAX => 0,
            _ => self.policy.yielding.spill_credit.saturating_sub(kept),
        }
    }

    /// All limits that lack some of the bytes that they are to keep.
    pub(crate) fn credits_missing(&self) -> Vec<(u32, Group<M>, u64)> {
        if self.policy.yielding.spill_credit == 0 {
            return Vec::new();
        }
        let levels = self.levels.iter().map(|(&at, level)| {
            let missing = self.credit_missing(at);
            (missing > 0).then(|| (at, level.group.clone(), missing))
        });
        levels.flatten().collect()
    }

    /// Keeps bytes that were charged to the group of a level.
    pub(crate) fn keep_credit(&mut self, at: u32, more: Charge<M>, after: &mut After<M>) {
        let Some(level) = self.levels.get_mut(&at) else {
            after.drop_charges.push(more);
            return;
        };
        match &mut level.credit {
            Some(kept) => {
                // Another level may have the number by now.
                after.drop_charges.extend(kept.merge(more).err());
            }
            None => level.credit = Some(more),
        }
    }

    /// Takes bytes for a query that was asked, and promises it as many more.
    pub(crate) fn draw(&mut self, id: u64, bytes: u64, now_ns: u64) -> Result<Drawn<M>, DrawError> {
        let grant = self.grants.get(&id).ok_or(DrawError::NotAsked)?;
        let asked = grant.leaving.as_ref();
        let is_asked = asked.is_some_and(|asked| !asked.is_stop && now_ns < asked.until_ns);
        if !is_asked {
            return Err(DrawError::NotAsked);
        }
        let (chain, tenant, before) = (grant.chain.clone(), grant.tenant, grant.bytes);
        let mut left = 0;
        for &at in chain.iter() {
            let level = self.levels.get_mut(&at).expect("a tenant keeps its levels");
            let Some(kept) = &mut level.credit else {
                continue;
            };
            left = left.max(kept.bytes());
            let Ok(charge) = kept.split(bytes) else {
                continue;
            };
            if !self.grants[&id].is_unlimited {
                let more = before.saturating_add(bytes);
                self.grants.get_mut(&id).expect("just seen").bytes = more;
                self.change_promise(&chain, tenant, before, more);
            }
            return Ok(Drawn { charge, at });
        }
        Err(DrawError::Exhausted { left })
    }

    /// Takes drawn bytes back that a limit below the one that kept them refused. The promise goes when the query answers, or with its grant.
    pub(crate) fn undo_draw(&mut self, drawn: Drawn<M>, after: &mut After<M>) {
        self.keep_credit(drawn.at, drawn.charge, after);
    }
}
