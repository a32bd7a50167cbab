//! Walks, publication and retiring, in one group below a root. Each bug leaves out one step of `retire.rs`, `publish.rs`,
//! `walk.rs` or `flush.rs` of the library.
//!
//! Words are `Full` throughout: each bug is one of the order of steps.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::{
    AtomicWord, FIRST_STATISTIC, Lock, Machine, MemoryOrder, Outcome, STATE, Shard, Slot, State,
};
use bursar_rig::Watched;

use super::bug::Planted;
use crate::protocols::books::run;
use crate::random::Random;

/// Step that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    MarkRemovedBeforeFence,
    NoSecondLookAtSlot,
    NoSecondLookAtGroup,
    MarkTrusted,
    LeftForgotten,
    NewsLeftBehind,
    FoldedUnpublished,
    RosterTrusted,
    RosterRecounted,
    RetirementCountedLate,
}

#[rustfmt::skip]
pub(super) fn all<M: Watched>() -> Vec<Planted<M>> {
    planted![
        "early-unmark": "an idle slot's mark is removed before the fence, and a walk misses what is committed until then",
            scenario, Some(Bug::MarkRemovedBeforeFence), None;
        "blind-unmark": "an idle slot's mark is removed, and an update has published the slot and found the mark still set",
            scenario, Some(Bug::NoSecondLookAtSlot), None;
        "blind-leave": "a group leaves its parent's marks, and an update has marked a slot and found the group still marked",
            scenario, Some(Bug::NoSecondLookAtGroup), None;
        "trusted-mark": "an update publishes a clean slot without marking it, because the mark is still set",
            scenario, Some(Bug::MarkTrusted), None;
        "left-forgotten": "an error bar counts publications since the last walk, and not the slots that the walk left published",
            scenario, Some(Bug::LeftForgotten), None;
        "news-left-behind": "a group leaves its parent's marks with numbers that the parent has not received",
            scenario, Some(Bug::NewsLeftBehind), None;
        "folded-unpublished": "a reader folds an addition that is not published yet, and a later read of the parent misses it",
            scenario, Some(Bug::FoldedUnpublished), None;
        "roster-trusted": "a read by roster does not look whether a slot is published, finds an addition there, and a later read of the parent misses it",
            by_roster, Some(Bug::RosterTrusted), None;
        "roster-recounted": "a roster without a retired slot takes the count of publications of that moment, and the slot is published again by then",
            by_roster, Some(Bug::RosterRecounted), None;
        "retirement-counted-late": "a slot's mark is removed before readers by roster are told that it is retired",
            by_roster, Some(Bug::RetirementCountedLate), None;
    ]
}

const WORD: usize = FIRST_STATISTIC;
/// Most that a slot holds back: more than is ever added, so nothing is reported.
const BATCH: u64 = 100;

/// Folded numbers of the root.
#[derive(Default)]
struct Root {
    total: u64,
    /// Publications before the last walk, and marked slots that it left.
    sampled: u64,
    left: u64,
}

/// Folded numbers of the group.
struct Group {
    total: u64,
    /// Not yet handed to the root.
    up: u64,
    /// Words at the last look, by shard.
    seen: Vec<u64>,
}

/// Slots in use in the group, and what they and `base` add up to.
#[derive(Clone)]
struct Roster {
    publications: u64,
    /// Retirements before all slots were seen published; `None` if one of them may be retired.
    retirements: Option<u64>,
    shards: Vec<Shard>,
    base: u64,
}

struct World<M: Machine> {
    machine: M,
    bug: Option<Bug>,
    slot: M::Slot,
    /// Bits of the group's shards.
    published: M::Word,
    /// Whether the group is marked in the root.
    dirty: M::Word,
    publications: M::Word,
    /// Number of times that slots were retired.
    retirements: M::Word,
    roster: M::Mutex<Option<Roster>>,
    /// Locked before the group.
    root: M::Mutex<Root>,
    group: M::Mutex<Group>,
    /// Additions begun and returned, and the most that a read of the group found. Not the machine's words: recording costs no step.
    begun: AtomicU64,
    returned: AtomicU64,
    found: AtomicU64,
}

impl<M: Machine> World<M> {
    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn state(&self, shard: Shard) -> State {
        State(self.slot.word(shard, STATE).load(MemoryOrder::Full))
    }

    fn change(&self, shard: Shard, from: State, to: State) -> bool {
        let state = self.slot.word(shard, STATE);
        state
            .compare_exchange(from.0, to.0, MemoryOrder::Full)
            .is_ok()
    }

    fn add(&self, to_extra: bool) {
        // Relaxed, here and below: one thread of the host runs all tasks.
        self.begun.fetch_add(1, Ordering::Relaxed);
        if to_extra {
            self.slot.add_extra(WORD, 1);
            self.publish(Shard(self.machine.cpus() as u32));
        } else {
            while let Outcome::Unpublished { shard, committed } = self.slot.add(WORD, 1) {
                self.publish(shard);
                if committed {
                    break;
                }
            }
        }
        self.returned.fetch_add(1, Ordering::Relaxed);
    }

    fn publish(&self, shard: Shard) {
        loop {
            let seen = self.state(shard);
            let publishing = seen.with_tag(State::PUBLISHING);
            match seen.tag() {
                State::PUBLISHED => return,
                State::CLEAN if !self.change(shard, seen, publishing) => continue,
                _ => {}
            }
            let bit = 1 << shard.0;
            let is_marked = || self.published.load(MemoryOrder::Full) & bit != 0;
            if !(self.has(Bug::MarkTrusted) && is_marked()) {
                self.published.fetch_or(bit, MemoryOrder::Full);
                self.dirty.store(1, MemoryOrder::Full);
                self.publications.fetch_add(1, MemoryOrder::Full);
            }
            self.change(shard, publishing, publishing.with_tag(State::PUBLISHED));
        }
    }

    fn fold(&self, group: &mut Group, shard: Shard) {
        let now = self.slot.word(shard, WORD).load(MemoryOrder::Full);
        let news = now - std::mem::replace(&mut group.seen[shard.index()], now);
        group.total += news;
        group.up += news;
        if news > 0
            && !self.has(Bug::FoldedUnpublished)
            && self.state(shard).tag() != State::PUBLISHED
        {
            self.publish(shard);
        }
    }

    /// Folds what is marked in the group, and returns the marked shards.
    fn fold_marked(&self, group: &mut Group) -> Vec<Shard> {
        let marks = self.published.load(MemoryOrder::Full);
        let shards = (0..group.seen.len() as u32).filter(|shard| marks >> shard & 1 != 0);
        let marked: Vec<_> = shards.map(Shard).collect();
        for &shard in &marked {
            self.fold(group, shard);
        }
        marked
    }

    fn read_root(&self) {
        let known = self.known();
        let sampled = self.publications.load(MemoryOrder::Full);
        let is_marked = {
            let _root = self.root.lock();
            self.dirty.load(MemoryOrder::Full) != 0
        };
        let mut left = 0;
        if is_marked {
            left = self.fold_marked(&mut self.group.lock()).len() as u64;
        }
        let mut root = self.root.lock();
        if is_marked {
            root.total += std::mem::take(&mut self.group.lock().up);
        }
        (root.sampled, root.left) = (sampled, left);
        self.check("the root", known, root.total, 0);
    }

    fn read_group(&self) {
        let returned = self.returned.load(Ordering::Relaxed);
        let total = self.by_roster().unwrap_or_else(|| {
            let total = {
                let mut group = self.group.lock();
                self.fold_marked(&mut group);
                group.total
            };
            *self.roster.lock() = self.make_roster();
            total
        });
        self.check("the group", returned, total, 0);
        self.found.fetch_max(total, Ordering::Relaxed);
    }

    fn by_roster(&self) -> Option<u64> {
        let roster = self.roster.lock().clone()?;
        if self.publications.load(MemoryOrder::Full) != roster.publications {
            return None;
        }
        let retirements = || self.retirements.load(MemoryOrder::Full);
        let word = |shard| self.slot.word(shard, WORD).load(MemoryOrder::Full);
        if roster.retirements.is_some() {
            let words: u64 = roster.shards.iter().map(|&shard| word(shard)).sum();
            if roster.retirements == Some(retirements()) {
                return Some(roster.base.wrapping_add(words));
            }
        }
        let mut next = Roster {
            retirements: Some(retirements()),
            shards: Vec::new(),
            ..roster
        };
        let mut sum = roster.base;
        for shard in roster.shards {
            let word = word(shard);
            let is_published = self.state(shard).tag() == State::PUBLISHED;
            if is_published || self.has(Bug::RosterTrusted) {
                sum = sum.wrapping_add(word);
                next.shards.push(shard);
                continue;
            }
            let mut group = self.group.lock();
            self.fold(&mut group, shard);
            let folded = group.seen[shard.index()];
            sum = sum.wrapping_add(folded);
            let is_marked = self.published.load(MemoryOrder::Full) & 1 << shard.0 != 0;
            if !is_marked && self.state(shard).tag() == State::CLEAN {
                next.base = next.base.wrapping_add(folded);
            } else {
                next.retirements = None;
                next.shards.push(shard);
            }
        }
        if self.has(Bug::RosterRecounted) {
            next.publications = self.publications.load(MemoryOrder::Full);
        }
        *self.roster.lock() = Some(next);
        Some(sum)
    }

    fn make_roster(&self) -> Option<Roster> {
        let mut roster = Roster {
            publications: self.publications.load(MemoryOrder::Full),
            retirements: None,
            shards: Vec::new(),
            base: 0,
        };
        let group = self.group.lock();
        roster.base = group.total;
        let marks = self.published.load(MemoryOrder::Full);
        for shard in (0..group.seen.len() as u32).filter(|shard| marks >> shard & 1 != 0) {
            let shard = Shard(shard);
            roster.base = roster.base.wrapping_sub(group.seen[shard.index()]);
            roster.shards.push(shard);
        }
        Some(roster)
    }

    fn read_cached(&self) {
        let known = self.known();
        let root = self.root.lock();
        let left = match self.has(Bug::LeftForgotten) {
            true => 0,
            false => root.left,
        };
        let slots = self.publications.load(MemoryOrder::Full) - root.sampled + left;
        self.check("the root, cached", known, root.total, slots * BATCH);
    }

    /// Additions that a read of the root which begins now must not miss.
    fn known(&self) -> u64 {
        let found = self.found.load(Ordering::Relaxed);
        found.max(self.returned.load(Ordering::Relaxed))
    }

    fn check(&self, what: &str, known: u64, read: u64, error: u64) {
        let begun = self.begun.load(Ordering::Relaxed);
        assert!(read <= begun, "{what}: {read} read, and {begun} begun");
        assert!(
            known <= read + error,
            "{what}: {read} read, with an error of {error}, and {known} were there"
        );
    }

    /// Retires all slots that no task publishes.
    fn retire(&self) {
        let idle = self.clean_marked();
        if self.has(Bug::MarkRemovedBeforeFence) {
            self.unmark(&idle);
        }
        self.machine.fence();
        if !self.has(Bug::RetirementCountedLate) {
            self.retirements.fetch_add(1, MemoryOrder::Full);
        }
        self.unmark_idle(&idle);
        if self.has(Bug::RetirementCountedLate) {
            self.retirements.fetch_add(1, MemoryOrder::Full);
        }
        self.leave_root();
    }

    /// Returns the slots that are clean now, with their epochs.
    fn clean_marked(&self) -> Vec<(Shard, u64)> {
        let marked = self.fold_marked(&mut self.group.lock());
        let clean = |shard| {
            let seen = self.state(shard);
            match seen.tag() {
                State::CLEAN => Some((shard, seen.epoch())),
                State::PUBLISHED => {
                    let clean = seen.cleaned();
                    self.change(shard, seen, clean)
                        .then(|| (shard, clean.epoch()))
                }
                _ => None,
            }
        };
        marked.into_iter().filter_map(clean).collect()
    }

    fn unmark(&self, idle: &[(Shard, u64)]) {
        let _group = self.group.lock();
        for (shard, _) in idle {
            self.published.fetch_and(!(1 << shard.0), MemoryOrder::Full);
        }
    }

    fn unmark_idle(&self, idle: &[(Shard, u64)]) {
        let mut group = self.group.lock();
        for &(shard, epoch) in idle {
            self.fold(&mut group, shard);
            if !self.has(Bug::MarkRemovedBeforeFence) {
                self.published.fetch_and(!(1 << shard.0), MemoryOrder::Full);
            }
            let now = self.state(shard);
            let is_idle = now.tag() == State::CLEAN && now.epoch() == epoch;
            if !is_idle && !self.has(Bug::NoSecondLookAtSlot) {
                self.published.fetch_or(1 << shard.0, MemoryOrder::Full);
            }
        }
    }

    fn leave_root(&self) {
        let mut root = self.root.lock();
        let mut group = self.group.lock();
        if !self.has(Bug::NewsLeftBehind) {
            root.total += std::mem::take(&mut group.up);
        }
        let is_marked = || self.published.load(MemoryOrder::Full) != 0;
        if is_marked() {
            return;
        }
        self.dirty.store(0, MemoryOrder::Full);
        if !self.has(Bug::NoSecondLookAtGroup) && is_marked() {
            self.dirty.store(1, MemoryOrder::Full);
        }
    }
}

fn world<M: Machine>(machine: &M, bug: Option<Bug>) -> World<M> {
    let word = || M::Word::new(0);
    World {
        machine: machine.clone(),
        bug,
        slot: machine.slots(WORD + 1).expect("few words").swap_remove(0),
        published: word(),
        dirty: word(),
        publications: word(),
        retirements: word(),
        roster: M::Mutex::new(None),
        root: M::Mutex::new(Root::default()),
        group: M::Mutex::new(Group {
            total: 0,
            up: 0,
            seen: vec![0; machine.cpus() + 1],
        }),
        begun: AtomicU64::new(0),
        returned: AtomicU64::new(0),
        found: AtomicU64::new(0),
    }
}

fn scenario<M: Watched>(machine: &M, seed: u64, bug: Option<Bug>) {
    let world = &world(machine, bug);
    let add = move |mut random: Random| (0..2).for_each(|_| world.add(random.below(2) == 0));
    let read = |mut random: Random| {
        for _ in 0..2 {
            if random.below(2) == 0 {
                world.read_group();
            }
            world.read_root();
            world.read_cached();
        }
    };
    let retire = |_: Random| (0..2).for_each(|_| world.retire());
    run(machine, seed, || (), tasks![add, read, add, retire]);
    world.read_root();
}

/// The same with few steps: a slot is in use, and perhaps on the group's roster, when the tasks begin.
fn by_roster<M: Watched>(machine: &M, seed: u64, bug: Option<Bug>) {
    let world = &world(machine, bug);
    let mut random = Random::fork(seed, 0);
    world.add(random.below(2) == 0);
    let is_listed = bug.is_some() || random.below(2) == 0;
    let list = || *world.roster.lock() = world.make_roster();
    if is_listed {
        list();
        // Looks at the slot, so the next read need not.
        world.read_group();
    }
    let read = |_: Random| {
        if !is_listed {
            list();
        }
        world.read_group();
        if matches!(bug, None | Some(Bug::RosterRecounted)) {
            world.read_group();
        }
        world.read_root();
    };
    let add = |mut random: Random| world.add(random.below(2) == 0);
    run(machine, seed, || (), tasks![add, read, |_| world.retire()]);
    world.read_root();
}
