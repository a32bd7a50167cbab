//! Running queries that need more memory than there is: the order in which they get bytes that return, and in which others yield.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bursar::{Group, Machine};

use super::grower::{Call, GrowNeed, Grower, Grown, Leaving};
use super::{After, Ended, Grant, Ledger, REFUSALS_MAX, Uncharged};
use crate::decision::{Decision, DecisionKind};
use crate::engine::{Engine, Stop};
use crate::grow_error::GrowError;
use crate::policy::{Order, ns};
use crate::real::Strain;
use crate::shortage::{self, Claim, Running, Shortage, Step};

/// Decisions that are kept.
const DECISIONS_MAX: usize = 4 * REFUSALS_MAX;
/// Parts of the memory that two tenants' bytes must differ by for one to come before the other. Without it each byte would change the order. 64 is
/// judgement.
const EXCESS_PARTS: u64 = 64;
/// Number that no tenant has: room that is kept for those that run.
pub(super) const NOBODY: u32 = u32::MAX;

/// A limit that has too little, and those that may help.
pub(crate) struct Needy {
    at: u32,
    /// For nobody: a limit was lowered.
    is_over: bool,
    pub(crate) engines: Vec<(u64, Arc<dyn Engine>)>,
}

impl<M: Machine> Ledger<M> {
    /// Notes who can be asked to give back memory of a grant. Returns an engine that is not needed any more.
    pub(crate) fn attach(&mut self, id: u64, engine: Arc<dyn Engine>) -> Option<Arc<dyn Engine>> {
        match self.grants.get_mut(&id) {
            Some(grant) => grant.engine.replace(engine),
            None => Some(engine),
        }
    }

    /// Promises a grant `bytes` more than it has charged, or queues it. Then [`Ledger::poll_grow`] stores who is woken.
    pub(crate) fn grow(
        &mut self,
        id: u64,
        need: GrowNeed,
        now_ns: u64,
        after: &mut After<M>,
    ) -> Result<Grown, GrowError> {
        let grant = self.grants.get(&id).ok_or(GrowError::Ended)?;
        if let Some(stop) = &grant.stop {
            return Err(GrowError::Stopped(stop.clone()));
        }
        if let Some(parent) = grant.parent {
            // Those that it would wait for may wait for it.
            let around = self.grants.get(&parent).ok_or(GrowError::Ended)?;
            let grant = around.group.as_ref().map_or_else(String::new, Group::path);
            let left = self.left_of(parent);
            return match self.promise_more(id, need.bytes, false, &mut None) {
                Ok(()) => Ok(Grown::Now),
                Err(_) => Err(GrowError::Nested { grant, left }),
            };
        }
        if let Some(error) = self.never_fits(id, need.bytes) {
            return Err(error);
        }
        let number = self.number();
        let grower = Grower {
            grant: id,
            bytes: need.bytes,
            since_ns: need.since_ns.unwrap_or(now_ns),
            needs_room: need.needs_room,
            is_kept: need.is_kept,
            waker: None,
            blocked_at: None,
            decided: None,
        };
        self.growers.insert(number, grower);
        self.look(now_ns, after);
        let grower = self.growers.get_mut(&number).expect("just queued");
        if grower.decided.is_some() {
            let grower = self.growers.remove(&number).expect("just seen");
            return grower.decided.expect("just seen").map(|()| Grown::Now);
        }
        self.counts.growth_waits += u64::from(need.since_ns.is_none());
        Ok(Grown::Waits(number))
    }

    /// The error of a query that a limit is too small for.
    fn never_fits(&self, id: u64, bytes: u64) -> Option<GrowError> {
        let grant = self.grants.get(&id)?;
        let needed = grant.charged().saturating_add(bytes);
        let maxima = grant.chain.iter().map(|at| &self.levels[at].group);
        let (max, limited) = self.cap_on(maxima)?;
        (needed > max).then(|| GrowError::NeverFits {
            limited: limited.path(),
            max,
            needed,
        })
    }

    /// The decision about a query that waits for memory, if there is one. Until [`Ledger::end_grow`] its grant is not made smaller for others.
    /// `None` if its number is not known any more, as in a fork.
    pub(crate) fn poll_grow(
        &mut self,
        number: u64,
        waker: Waker,
        now_ns: u64,
        after: &mut After<M>,
    ) -> Option<Option<Result<(), GrowError>>> {
        if self
            .growers
            .get(&number)
            .is_some_and(|grower| grower.decided.is_none())
        {
            self.look(now_ns, after);
        }
        let Some(grower) = self.growers.get_mut(&number) else {
            after.drop_wakers.push(waker);
            return None;
        };
        if grower.decided.is_none() {
            after.drop_wakers.extend(grower.waker.replace(waker));
            return Some(None);
        }
        after.drop_wakers.push(waker);
        Some(grower.decided.clone())
    }

    /// Ends a wait for memory: the query has charged it, or gives up. The grant keeps a promise that was made meanwhile, but no room for a wait that
    /// was dropped before its query saw that there is some.
    pub(crate) fn end_grow(
        &mut self,
        number: u64,
        is_dropped: bool,
        now_ns: u64,
        after: &mut After<M>,
    ) {
        if let Some(grower) = self.growers.remove(&number) {
            after.drop_wakers.extend(grower.waker);
            let has_room = grower.is_kept && grower.decided == Some(Ok(()));
            if is_dropped
                && has_room
                && !self.has_room_promised(grower.grant)
                && let Some(grant) = self.grants.get_mut(&grower.grant)
            {
                grant.kept = 0;
            }
            self.look(now_ns, after);
            self.wake_first_growers(now_ns, after);
        }
    }

    /// Forgets those that wait for memory, in a forked child.
    pub(super) fn forget_growers(&mut self, after: &mut After<M>) {
        let growers = std::mem::take(&mut self.growers).into_values();
        after
            .drop_wakers
            .extend(growers.filter_map(|grower| grower.waker));
    }

    /// Bytes of each tenant above its fair part of the memory, in steps.
    fn excesses(&self) -> BTreeMap<u32, u64> {
        let running = || self.tenants.iter().filter(|(_, tenant)| tenant.grants > 0);
        let weight = |number: &u32| u64::from(self.order_of(*number).weight.max(1));
        let weights: u64 = running().map(|(number, _)| weight(number)).sum();
        let max = self.root.limits().max;
        let excess = |(number, tenant): (&u32, &super::Tenant<M>)| {
            let kept = self.kept_below(*number);
            let bytes = tenant.group.reserved().saturating_sub(kept);
            let excess = match max {
                // Without a limit there are no parts: who has twice as much for its weight comes later.
                u64::MAX => {
                    let order = Order {
                        weight: self.order_of(*number).weight,
                        ..Order::default()
                    };
                    u64::from(order.by_weight(bytes).max(1).ilog2())
                }
                max => {
                    let part =
                        u128::from(max) * u128::from(weight(number)) / u128::from(weights.max(1));
                    let above = bytes.saturating_sub(part as u64);
                    above / (max / EXCESS_PARTS).max(1)
                }
            };
            (*number, excess)
        };
        running().map(excess).collect()
    }

    fn claim(&self, id: u64, excesses: &BTreeMap<u32, u64>) -> Claim {
        let grant = &self.grants[&id];
        (
            !grant.goes_first,
            Reverse(self.order_of(grant.tenant).precedence),
            excesses.get(&grant.tenant).copied().unwrap_or(0),
            Reverse(grant.score),
            id,
        )
    }

    /// Those that wait for memory.
    fn waiting_growers(&self) -> impl Iterator<Item = (&u64, &Grower)> {
        let growers = self.growers.iter();
        growers.filter(|(_, grower)| grower.decided.is_none())
    }

    /// Those that wait for memory, in their order.
    fn growers_in_order(&self) -> Vec<(Claim, u64)> {
        if self.growers.is_empty() {
            return Vec::new();
        }
        let excesses = self.excesses();
        let claims = self
            .waiting_growers()
            .map(|(&number, grower)| (self.claim(grower.grant, &excesses), number));
        let mut claims: Vec<_> = claims.collect();
        claims.sort_unstable();
        claims
    }

    /// Promises memory to those that wait for it and for whom there is some.
    pub(super) fn serve_growers(&mut self, now_ns: u64, after: &mut After<M>) {
        let passed_max_ns = ns(self.policy.yielding.passed_max);
        let room_max_ns = ns(self.policy.yielding.room_max);
        let mut kept = BTreeSet::new();
        let mut uncharged = None;
        for (_, number) in self.growers_in_order() {
            let grower = &self.growers[&number];
            let (id, bytes, needs_room) = (grower.grant, grower.bytes, grower.needs_room);
            let grant = &self.grants[&id];
            let is_removed = grant.group.as_ref().is_none_or(Group::is_removed);
            let in_vain = match is_removed {
                // Its charge says so.
                true => Some(Ok(())),
                false => self.never_fits(id, bytes).map(Err),
            };
            if let Some(decided) = in_vain {
                let grower = self.growers.get_mut(&number).expect("just seen");
                grower.decided = Some(decided);
                after.wake.extend(grower.waker.take());
                continue;
            }
            let chain = self.grants[&id].chain.clone();
            let outcome = match chain.iter().find(|at| kept.contains(*at)) {
                Some(&at) => Err(at),
                None => self.promise_more(id, bytes, needs_room, &mut uncharged),
            };
            if outcome.is_ok() && self.growers[&number].is_kept {
                self.keep_room(id, bytes);
            }
            let grower = self.growers.get_mut(&number).expect("just seen");
            match outcome {
                Ok(()) => {
                    grower.decided = Some(Ok(()));
                    after.wake.extend(grower.waker.take());
                }
                Err(_)
                    if grower.is_kept && now_ns.saturating_sub(grower.since_ns) >= room_max_ns =>
                {
                    grower.decided = Some(Err(GrowError::TimedOut { bytes }));
                    after.wake.extend(grower.waker.take());
                }
                Err(at) => {
                    grower.blocked_at = Some(at);
                    if now_ns.saturating_sub(grower.since_ns) >= passed_max_ns {
                        kept.insert(at);
                    }
                }
            }
        }
    }

    /// Keeps room for requests that a query makes after its wait for that. Waits of one query share it, so the largest counts.
    pub(crate) fn keep_room(&mut self, id: u64, bytes: u64) {
        let shares = self.has_room_promised(id);
        if let Some(grant) = self.grants.get_mut(&id) {
            let kept = grant.charged().saturating_add(bytes);
            grant.kept = match shares {
                true => kept.max(grant.kept),
                false => kept,
            };
        }
    }

    /// Whether a wait for room of a query has ended well, and the query has not seen it yet.
    fn has_room_promised(&self, id: u64) -> bool {
        let mut of_query = self.growers.values().filter(|grower| grower.grant == id);
        of_query.any(|grower| grower.is_kept && grower.decided == Some(Ok(())))
    }

    /// Promises a grant `bytes` more than it has charged, or returns the level that has too little.
    fn promise_more(
        &mut self,
        id: u64,
        bytes: u64,
        needs_room: bool,
        uncharged: &mut Option<Uncharged>,
    ) -> Result<(), u32> {
        let grant = &self.grants[&id];
        if needs_room {
            let is_short = |at: &&u32| {
                let group = &self.levels[*at].group;
                group.limits().max.saturating_sub(group.reserved()) < bytes
            };
            if let Some(&at) = grant.chain.iter().find(is_short) {
                return Err(at);
            }
        }
        let needed = self.needed(id, bytes);
        let missing = needed.saturating_sub(grant.bytes);
        if missing == 0 || grant.is_unlimited {
            return Ok(());
        }
        if let Some(parent) = grant.parent {
            if self.left_of(parent) < missing {
                return Err(grant.chain[0]);
            }
            self.grants.get_mut(&id).expect("just seen").bytes += missing;
            return Ok(());
        }
        let short = grant
            .chain
            .iter()
            .find(|&&at| self.room_at(at, missing, missing, uncharged) < missing);
        if let Some(&at) = short {
            return Err(at);
        }
        let (chain, tenant, before) = (grant.chain.clone(), grant.tenant, grant.bytes);
        self.change_promise(&chain, tenant, before, before + missing);
        self.grants.get_mut(&id).expect("just seen").bytes += missing;
        if let Some(uncharged) = uncharged {
            for &at in chain.iter() {
                let sum = uncharged.entry(at).or_default();
                *sum = sum.saturating_add(missing);
            }
        }
        self.counts.widened += 1;
        Ok(())
    }

    /// Bytes that a grant would have: those that are charged to it or promised to other waits of its query, and `bytes`. Waits for room share it.
    pub(super) fn needed(&self, id: u64, bytes: u64) -> u64 {
        let promised = self.growers.values().filter(|grower| {
            grower.grant == id && grower.decided == Some(Ok(())) && !grower.is_kept
        });
        let promised = promised.map(|grower| grower.bytes);
        let charged = self.grants[&id].charged();
        promised.fold(charged.saturating_add(bytes), u64::saturating_add)
    }

    /// Grants that were promised memory that they have not charged yet.
    pub(super) fn grown_grants(&self) -> BTreeSet<u64> {
        let grown = self.growers.values();
        let grown = grown.filter(|grower| grower.decided == Some(Ok(())));
        grown.map(|grower| grower.grant).collect()
    }

    /// Levels that queries that run wait for, with what waits there, and the root if the process really takes too much.
    pub(super) fn awaited(&self, now_ns: u64) -> impl Iterator<Item = (u32, Option<&Grower>)> {
        let growers = self.waiting_growers();
        let awaited = growers.filter_map(|(_, grower)| Some((grower.blocked_at?, Some(grower))));
        // Then there is no room, whatever is reserved, as long as a query runs or has just left bytes.
        let may_change = || {
            let runs = |grant: &Grant<M>| grant.parent.is_none() && self.runs(grant, now_ns);
            let returns = |ended: &Ended<M>| ended.until_ns > now_ns && ended.group.reserved() > 0;
            self.grants.values().any(runs) || self.ended_outside().any(returns)
        };
        let is_full = self.strain().is_full && may_change();
        let full = is_full.then(|| (self.root.engine().number(), None));
        awaited.chain(full)
    }

    /// Those of them that nobody is admitted through: bytes will return there soon.
    pub(super) fn kept_for_growers(&self, now_ns: u64) -> BTreeMap<u32, u32> {
        let keeps = |&(at, grower): &(u32, Option<&Grower>)| {
            grower.is_none_or(|grower| {
                self.keeps(at, Some(grower.grant), false, now_ns)
                    && self
                        .policy
                        .keeps_room(now_ns.saturating_sub(grower.since_ns))
            })
        };
        let kept = self.awaited(now_ns).filter(keeps);
        kept.map(|(at, _)| (at, NOBODY)).collect()
    }

    /// Whether a query that runs waits for a level.
    pub(super) fn is_awaited_by_growers(&self, chain: &[u32]) -> bool {
        let mut waiting = self.waiting_growers();
        waiting.any(|(_, grower)| grower.blocked_at.is_some_and(|at| chain.contains(&at)))
    }

    /// Levels that have too little: those above a limit that was lowered, and the root if the process really takes too much, with nobody, and those that somebody waits for, with the first.
    fn needs(&self, now_ns: u64) -> Vec<(u32, Option<(Claim, u64)>)> {
        let is_over = self.strain().over > 0 && now_ns >= self.real_rests_until_ns;
        let root = is_over.then(|| self.root.engine().number());
        let over = self.levels.iter().filter(|(at, level)| {
            let max = level.group.limits().max;
            max != u64::MAX && level.group.reserved() > max || Some(**at) == root
        });
        let mut needs: Vec<_> = over.map(|(&at, _)| (at, None)).collect();
        let mut awaited = BTreeSet::new();
        for (claim, number) in self.growers_in_order() {
            if let Some(at) = self.growers[&number].blocked_at
                && awaited.insert(at)
            {
                needs.push((at, Some((claim, number))));
            }
        }
        needs
    }

    /// Wakes the first that waits for each level, so that it looks whom else to ask.
    pub(crate) fn wake_first_growers(&mut self, now_ns: u64, after: &mut After<M>) {
        if self.growers.is_empty() {
            return;
        }
        for (_, need) in self.needs(now_ns) {
            let first = need.and_then(|(_, number)| self.growers.get_mut(&number));
            after
                .wake
                .extend(first.and_then(|grower| grower.waker.take()));
        }
    }

    /// Whether memory on a grant's way is kept for a query that runs, comes before it in the order, and has waited for long.
    pub(super) fn is_kept_from(&self, id: u64, now_ns: u64) -> bool {
        let passed_max_ns = ns(self.policy.yielding.passed_max);
        let chain = &self.grants[&id].chain;
        let old = self.waiting_growers().filter(|(_, grower)| {
            let is_on_way = grower.blocked_at.is_some_and(|at| chain.contains(&at));
            is_on_way && now_ns.saturating_sub(grower.since_ns) >= passed_max_ns
        });
        let old: Vec<u64> = old.map(|(_, grower)| grower.grant).collect();
        if old.is_empty() {
            return false;
        }
        let excesses = self.excesses();
        let own = self.claim(id, &excesses);
        old.into_iter()
            .any(|other| self.claim(other, &excesses) < own)
    }

    /// Limits that have too little, and the engines whose word counts. Forgets those whose time is over.
    pub(crate) fn needy(&mut self, now_ns: u64) -> Vec<Needy> {
        self.end_late(now_ns);
        let needs = self.needs(now_ns);
        self.over_since_ns.retain(|at, _| {
            needs
                .iter()
                .any(|(other, need)| other == at && need.is_none())
        });
        let waiting = self.waiting_grants();
        let yielding = &self.policy.yielding;
        let soonest_ns = u128::from(ns(yielding.ask_after.min(yielding.stop_after)));
        let mut needy = Vec::new();
        for (at, need) in needs {
            let Some(shortage) = self.shortage(at, need, now_ns) else {
                continue;
            };
            let below = || {
                let grants = self.grants.iter();
                grants.filter(|(_, grant)| grant.parent.is_none() && grant.chain.contains(&at))
            };
            // Then no step is due, whatever engines say.
            let may_end =
                |(id, _): (&u64, &Grant<M>)| *id != shortage.grant && !waiting.contains(id);
            if u128::from(shortage.age_ns) < soonest_ns && below().any(may_end) {
                continue;
            }
            let engines = below().filter_map(|(&id, grant)| {
                // Not its own: it may be polled with a lock that its engine takes.
                let engine = grant.engine.as_ref().filter(|_| id != shortage.grant)?;
                let may_ask = grant.leaving.is_none() && grant.stop.is_none();
                let has_grown = grant.vain_at.is_none_or(|vain| grant.charged() > vain);
                (may_ask && has_grown).then(|| (id, engine.clone()))
            });
            needy.push(Needy {
                at,
                is_over: need.is_none(),
                engines: engines.collect(),
            });
        }
        needy
    }

    /// Grants of queries that wait for memory, and of those that were told to stop and did not: nobody knows whether they end.
    fn waiting_grants(&self) -> BTreeSet<u64> {
        let waiting = self.waiting_growers();
        let waiting = waiting.map(|(_, grower)| grower.grant);
        let grants = self.grants.iter();
        let lost = grants.filter(|(_, grant)| grant.stop.is_some() && grant.leaving.is_none());
        waiting.chain(lost.map(|(&id, _)| id)).collect()
    }

    /// Decides about one limit, by what engines say that they can give back.
    pub(crate) fn decide(
        &mut self,
        needy: &Needy,
        reclaimable: &BTreeMap<u64, u64>,
        now_ns: u64,
        after: &mut After<M>,
    ) -> Vec<(Arc<dyn Engine>, u64, Call)> {
        let at = needy.at;
        let is_same =
            |(other, need): &(u32, Option<_>)| *other == at && need.is_none() == needy.is_over;
        let Some((_, need)) = self.needs(now_ns).into_iter().find(is_same) else {
            return Vec::new();
        };
        let Some(shortage) = self.shortage(at, need, now_ns) else {
            return Vec::new();
        };
        let excesses = self.excesses();
        let below = self
            .grants
            .iter()
            .filter(|(_, grant)| grant.parent.is_none() && grant.chain.contains(&at));
        let waiting = self.waiting_grants();
        let running = below.map(|(&id, grant)| {
            let waits = waiting.contains(&id);
            // It may have answered meanwhile that it cannot.
            let may_ask = grant.vain_at.is_none_or(|vain| grant.charged() > vain);
            let reclaimable = reclaimable.get(&id).filter(|_| may_ask);
            Running {
                grant: id,
                claim: self.claim(id, &excesses),
                holds: holds(grant, needy.is_over),
                reclaimable: reclaimable.copied().unwrap_or(0),
                can_stop: (grant.engine.is_some() || waits) && grant.stop.is_none(),
                is_protected: self.is_protected(&grant.chain, at),
                waits,
                is_leaving: grant.leaving.is_some(),
            }
        });
        let running: Vec<Running> = running.collect();
        let steps = shortage::steps(&running, &shortage, &self.policy.yielding);
        let calls = steps.into_iter().filter_map(|step| {
            self.follow_step(
                at,
                need.map(|(_, number)| number),
                &shortage,
                step,
                now_ns,
                after,
            )
        });
        calls.collect()
    }

    /// Whether a level below `at` is within its `min`.
    fn is_protected(&self, chain: &[u32], at: u32) -> bool {
        let below = chain.iter().take_while(|other| **other != at);
        below.map(|other| &self.levels[other].group).any(|group| {
            let min = group.limits().min;
            let used = || {
                group
                    .reserved()
                    .saturating_sub(self.kept_below(group.engine().number()))
            };
            min > 0 && used() <= min
        })
    }

    /// Bytes that a level lacks for its first query, without those that are on their way back.
    fn shortage(&mut self, at: u32, need: Option<(Claim, u64)>, now_ns: u64) -> Option<Shortage> {
        let level = &self.levels[&at].group;
        let (max, reserved) = (level.limits().max, level.reserved());
        let to_keep = self.credit_missing(at);
        let leaving = self
            .grants
            .values()
            .filter(|grant| grant.chain.contains(&at) && grant.parent.is_none());
        let expected = leaving.filter_map(|grant| {
            let leaving = grant.leaving.as_ref()?;
            Some(match leaving.is_stop {
                // It may have grown or shrunk since.
                true => holds(grant, need.is_none()),
                false => leaving.bytes.min(grant.charged()),
            })
        });
        let ended = self.ended_outside();
        let ended = ended.filter(|ended| ended.chain.contains(&at) && ended.until_ns > now_ns);
        let ended = ended.map(|ended| ended.group.reserved());
        let expected: u64 = expected.chain(ended).fold(0, u64::saturating_add);
        let is_stopping = self.grants.values().any(|grant| {
            let is_stop = grant
                .leaving
                .as_ref()
                .is_some_and(|leaving| leaving.is_stop);
            is_stop && grant.chain.contains(&at)
        });
        let mut may_stop = true;
        let (grant, claim, lacks, since_ns) = match need {
            Some((claim, number)) => {
                let grower = &self.growers[&number];
                let grant = &self.grants[&grower.grant];
                let more = self
                    .needed(grower.grant, grower.bytes)
                    .saturating_sub(grant.bytes);
                let mut uncharged = None;
                let room = self.room_at(at, 0, u64::MAX, &mut uncharged);
                // Where more is charged or promised than the limit, that must return first.
                let uncharged = uncharged.and_then(|uncharged| uncharged.get(&at).copied());
                let charged = reserved.saturating_add(uncharged.unwrap_or(0));
                let over = charged.max(self.levels[&at].promised());
                let over = over.saturating_sub(max.saturating_sub(to_keep));
                let promise =
                    more.saturating_sub(room)
                        .saturating_add(if more > 0 { over } else { 0 });
                let charge = match grower.needs_room {
                    true => grower.bytes.saturating_add(reserved).saturating_sub(max),
                    false => 0,
                };
                (grower.grant, claim, promise.max(charge), grower.since_ns)
            }
            None => {
                let since_ns = *self.over_since_ns.entry(at).or_insert(now_ns);
                let first = (false, Reverse(i32::MAX), 0, Reverse(i32::MAX), 0);
                let over = reserved.saturating_sub(max);
                let really = match at == self.root.engine().number() {
                    true => self.strain(),
                    false => Strain::default(),
                };
                may_stop = over > 0 || really.may_stop;
                (0, first, over.max(really.over), since_ns)
            }
        };
        let missing = lacks.saturating_sub(expected);
        (missing > 0).then_some(Shortage {
            grant,
            claim,
            missing,
            age_ns: now_ns.saturating_sub(since_ns),
            is_stopping,
            may_stop,
        })
    }

    fn follow_step(
        &mut self,
        at: u32,
        grower: Option<u64>,
        shortage: &Shortage,
        step: Step,
        now_ns: u64,
        after: &mut After<M>,
    ) -> Option<(Arc<dyn Engine>, u64, Call)> {
        let limited = self.levels[&at].group.path();
        let path = |ledger: &Self, id: u64| {
            let group = ledger
                .grants
                .get(&id)
                .and_then(|grant| grant.group.as_ref());
            group.map_or_else(String::new, Group::path)
        };
        let needed_by = path(self, shortage.grant);
        let (id, kind, expected) = match step {
            Step::Ask { grant, bytes } => (grant, DecisionKind::Ask, bytes),
            Step::Stop { grant } => {
                let holds = holds(&self.grants[&grant], grower.is_none());
                (grant, DecisionKind::Stop, holds)
            }
            Step::Refuse => (shortage.grant, DecisionKind::Refuse, 0),
        };
        if kind == DecisionKind::Refuse && grower.is_none() {
            return None;
        }
        self.decided_so_far += 1;
        let decision = self.decided_so_far;
        let charged = self.grants.get(&id).map_or(0, Grant::charged);
        self.note_decision(
            Decision {
                number: decision,
                kind,
                query: path(self, id),
                needed_by: needed_by.clone(),
                limited: limited.clone(),
                missing: shortage.missing,
                charged,
                expected,
                said: None,
                seen: None,
                age: Duration::ZERO,
            },
            now_ns,
            after,
        );
        let yielding = &self.policy.yielding;
        let until_ns = now_ns.saturating_add(ns(match kind {
            DecisionKind::Ask => yielding.ask_max,
            _ => yielding.stop_max,
        }));
        let leaving = Leaving {
            decision,
            bytes: expected,
            charged,
            drawn: 0,
            until_ns,
            is_stop: kind == DecisionKind::Stop,
        };
        match kind {
            DecisionKind::Ask => {
                self.rest_real(grower, at, now_ns);
                self.counts.asked += 1;
                let grant = self.grants.get_mut(&id)?;
                grant.leaving = Some(leaving);
                let engine = grant.engine.clone()?;
                Some((
                    engine,
                    id,
                    Call::Ask {
                        bytes: expected,
                        decision,
                    },
                ))
            }
            DecisionKind::Stop => {
                self.rest_real(grower, at, now_ns);
                self.counts.stopped += 1;
                let stop = Arc::new(Stop {
                    decision,
                    query: path(self, id),
                    charged,
                    needed_by,
                    missing: shortage.missing,
                    limited,
                });
                let grant = self.grants.get_mut(&id)?;
                grant.leaving = Some(leaving);
                grant.stop = Some(stop.clone());
                let engine = grant.engine.clone();
                let waiting = self
                    .growers
                    .values_mut()
                    .filter(|grower| grower.grant == id && grower.decided.is_none());
                for grower in waiting {
                    grower.decided = Some(Err(GrowError::Stopped(stop.clone())));
                    after.wake.extend(grower.waker.take());
                }
                Some((engine?, id, Call::Stop(stop)))
            }
            DecisionKind::Refuse => {
                self.counts.growth_refused += 1;
                let grower = self.growers.get_mut(&grower?)?;
                grower.decided = Some(Err(GrowError::NobodyYields {
                    limited,
                    missing: shortage.missing,
                    decision,
                }));
                after.wake.extend(grower.waker.take());
                None
            }
        }
    }

    /// After a decision for nobody at the root: it may have been for real bytes.
    fn rest_real(&mut self, grower: Option<u64>, at: u32, now_ns: u64) {
        if grower.is_none() && at == self.root.engine().number() {
            let rest_ns = ns(self.policy.yielding.stop_max);
            self.real_rests_until_ns = now_ns.saturating_add(rest_ns);
        }
    }

    fn note_decision(&mut self, decision: Decision, now_ns: u64, after: &mut After<M>) {
        after.decided.push(decision.clone());
        if self.decisions.len() == DECISIONS_MAX {
            self.decisions.pop_front();
        }
        self.decisions.push_back((now_ns, decision));
    }

    /// Notes the answer of an engine. Its query has no more promise for bytes that it gave back, nor for those that it drew. That must hold
    /// before the lock is released: the query may grow again at once. A query that says it gave back bytes also loses what it had not charged
    /// yet, but for what was promised to its waits. Another one keeps that. Returns its group, whose limit must follow.
    pub(crate) fn answer(&mut self, id: u64, decision: u64, said: u64) -> Option<Group<M>> {
        let grant = self.grants.get(&id)?;
        let leaving = grant.leaving.as_ref()?;
        let is_expected = leaving.decision == decision;
        let had = leaving.charged.saturating_add(leaving.drawn);
        let returned = had.saturating_sub(grant.charged());
        let mut left = grant.bytes.saturating_sub(returned);
        if said > 0 && grant.charged() < leaving.charged {
            left = left.min(self.needed(id, 0).max(grant.kept));
        }
        let left = left.max(self.used_of(id, grant));
        self.end_leaving(id, decision, Some(said));
        let grant = self.grants.get_mut(&id)?;
        if !is_expected || grant.is_unlimited || grant.parent.is_some() {
            return None;
        }
        let (before, bytes) = (grant.bytes, grant.bytes.min(left));
        grant.bytes = bytes;
        grant.least = grant.least.min(bytes);
        self.counts.shrunk += u64::from(bytes < before);
        let (chain, tenant, group) = (grant.chain.clone(), grant.tenant, grant.group.clone());
        self.change_promise(&chain, tenant, before, bytes);
        group
    }

    /// Whether a query that was asked has time left to answer.
    pub(crate) fn is_expected(&self, id: u64, decision: u64, now_ns: u64) -> bool {
        let leaving = self
            .grants
            .get(&id)
            .and_then(|grant| grant.leaving.as_ref());
        leaving.is_some_and(|leaving| leaving.decision == decision && now_ns < leaving.until_ns)
    }

    /// Ends what was expected of a query. A query that gave back nothing is not asked again before it has grown.
    fn end_leaving(&mut self, id: u64, decision: u64, said: Option<u64>) {
        let Some(grant) = self.grants.get_mut(&id) else {
            return;
        };
        let Some(leaving) = grant
            .leaving
            .take_if(|leaving| leaving.decision == decision)
        else {
            return;
        };
        let charged = grant.charged();
        let seen = leaving.charged.saturating_sub(charged);
        grant.vain_at = (seen == 0 && !leaving.is_stop).then_some(charged);
        self.counts.asked_in_vain += u64::from(seen == 0 && !leaving.is_stop);
        self.note_outcome(decision, said, seen);
    }

    fn note_outcome(&mut self, decision: u64, said: Option<u64>, seen: u64) {
        let mut records = self.decisions.iter_mut().map(|(_, record)| record);
        if let Some(record) = records.find(|record| record.number == decision) {
            (record.said, record.seen) = (said, Some(seen));
        }
    }

    /// Forgets what is expected of those whose time is over.
    fn end_late(&mut self, now_ns: u64) {
        let late = self.grants.iter().filter_map(|(&id, grant)| {
            let leaving = grant.leaving.as_ref()?;
            (leaving.until_ns <= now_ns).then_some((id, leaving.decision))
        });
        for (id, decision) in late.collect::<Vec<_>>() {
            self.counts.unanswered += 1;
            self.end_leaving(id, decision, None);
        }
    }

    /// Forgets all about a grant that ends, and who could be asked.
    pub(super) fn end_growth(&mut self, id: u64, grant: &mut Grant<M>, after: &mut After<M>) {
        after.drop_engines.extend(grant.engine.take());
        if let Some(leaving) = grant.leaving.take() {
            let seen = leaving.charged.saturating_sub(grant.charged());
            self.note_outcome(leaving.decision, None, seen);
        }
        let waiting = self
            .growers
            .values_mut()
            .filter(|grower| grower.grant == id && grower.decided.is_none());
        for grower in waiting {
            grower.decided = Some(Err(GrowError::Ended));
            after.wake.extend(grower.waker.take());
        }
    }

    /// Checks that a query that waits has a grant, and that one that was stopped waits for nothing.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn check_growers(&self) {
        for (number, grower) in self.waiting_growers() {
            let grant = self.grants.get(&grower.grant);
            let may_wait = grant.is_some_and(|grant| grant.stop.is_none());
            assert!(may_wait, "the wait {number} is in vain");
        }
    }

    /// The last decisions, oldest first.
    pub(crate) fn decisions(&self, now_ns: u64) -> Vec<Decision> {
        let of = |(at_ns, decision): &(u64, Decision)| Decision {
            age: Duration::from_nanos(now_ns.saturating_sub(*at_ns)),
            ..decision.clone()
        };
        self.decisions.iter().map(of).collect()
    }
}

/// Bytes that return to a limit if a grant ends. A limit that was lowered counts charged ones only.
fn holds<M: Machine>(grant: &Grant<M>, charged_only: bool) -> u64 {
    match charged_only {
        true => grant.charged(),
        false => grant.charged().max(grant.bytes),
    }
}
