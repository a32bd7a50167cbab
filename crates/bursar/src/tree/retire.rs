//! Retiring idle slots: they leave the marks, so that walks meet only what is in use now.
//!
//! A slot that was published stays so, and marked, while it is in use: walks change nothing. A slot that did not change between
//! two passes is retired, in nobody's way:
//!
//! 1. Its state becomes `Clean` in a new epoch. The marks stay. From here on an update publishes again.
//! 2. One fence serves all slots of a step. After it, no section commits that saw the slot published. Then the rosters that have the
//!    slot are told (`roster.rs`).
//! 3. Under the lock of the group's fold: the slot is folded, and its mark removed. If its state is not that `Clean` any more, an
//!    updater has published it, and may have found the mark still set: the mark is set again, before the lock is released.
//! 4. A group without marks hands its numbers up and leaves the marks of its parent, under the locks of both folds. Again a second
//!    look finds an updater that came meanwhile.
//!
//! A walk looks at marks under the same locks. So it finds a mark, or numbers that were folded before the mark was removed.
//!
//! A pass goes over the whole tree in steps of bounded size; [`crate::Memory::tick`] does one, and so does a reader now and then,
//! after it has its answer.

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder, STATE, Shard, Slot, State};

use super::fold::{Fold, Sample};
use super::walk::Walked;
use super::{FlushPolicy, Node, ROOT, Tree};

/// Groups and slots that a step looks at, so that it takes about as long as its fence. Judgement.
const LOOKED_AT_BY_STEP: usize = 1024;

/// Steps of one pass in a period, at most. With the default period a fence each millisecond takes 0.1 % of a CPU's time. Judgement.
const STEPS_A_PERIOD: u64 = 10;

/// Pass over the marks of the tree.
pub(crate) struct Retirer<M: Machine> {
    /// The way to the place where the next step goes on; empty between passes.
    way: M::Mutex<Vec<Stop>>,
    /// Time at which a reader does the next step, ns.
    due_ns: M::Word,
    /// Least time between the passes that readers do, ns.
    pub(crate) period_ns: u64,
    fences: M::Word,
    retired: M::Word,
}

/// A group on the way of a pass.
struct Stop {
    index: u32,
    /// Ordinal of the next child to look at; `None` before the group's own slots.
    next: Option<u32>,
}

/// A slot that is clean and marked.
struct Idle {
    index: u32,
    shard: Shard,
    /// Its epoch.
    epoch: u64,
}

/// Slots that a step retires.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Those that did not change between two passes.
    Unchanged,
    All,
}

impl<M: Machine> Retirer<M> {
    pub(super) fn new(period_ns: u64, now_ns: u64) -> Self {
        Self {
            way: M::Mutex::new(Vec::new()),
            due_ns: M::Word::new(now_ns.saturating_add(period_ns)),
            period_ns,
            fences: M::Word::new(0),
            retired: M::Word::new(0),
        }
    }

    /// Fences passed, and slots retired.
    pub(super) fn counts(&self) -> (u64, u64) {
        // Relaxed: these counts only inform.
        (
            self.fences.load(MemoryOrder::Relaxed),
            self.retired.load(MemoryOrder::Relaxed),
        )
    }
}

impl<M: Machine> Tree<M> {
    /// Does a step of a pass if one is due and no other task does it. With [`FlushPolicy::CombiningFence`] readers retire all that
    /// they visit anyway.
    pub(super) fn retire_if_due(&self, now_ns: u64) {
        if self.policy == FlushPolicy::CombiningFence {
            return;
        }
        let retirer = &self.retirer;
        // Relaxed: a time, and nothing else is read by it.
        let is_due = || now_ns >= retirer.due_ns.load(MemoryOrder::Relaxed);
        if is_due()
            && let Some(mut way) = retirer.way.try_lock()
            && is_due()
        {
            self.retire_some(&mut way);
        }
    }

    /// Does a step of a pass.
    pub(crate) fn retire(&self) {
        if let Some(mut way) = self.retirer.way.try_lock() {
            self.retire_some(&mut way);
        }
    }

    fn retire_some(&self, way: &mut Vec<Stop>) {
        let retirer = &self.retirer;
        let now_ns = self.machine.now_ns();
        if way.is_empty() {
            way.push(Stop {
                index: ROOT,
                next: None,
            });
        }
        self.retire_step(way, LOOKED_AT_BY_STEP, Which::Unchanged);
        // A pass over a large tree takes many steps. If they came no faster than passes, slots would come faster than they go.
        let pause_ns = match way.is_empty() {
            true => retirer.period_ns,
            false => retirer.period_ns / STEPS_A_PERIOD,
        };
        // Relaxed: as in `retire_if_due`.
        retirer
            .due_ns
            .store(now_ns.saturating_add(pause_ns), MemoryOrder::Relaxed);
    }

    /// Brings the totals of `scope` up to date and retires all slots below it that are in no update's hands.
    /// Its slots are the groups and slots that it looked at.
    pub(super) fn walk_and_retire_all(&self, scope: u32) -> Walked {
        let began_ns = self.machine.now_ns();
        let mut way = vec![Stop {
            index: scope,
            next: None,
        }];
        let looked_at = self.retire_step(&mut way, usize::MAX, Which::All);
        self.end_walk(scope, began_ns);
        Walked {
            slots: looked_at as u64,
            is_calm: false,
        }
    }

    /// Returns how many groups and slots it looked at.
    fn retire_step(&self, way: &mut Vec<Stop>, most: usize, which: Which) -> usize {
        let (mut idle, mut done) = (Vec::new(), Vec::new());
        let mut looked_at = 0;
        while looked_at < most
            && let Some(stop) = way.last_mut()
        {
            looked_at += 1;
            let node = self.node(stop.index);
            match stop.next {
                None => {
                    looked_at += self.collect_idle(stop.index, which, &mut idle);
                    stop.next = Some(0);
                }
                Some(from) => match self.next_marked_child(node, from) {
                    Some((ordinal, child)) => {
                        stop.next = Some(ordinal + 1);
                        way.push(Stop {
                            index: child,
                            next: None,
                        });
                    }
                    None => {
                        done.push(stop.index);
                        way.pop();
                    }
                },
            }
        }
        if !idle.is_empty() {
            self.retirer.fences.fetch_add(1, MemoryOrder::Relaxed);
            self.machine.fence();
        }
        for idle in idle.chunk_by(|one, other| one.index == other.index) {
            // Before their marks go: a reader by roster that still sees the old count has read marked slots.
            self.count_change(idle[0].index);
            for some in idle.chunks(self.shards_per_hold) {
                self.unmark_idle(some);
            }
        }
        // Children before their parents.
        for index in done {
            self.leave_parent(index);
        }
        looked_at
    }

    /// Folds the marked slots of a group, and cleans those to retire. Returns how many it looked at.
    fn collect_idle(&self, index: u32, which: Which, idle: &mut Vec<Idle>) -> usize {
        let node = self.node(index);
        let mut looked_at = 0;
        let mut from = Some(0);
        while let Some(at) = from {
            from = self.fold_some(&mut node.fold.lock(), index, at, |fold, shard| {
                looked_at += 1;
                let is_idle = fold.is_idle(&self.layout, shard) || which == Which::All;
                if let Some(epoch) = is_idle
                    .then(|| clean_published::<M>(&node.slot, shard))
                    .flatten()
                {
                    idle.push(Idle {
                        index,
                        shard,
                        epoch,
                    });
                }
            });
        }
        looked_at
    }

    /// The first marked child from an ordinal on. Removes marks that outlived their children.
    fn next_marked_child(&self, node: &Node<M>, mut from: u32) -> Option<(u32, u32)> {
        loop {
            let mut first = None;
            {
                let _fold = node.fold.lock();
                node.dirty.peek_from(from, |ordinal| {
                    first = Some(ordinal);
                    false
                });
            }
            let ordinal = first?;
            // Lock order: children before fold.
            let children = node.children.lock();
            if let Some(&Some(child)) = children.ordinals.get(ordinal as usize) {
                return Some((ordinal, child));
            }
            let _fold = node.fold.lock();
            // No second look: a child that is born here later marks after its birth, for which it needs the lock of the children.
            node.dirty.unmark(ordinal);
            from = ordinal + 1;
        }
    }

    /// Removes the marks of slots of one group that are still clean after the fence.
    fn unmark_idle(&self, idle: &[Idle]) {
        let index = idle[0].index;
        let node = self.node(index);
        let mut fold = node.fold.lock();
        for &Idle { shard, epoch, .. } in idle {
            self.fold_shard(&mut fold, index, shard);
            node.published.unmark(shard.0);
            // Full: pairs with the begin of a publication. Either we see it, or its marks come after ours is removed.
            let state = State(node.slot.word(shard, STATE).load(MemoryOrder::Full));
            if state.tag() == State::CLEAN && state.epoch() == epoch {
                self.retirer.retired.fetch_add(1, MemoryOrder::Relaxed);
            } else {
                node.published.mark(shard.0);
            }
        }
    }

    /// Hands a group's numbers up, and removes it from its parent's marks if it has none itself.
    fn leave_parent(&self, index: u32) {
        let node = self.node(index);
        let sample = Sample::of(node);
        // Freed when no lock is held any more.
        let mut old = None;
        let mut look = |fold: &mut Fold<M>| {
            old = fold.roster.take_if(|roster| roster.is_old(node));
            node.is_unmarked()
        };
        let Some(parent) = node.parent() else {
            let mut fold = node.fold.lock();
            if look(&mut fold) {
                fold.settle(sample, 0);
            }
            return;
        };
        self.with_both(parent, index, |above, fold| {
            fold.hand_up(above);
            if !look(fold) {
                return;
            }
            fold.settle(sample, 0);
            let dirty = &self.node(parent).dirty;
            let ordinal = node.ordinal();
            dirty.unmark(ordinal);
            // Full, in here: pairs with the marks of a publication, which sets ours after the group's own. Either we see its mark
            // in the group, or its mark of the group comes after we removed it.
            if !node.is_unmarked() {
                dirty.mark(ordinal);
            }
        });
    }
}

/// Sets a published shard back to clean in a new epoch. Returns the epoch in which it is clean; `None` if a task publishes it.
fn clean_published<M: Machine>(slot: &M::Slot, shard: Shard) -> Option<u64> {
    let state = slot.word(shard, STATE);
    let mut seen = State(state.load(MemoryOrder::Full));
    loop {
        let clean = match seen.tag() {
            State::PUBLISHED => seen.cleaned(),
            State::CLEAN => return Some(seen.epoch()),
            _ => return None,
        };
        // Full: pairs with `publish` and, on machines without sections, with the adder that looks at the state last.
        match state.compare_exchange(seen.0, clean.0, MemoryOrder::Full) {
            Ok(_) => return Some(clean.epoch()),
            Err(now) => seen = State(now),
        }
    }
}

/// Sets a shard back to clean in a new epoch, so that publications under way start again.
pub(super) fn clean<M: Machine>(slot: &M::Slot, shard: Shard) {
    let state = slot.word(shard, STATE);
    let mut seen = State(state.load(MemoryOrder::Relaxed));
    // Full: pairs with `publish`.
    while let Err(now) = state.compare_exchange(seen.0, seen.cleaned().0, MemoryOrder::Full) {
        seen = State(now);
    }
}
