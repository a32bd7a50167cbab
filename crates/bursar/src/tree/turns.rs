//! Turns of readers: which of them does the next walk for all, and which the next step of retiring (`retire.rs`).
//!
//! Readers of one scope share walks.
//!
//! One walk of a scope runs at a time. A reader that comes while one runs cannot use it, because it may have passed the reader's
//! groups already. It waits for the next, which one of those that wait does for all. So a reader waits for two walks at most.
//! Readers of other scopes are not in its way.
//!
//! All of this is one word a group: the number of walks done, whether one runs, and whether readers sleep. Readers spin for a
//! moment, because a walk takes microseconds. Then they sleep, and wake one another as a tree.

use std::sync::Arc;

use bursar_machine::{AtomicWord, Event, Lock, Machine, MemoryOrder};

const RUNS: u64 = 1;
const SLEEPERS: u64 = 2;
pub(super) const DONE_ONE: u64 = 4;

/// Counts of walks since the memory was made. A read of a group without children is no walk here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlushCounts {
    /// Walks over the whole tree.
    pub root: u64,
    /// Walks over a subtree of more than one group.
    pub subtree: u64,
    /// Reads that used a walk of another read.
    pub joined: u64,
    /// Reads without a walk: nothing new was in use, so they added up the slots that were in use before.
    pub rosters: u64,
    /// Slots that reads looked at, on which their cost depends.
    pub slots: u64,
    /// Fences passed. No read waits for one, unless the policy is [`crate::FlushPolicy::CombiningFence`].
    pub fences: u64,
    /// Idle slots that left the marks.
    pub retired: u64,
}

/// A reader that sleeps.
struct Sleeper<M: Machine> {
    /// Number of the walk that it waits for.
    needs: u64,
    woken: M::Event,
    /// Readers that it wakes.
    wakes: M::Mutex<Vec<Arc<Self>>>,
}

/// Turns of the walks of one scope.
pub(crate) struct Turns<M: Machine> {
    pub(super) word: M::Word,
    sleepers: M::Mutex<Vec<Arc<Sleeper<M>>>>,
    /// Reads that waited for another's walk, reads by roster, and slots that reads looked at, also of former lives of the record.
    pub(super) joined: M::Word,
    pub(super) rosters: M::Word,
    pub(super) slots: M::Word,
}

impl<M: Machine> Turns<M> {
    pub(super) fn new() -> Self {
        Self {
            word: M::Word::new(0),
            sleepers: M::Mutex::new(Vec::new()),
            joined: M::Word::new(0),
            rosters: M::Word::new(0),
            slots: M::Word::new(0),
        }
    }

    /// Returns `true` when a walk has ended that began after this call, or `false` when the caller must do it, and call
    /// [`Turns::finish`].
    pub(super) fn wait(&self, machine: &M) -> bool {
        // Full, here and below: a reader that sees a walk done sees its numbers, and one that begins a walk comes after the last.
        let mut seen = self.word.load(MemoryOrder::Full);
        let needs = seen / DONE_ONE + 1 + (seen & RUNS);
        let mut round = 0;
        loop {
            if seen / DONE_ONE >= needs {
                return true;
            }
            if seen & RUNS == 0 {
                // Full: pairs with `finish` of the last walk.
                match self
                    .word
                    .compare_exchange(seen, seen | RUNS, MemoryOrder::Full)
                {
                    Ok(_) => return false,
                    Err(now) => seen = now,
                }
                continue;
            }
            if round < machine.spins() {
                // Always as in the first round: this reader keeps its CPU for so short a time.
                machine.relax(0);
                round += 1;
            } else {
                self.sleep(needs);
            }
            // Full: pairs with `finish`.
            seen = self.word.load(MemoryOrder::Full);
        }
    }

    /// Sleeps until a walk ends, unless none runs.
    fn sleep(&self, needs: u64) {
        let sleeper = {
            let mut sleepers = self.sleepers.lock();
            // Full: pairs with `finish`. Either the end of the walk sees this and waits for our lock, or we see the end.
            let seen = self.word.fetch_or(SLEEPERS, MemoryOrder::Full);
            if seen & RUNS == 0 || seen / DONE_ONE >= needs {
                return;
            }
            let sleeper = Arc::new(Sleeper {
                needs,
                woken: M::Event::new(),
                wakes: M::Mutex::new(Vec::new()),
            });
            sleepers.push(sleeper.clone());
            sleeper
        };
        sleeper.woken.wait();
        let wakes = std::mem::take(&mut *sleeper.wakes.lock());
        wake_as_tree(wakes);
    }

    /// Ends a walk.
    pub(super) fn finish(&self) {
        // Full: pairs with `wait`, whose caller sees this walk's numbers, and with `sleep`.
        let before = self.word.fetch_add(DONE_ONE - RUNS, MemoryOrder::Full);
        if before & SLEEPERS == 0 {
            return;
        }
        let done = before / DONE_ONE + 1;
        let woken = {
            let mut sleepers = self.sleepers.lock();
            // Those that this walk serves, and one that does the next for the others.
            sleepers.sort_by_key(|sleeper| sleeper.needs > done);
            let served = sleepers.partition_point(|sleeper| sleeper.needs <= done);
            let count = sleepers.len().min(served + 1);
            let woken: Vec<_> = sleepers.drain(..count).collect();
            if sleepers.is_empty() {
                // Full: pairs with `sleep`, under the same lock.
                self.word.fetch_and(!SLEEPERS, MemoryOrder::Full);
            }
            woken
        };
        wake_as_tree(woken);
    }
}

/// Wakes some, and lets them wake the others. The last of the list is the first to be woken.
fn wake_as_tree<M: Machine>(mut sleepers: Vec<Arc<Sleeper<M>>>) {
    while let Some(sleeper) = sleepers.pop() {
        *sleeper.wakes.lock() = sleepers.split_off(sleepers.len() / 2);
        sleeper.woken.set();
    }
}

/// Pass over the marks of the tree.
pub(crate) struct Retirer<M: Machine> {
    /// The way to the place where the next step goes on; empty between passes.
    pub(super) way: M::Mutex<Vec<Stop>>,
    /// Time at which a reader does the next step, ns.
    pub(super) due_ns: M::Word,
    /// Least time between the passes that readers do, ns.
    pub(crate) period_ns: u64,
    pub(super) fences: M::Word,
    pub(super) retired: M::Word,
}

/// A group on the way of a pass.
pub(super) struct Stop {
    pub(super) index: u32,
    /// Ordinal of the next child to look at; `None` before the group's own slots.
    pub(super) next: Option<u32>,
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

#[cfg(test)]
mod tests {
    use std::thread::{self, ScopedJoinHandle};

    use bursar_machine::Host;

    use super::*;

    type Sleepers = Vec<Arc<Sleeper<Host>>>;

    fn sleeper(needs: u64) -> Arc<Sleeper<Host>> {
        Arc::new(Sleeper {
            needs,
            woken: <Host as Machine>::Event::new(),
            wakes: <Host as Machine>::Mutex::new(Vec::new()),
        })
    }

    fn done(walks: u64) -> u64 {
        walks * DONE_ONE
    }

    fn turns(word: u64) -> Turns<Host> {
        let turns = Turns::<Host>::new();
        turns.word.store(word, MemoryOrder::Full);
        turns
    }

    fn needs(turns: &Turns<Host>) -> Vec<u64> {
        let sleepers = turns.sleepers.lock();
        sleepers.iter().map(|sleeper| sleeper.needs).collect()
    }

    /// Wakes some, each of whom wakes others, and so on. Returns how many come one after the other. Never returns if one is left asleep.
    fn rounds(sleepers: Sleepers) -> usize {
        wake_as_tree(sleepers.clone());
        let wakes = |sleeper: &Arc<Sleeper<Host>>| std::mem::take(&mut *sleeper.wakes.lock());
        let later: Vec<Sleepers> = sleepers.iter().map(wakes).collect();
        for sleeper in &sleepers {
            let is_later = later.iter().flatten().any(|one| Arc::ptr_eq(one, sleeper));
            if !is_later {
                sleeper.woken.wait();
            }
        }
        let rest = later.into_iter().filter(|some| !some.is_empty());
        1 + rest.map(rounds).max().unwrap_or(0)
    }

    #[test]
    fn sleepers_wake_one_another_as_a_tree() {
        for (count, most) in [(1, 1), (2, 2), (3, 2), (8, 4), (64, 7)] {
            let sleepers = (0..count).map(|_| sleeper(1)).collect();
            assert_eq!(rounds(sleepers), most, "{count}");
        }
    }

    /// The end of a walk wakes those that it serves, and one that does the next walk for the others.
    #[test]
    fn one_of_those_that_a_walk_does_not_serve_is_woken() {
        let turns = turns(done(1) | RUNS | SLEEPERS);
        let sleepers = [3, 3, 2, 2].map(sleeper);
        turns.sleepers.lock().extend(sleepers.iter().cloned());
        turns.finish();
        assert_eq!(needs(&turns), [3]);
        assert_eq!(turns.word.load(MemoryOrder::Full), done(2) | SLEEPERS);
        turns.word.fetch_or(RUNS, MemoryOrder::Full);
        turns.finish();
        assert!(needs(&turns).is_empty());
        assert_eq!(turns.word.load(MemoryOrder::Full), done(3));
    }

    /// Whether a reader that needs a walk falls asleep.
    fn sleeps(word: u64, needs: u64) -> bool {
        let turns = turns(word);
        thread::scope(|scope| {
            let reader = scope.spawn(|| turns.sleep(needs));
            while !reader.is_finished() {
                if !turns.sleepers.lock().is_empty() {
                    // Wakes it, whatever it needs.
                    turns.finish();
                    return true;
                }
                thread::yield_now();
            }
            false
        })
    }

    #[test]
    fn a_reader_sleeps_while_a_walk_runs_that_it_cannot_use() {
        assert!(!sleeps(0, 1), "the next walk is its own");
        assert!(!sleeps(done(2), 3), "the next walk is its own");
        assert!(!sleeps(done(2) | RUNS, 2), "its walk is done");
        assert!(!sleeps(done(3) | RUNS, 2), "its walk is done");
        assert!(sleeps(RUNS, 1));
        assert!(sleeps(done(2) | RUNS, 3));
        assert!(sleeps(done(2) | RUNS, 4));
    }

    /// Readers that come during a walk need the next. One of them does it, and it serves the other.
    #[test]
    fn readers_that_come_during_a_walk_share_the_next() {
        let machine = Host::start().expect("the host starts");
        let turns = turns(done(1));
        assert!(!turns.wait(&machine), "no walk runs");
        let (needed, served) = thread::scope(|scope| {
            let mut readers = [(); 2].map(|()| scope.spawn(|| turns.wait(&machine)));
            let has_one_done = || readers.iter().any(ScopedJoinHandle::is_finished);
            while needs(&turns).len() < 2 && !has_one_done() {
                thread::yield_now();
            }
            let needed = needs(&turns);
            turns.finish();
            while !has_one_done() {
                thread::yield_now();
            }
            readers.sort_by_key(|reader| !reader.is_finished());
            turns.finish();
            (needed, readers.map(|reader| reader.join().ok()))
        });
        assert_eq!((needed, served), (vec![3; 2], [Some(false), Some(true)]));
        assert_eq!(turns.word.load(MemoryOrder::Full), done(3));
    }
}
