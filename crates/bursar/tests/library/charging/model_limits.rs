//! Random operations on limits, reclaim and reserves against the model (`bursar_check::model`).
//!
//! All charges are of a batch or more, so no CPU holds stock and the reserved bytes are the charged ones. So requests
//! to reclaimers, debts and counts are exact. `model.rs` has small charges.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::{LEAST_STOCK, Pages, Random, Short, seed};
use bursar::{
    By, Charge, ChargeError, EmergencyReserve, Events, Group, HighPolicy, Limits, Memory, Reason,
    Registration, Taken,
};
use bursar_check::model::{Asked, Counts, Reclaimer, Tree};

const BATCH: u64 = 256 << 10;

struct Ahead {
    group: usize,
    reserve: EmergencyReserve,
    taken: Vec<Taken>,
    bytes: u64,
}

struct Model {
    memory: Memory,
    groups: BTreeMap<usize, Group>,
    tree: Tree,
    held: Vec<(usize, Charge)>,
    /// By number: group, registration, what it can give back.
    reclaimers: BTreeMap<u64, (usize, Registration, Pages)>,
    reserves: Vec<Ahead>,
    asked: Arc<Mutex<Vec<Asked>>>,
    next: usize,
    random: Random,
}

impl Model {
    fn new(seed: u64) -> Self {
        // Charges are larger than any stock, so each number is what is charged.
        let builder = Memory::builder().high_policy(HighPolicy::Owe);
        let memory = builder
            .stock_max(LEAST_STOCK)
            .build()
            .expect("the host starts");
        let mut tree = Tree::default();
        tree.add(0, None, "", Limits::none());
        Self {
            groups: BTreeMap::from([(0, memory.root())]),
            memory,
            tree,
            held: Vec::new(),
            reclaimers: BTreeMap::new(),
            reserves: Vec::new(),
            asked: Arc::default(),
            next: 1,
            random: Random(seed),
        }
    }

    fn any_group(&mut self) -> usize {
        let at = self.random.below(self.groups.len());
        *self.groups.keys().nth(at).unwrap()
    }

    fn bytes(&mut self) -> u64 {
        BATCH + self.random.below(2 << 20) as u64
    }

    fn limit(&mut self, none: u64) -> u64 {
        match self.random.below(8) {
            0..3 => none,
            3 => self.random.below(2) as u64,
            _ => self.random.below(24 << 20) as u64,
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..5 => self.create(),
            5..8 => self.remove(),
            8..20 => self.set_limit(),
            20..45 => self.charge(),
            45..60 => self.fill(),
            60..72 => self.drop_charge(),
            72..77 => self.add_reclaimer(),
            77..79 => self.drop_reclaimer(),
            79..83 => self.reclaim(),
            83..87 => self.reserve(),
            87..91 => self.take(),
            91..93 => self.drop_reserve(),
            93..96 => self.take_debt(),
            _ => self.survey(),
        }
        self.check();
    }

    fn create(&mut self) {
        let parent = self.any_group();
        let limits = Limits::max(self.limit(u64::MAX))
            .high(self.limit(u64::MAX))
            .low(self.limit(0))
            .min(self.limit(0));
        if self.groups.len() > 12 {
            return;
        }
        // Not in the order of their numbers.
        let name = format!("{}-{}", self.random.below(10), self.next);
        let group = self.groups[&parent].make_with(&name, limits);
        self.tree.add(self.next, Some(parent), &name, limits);
        self.groups.insert(self.next, group);
        self.next += 1;
    }

    /// One that nothing is charged to and nothing is registered with.
    fn remove(&mut self) {
        let at = self.any_group();
        let node = &self.tree.nodes[&at];
        let is_used = self.tree.usage(at) > 0 || !node.reclaimers.is_empty();
        if at == 0 || is_used || !self.tree.children(at).is_empty() {
            return;
        }
        self.groups.remove(&at).unwrap().remove().unwrap();
        self.tree.nodes.remove(&at);
    }

    fn set_limit(&mut self) {
        let at = self.any_group();
        let kind = self.random.below(4);
        let limit = self.limit(if kind < 2 { u64::MAX } else { 0 });
        let limits = &mut self.tree.node(at).limits;
        let group = &self.groups[&at];
        match kind {
            0 => {
                let is_lower = limit < std::mem::replace(&mut limits.max, limit);
                group.set_max(limit);
                if is_lower {
                    self.tree.reclaim_down_to(at, limit, Reason::Max);
                }
            }
            1 => {
                limits.high = limit;
                group.set_high(limit);
                self.tree.reclaim_down_to(at, limit, Reason::High);
            }
            2 => {
                limits.low = limit;
                group.set_low(limit);
            }
            _ => {
                limits.min = limit;
                group.set_min(limit);
            }
        }
    }

    /// Checks a fallible charge against the model.
    fn try_charge(&mut self, at: usize, bytes: u64) -> Option<Charge> {
        let charged = self.groups[&at].try_charge(bytes);
        let room = self.tree.make_room(at, bytes);
        match (charged, room) {
            (Ok(charge), Ok(())) => Some(charge),
            (Err(ChargeError::LimitReached(reached)), Err(limiting)) => {
                self.tree.count(limiting, |counts| counts.refused += 1);
                assert_eq!(reached.charged, self.tree.path(at));
                assert_eq!(reached.limited, self.tree.path(limiting));
                assert_eq!(reached.usage, self.tree.usage(limiting));
                assert_eq!(reached.max, self.tree.nodes[&limiting].limits.max);
                None
            }
            (charged, room) => panic!("{bytes} to {at}: {charged:?}, expected {room:?}"),
        }
    }

    fn book(&mut self, at: usize, bytes: u64, asks: bool) {
        self.tree.give_bytes(at, bytes as i64);
        self.tree.charged(at, bytes, asks);
    }

    fn charge(&mut self) {
        let (at, bytes) = (self.any_group(), self.bytes());
        let mut asks = true;
        let charge = match self.random.below(6) {
            0 => {
                let charge = self.groups[&at].charge(bytes);
                if self.tree.make_room(at, bytes).is_err() {
                    for above in self.tree.way(at) {
                        let max = self.tree.nodes[&above].limits.max;
                        if self.tree.usage(above) + bytes > max {
                            self.tree.count(above, |counts| counts.overshot += 1);
                        }
                    }
                }
                Some(charge)
            }
            1 => {
                asks = false;
                let charged = self.groups[&at].engine().try_charge_nowait(bytes);
                let fits = self.tree.limiting(at, None, bytes).is_none();
                assert_eq!(charged.is_ok(), fits, "{charged:?}");
                charged.ok()
            }
            _ => self.try_charge(at, bytes),
        };
        if let Some(charge) = charge {
            self.book(at, bytes, asks);
            self.held.push((at, charge));
        }
    }

    fn drop_charge(&mut self) {
        if !self.held.is_empty() {
            let (at, charge) = self.held.swap_remove(self.random.below(self.held.len()));
            self.tree.give_bytes(at, -(charge.bytes() as i64));
        }
    }

    fn any_reclaimer(&mut self) -> Option<u64> {
        let at = self.random.below(self.reclaimers.len().max(1));
        self.reclaimers.keys().nth(at).copied()
    }

    /// Something that a reclaimer can give back.
    fn fill(&mut self) {
        let Some(number) = self.any_reclaimer() else {
            return;
        };
        let (at, bytes) = (self.reclaimers[&number].0, self.bytes());
        let Some(charge) = self.try_charge(at, bytes) else {
            return;
        };
        // The reclaimer has it only when the charge is done.
        self.book(at, bytes, true);
        self.reclaimers[&number].2.push(charge);
        self.tree.give_bytes(at, -(bytes as i64));
        let mut reclaimers = self.tree.node(at).reclaimers.iter_mut();
        let found = reclaimers.find(|one| one.number == number);
        found.unwrap().pages.push(bytes);
    }

    fn add_reclaimer(&mut self) {
        if self.reclaimers.len() > 8 {
            return;
        }
        let at = self.any_group();
        let (number, order) = (self.next as u64, self.random.below(3) as i32 - 1);
        self.next += 1;
        let (pages, asked) = (Pages::default(), self.asked.clone());
        let evicted = pages.clone();
        let registration = self.groups[&at].add_reclaimer(order, move |request| {
            let line = (
                number,
                request.target,
                request.reason,
                request.scope.clone(),
            );
            asked.lock().unwrap().push(line);
            evicted.evict(request.target)
        });
        self.reclaimers.insert(number, (at, registration, pages));
        let list = &mut self.tree.node(at).reclaimers;
        let pages = Vec::new();
        list.push(Reclaimer {
            number,
            order,
            pages,
        });
        // Stable: behind those of the same order.
        list.sort_by_key(|one| one.order);
    }

    fn drop_reclaimer(&mut self) {
        let Some(number) = self.any_reclaimer() else {
            return;
        };
        let (at, registration, pages) = self.reclaimers.remove(&number).unwrap();
        drop(registration);
        pages.evict(u64::MAX);
        let list = &mut self.tree.node(at).reclaimers;
        list.retain(|one| one.number != number);
    }

    fn reclaim(&mut self) {
        let at = self.any_group();
        let bytes = self.random.below(4 << 20) as u64;
        let freed = self.groups[&at].reclaim(bytes);
        assert_eq!(freed, self.tree.reclaim(at, bytes));
    }

    fn reserve(&mut self) {
        let (group, bytes) = (self.any_group(), self.bytes());
        let reserved = self.groups[&group].emergency_reserve(bytes);
        let room = self.tree.make_room(group, bytes);
        assert_eq!(reserved.is_ok(), room.is_ok());
        if let Err(limiting) = room {
            self.tree.count(limiting, |counts| counts.refused += 1);
        }
        let Ok(reserve) = reserved else { return };
        self.book(group, bytes, true);
        let taken = Vec::new();
        self.reserves.push(Ahead {
            group,
            reserve,
            taken,
            bytes,
        });
    }

    fn take(&mut self) {
        if self.reserves.is_empty() {
            return;
        }
        let at = self.random.below(self.reserves.len());
        let (bytes, back) = (self.random.below(1 << 20) as u64, self.random.below(4));
        let ahead = &mut self.reserves[at];
        let sum = |taken: &[Taken]| taken.iter().map(Taken::bytes).sum::<u64>();
        if back < ahead.taken.len() {
            drop(ahead.taken.swap_remove(back));
        }
        let left = ahead.bytes - sum(&ahead.taken);
        assert_eq!(ahead.reserve.available(), left);
        match ahead.reserve.take(bytes) {
            Ok(taken) => {
                assert!(taken.bytes() == bytes && bytes <= left);
                ahead.taken.push(taken);
            }
            Err(short) => assert!(short.requested > left && short.available == left),
        }
    }

    /// The bytes that were taken keep all of the reserve.
    fn drop_reserve(&mut self) {
        if self.reserves.is_empty() {
            return;
        }
        let ahead = self
            .reserves
            .swap_remove(self.random.below(self.reserves.len()));
        drop(ahead.reserve);
        if !ahead.taken.is_empty() {
            self.check();
        }
        drop(ahead.taken);
        self.tree.give_bytes(ahead.group, -(ahead.bytes as i64));
    }

    fn take_debt(&mut self) {
        let at = self.any_group();
        let owed = std::mem::take(&mut self.tree.node(at).debt);
        assert_eq!(self.groups[&at].take_debt().bytes, owed);
    }

    fn survey(&mut self) {
        let scope = self.any_group();
        let below = self.tree.below(scope);
        let victim = self.groups[&scope].choose_victim().unwrap();
        let mut best: Option<(bool, u64, u64, usize)> = None;
        for &at in below
            .iter()
            .filter(|at| self.tree.children(**at).is_empty())
        {
            let usage = self.tree.usage(at);
            let min = self.tree.protection(scope, at, |limits| limits.min);
            let low = self.tree.protection(scope, at, |limits| limits.low);
            let is_above = usage > low.max(min);
            let protected = if is_above { low.max(min) } else { min };
            let excess = usage.saturating_sub(protected);
            if excess > 0 && best.is_none_or(|(above, most, ..)| (is_above, excess) > (above, most))
            {
                best = Some((is_above, excess, protected, at));
            }
        }
        let expected =
            best.map(|(_, excess, protected, at)| (self.tree.path(at), protected, excess));
        let victim = victim.map(|(group, one)| (group.path(), one.protected, one.excess));
        assert_eq!(victim, expected);
        for by in [By::Reserved, By::Peak, By::Refused, By::Reclaimed] {
            let rank = |at: usize| match by {
                By::Reserved => self.tree.usage(at),
                By::Peak => self.tree.nodes[&at].peak,
                By::Refused => self.tree.nodes[&at].counts.refused,
                _ => self.tree.nodes[&at].counts.reclaimed,
            };
            let mut expected: Vec<_> = below
                .iter()
                .map(|&at| (rank(at), self.tree.path(at)))
                .collect();
            expected.retain(|(rank, _)| *rank > 0);
            expected.sort_by(|one, other| (other.0, &one.1).cmp(&(one.0, &other.1)));
            expected.truncate(5);
            let found = self.groups[&scope]
                .top(5, by)
                .into_iter()
                .map(|one| one.path);
            let expected = expected.into_iter().map(|(_, path)| path);
            assert_eq!(
                found.collect::<Vec<_>>(),
                expected.collect::<Vec<_>>(),
                "{by:?}"
            );
        }
    }

    fn check(&mut self) {
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        assert_eq!(asked, std::mem::take(&mut self.tree.asked));
        let counts = |events: Events| Counts {
            low: events.low,
            high: events.high,
            max: events.max,
            refused: events.refused,
            overshot: events.overshot,
            reclaimed: events.reclaimed_bytes,
        };
        for (&at, group) in &self.groups {
            let node = &self.tree.nodes[&at];
            assert_eq!(
                (group.reserved(), group.peak()),
                (self.tree.usage(at), node.peak),
                "{at}"
            );
            assert_eq!(group.limits(), node.limits);
            assert_eq!(counts(group.own_events()), node.counts, "own of {at}");
            assert_eq!(counts(group.events()), node.total, "{at}");
            if at != 0 {
                let protected =
                    |setting| self.tree.protection(0, at, setting).min(group.reserved());
                let found = group.protection();
                assert_eq!(found.min, protected(|limits| limits.min), "{at}");
                assert_eq!(found.low, protected(|limits| limits.low), "{at}");
            }
        }
    }
}

#[test]
fn random_limits_agree_with_the_model() {
    let seed = seed();
    let mut seen = Counts::default();
    for round in 0..6 {
        let mut model = Model::new(seed + round);
        for _ in 0..700 {
            model.step();
        }
        while !model.held.is_empty() {
            model.drop_charge();
        }
        while !model.reserves.is_empty() {
            model.drop_reserve();
        }
        while !model.reclaimers.is_empty() {
            model.drop_reclaimer();
        }
        model.check();
        assert_eq!(model.memory.reserved(), 0);
        let total = model.tree.nodes[&0].total;
        seen.low += total.low;
        seen.high += total.high;
        seen.overshot += total.overshot;
        seen.refused += total.refused;
        seen.reclaimed += total.reclaimed;
    }
    let all = [seen.low, seen.high, seen.overshot, seen.refused];
    assert!(
        all.iter().all(|count| *count > 0),
        "this shows too little: {seen:?}"
    );
}
