//! Turns of flushes: flushes of overlapping subtrees run one after the other, and readers share them.
//!
//! At any time the *running* flushes have disjoint scopes, and so have the *pending* ones. A reader that wants a flush
//! joins the pending flush that overlaps its scope. That flush is widened if necessary, and swallows the others that it
//! then overlaps. A running flush is of no use to the reader, because it may have passed the reader's groups already.
//! So a reader waits for the flushes that run when it comes, and for the one pending flush that contains its own. That
//! is two durations of the largest overlapping scope.
//!
//! The end of a group needs a turn and no flush ([`Tree::exclusively`]). It is a *guest* of the pending flush that
//! overlaps its scope. When that flush is done, its readers return and the turn passes from guest to guest. So the end
//! of a group waits for the turns that run when it comes, and for one more flush with the guests before it. The number
//! of readers does not matter. A reader also waits for the guests of the turn that runs when it comes; each of them
//! folds one group.
//!
//! The lock below is held for a walk over these two short lists, never for a flush. So readers of disjoint subtrees
//! wait for one another only in the combined fence.

use std::collections::VecDeque;
use std::sync::Arc;

use bursar_machine::{AtomicWord, Event, Lock, Machine, Order};

use super::{ROOT, Tree};

/// Counts of flushes since the memory was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlushCounts {
    /// Flushes of the whole tree.
    pub root: u64,
    /// Flushes of a subtree.
    pub subtree: u64,
    /// Reads that joined a pending flush of another read.
    pub joined: u64,
    /// Fences passed.
    pub fences: u64,
}

struct Ticket<M: Machine> {
    /// Set when the leader may start or another flush has swallowed its own, or when the guest has the turn.
    go: M::Event,
    /// Set when the flush is done.
    done: M::Event,
}

impl<M: Machine> Ticket<M> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            go: M::Event::new(),
            done: M::Event::new(),
        })
    }
}

struct Pending<M: Machine> {
    scope: u32,
    /// Ticket of the task that flushes; `None` if only guests wait.
    leader: Option<Arc<Ticket<M>>>,
    /// Tickets of the flushes that this one swallowed.
    swallowed: Vec<Arc<Ticket<M>>>,
    /// Guests, which have their turns after the flush.
    guests: VecDeque<Arc<Ticket<M>>>,
}

struct Running<M: Machine> {
    scope: u32,
    number: u64,
    /// Tickets of a flush that was pending, until it is done: its leader's, then those of the flushes that it
    /// swallowed.
    tickets: Vec<Arc<Ticket<M>>>,
    /// The guest that has the turn now; `guests` have it next.
    guest: Option<Arc<Ticket<M>>>,
    guests: VecDeque<Arc<Ticket<M>>>,
}

impl<M: Machine> Running<M> {
    /// Gives the turn to the next guest; returns whether there is one.
    fn pass_on(&mut self) -> bool {
        self.guest = self.guests.pop_front();
        if let Some(guest) = &self.guest {
            guest.go.set();
        }
        self.guest.is_some()
    }
}

struct Turns<M: Machine> {
    running: Vec<Running<M>>,
    pending: Vec<Pending<M>>,
    next: u64,
}

/// Turns of one tree; see the module.
pub(crate) struct Combiner<M: Machine> {
    turns: M::Mutex<Turns<M>>,
    root: M::Word,
    subtree: M::Word,
    joined: M::Word,
    fences: M::Word,
}

/// Purpose of a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Flush,
    /// The turn alone.
    Turn,
}

enum Turn<M: Machine> {
    Run(u64),
    Lead(Arc<Ticket<M>>),
    Wait(Arc<Ticket<M>>),
    BeGuest(Arc<Ticket<M>>),
}

impl<M: Machine> Combiner<M> {
    pub(super) fn new() -> Self {
        Self {
            turns: M::Mutex::new(Turns {
                running: Vec::new(),
                pending: Vec::new(),
                next: 0,
            }),
            root: M::Word::new(0),
            subtree: M::Word::new(0),
            joined: M::Word::new(0),
            fences: M::Word::new(0),
        }
    }

    pub(crate) fn counts(&self) -> FlushCounts {
        // Relaxed, here and below: these counts only inform.
        FlushCounts {
            root: self.root.load(Order::Relaxed),
            subtree: self.subtree.load(Order::Relaxed),
            joined: self.joined.load(Order::Relaxed),
            fences: self.fences.load(Order::Relaxed),
        }
    }

    pub(super) fn count_fence(&self) {
        self.fences.fetch_add(1, Order::Relaxed);
    }
}

impl<M: Machine> Tree<M> {
    /// Returns after a flush that began after this call and whose scope contains `scope`.
    #[doc(alias = "css_rstat_flush")]
    pub(crate) fn flush(&self, scope: u32) {
        let number = match self.turn(scope, Wanted::Flush) {
            Turn::Run(number) => number,
            Turn::Wait(ticket) => {
                self.combiner.joined.fetch_add(1, Order::Relaxed);
                return ticket.done.wait();
            }
            Turn::Lead(ticket) => {
                ticket.go.wait();
                let Some((scope, number)) = self.start(&ticket) else {
                    return ticket.done.wait();
                };
                self.run(scope);
                return self.finish(number);
            }
            Turn::BeGuest(_) => unreachable!("a flush is no guest"),
        };
        self.run(scope);
        self.finish(number);
    }

    /// Calls `work` while no flush runs that overlaps `scope`. The module says how long that may wait.
    pub(crate) fn exclusively(&self, scope: u32, work: impl FnOnce()) {
        let number = match self.turn(scope, Wanted::Turn) {
            Turn::Run(number) => number,
            Turn::BeGuest(ticket) => {
                ticket.go.wait();
                self.turn_of_guest(&ticket)
            }
            Turn::Lead(_) | Turn::Wait(_) => unreachable!("no flush is wanted"),
        };
        work();
        self.finish(number);
    }

    fn overlap(&self, one: u32, other: u32) -> bool {
        self.is_ancestor(one, other) || self.is_ancestor(other, one)
    }

    fn turn(&self, scope: u32, wanted: Wanted) -> Turn<M> {
        let mut turns = self.combiner.turns.lock();
        let first = turns
            .pending
            .iter()
            .position(|pending| self.overlap(pending.scope, scope));
        let at = match first {
            Some(first) => {
                self.widen(&mut turns.pending, first, scope);
                first
            }
            None if turns
                .running
                .iter()
                .any(|running| self.overlap(running.scope, scope)) =>
            {
                turns.pending.push(Pending {
                    scope,
                    leader: None,
                    swallowed: Vec::new(),
                    guests: VecDeque::new(),
                });
                turns.pending.len() - 1
            }
            None => return Turn::Run(self.begin(&mut turns, scope)),
        };
        let pending = &mut turns.pending[at];
        match (wanted, &pending.leader) {
            (Wanted::Flush, Some(leader)) => Turn::Wait(leader.clone()),
            (Wanted::Flush, None) => Turn::Lead(pending.leader.insert(Ticket::new()).clone()),
            (Wanted::Turn, _) => {
                let guest = Ticket::new();
                pending.guests.push_back(guest.clone());
                Turn::BeGuest(guest)
            }
        }
    }

    /// Widens a pending flush to `scope` if necessary, and makes it swallow those that it then overlaps.
    fn widen(&self, pending: &mut Vec<Pending<M>>, first: usize, scope: u32) {
        if !self.is_ancestor(scope, pending[first].scope) {
            return;
        }
        pending[first].scope = scope;
        let mut at = first + 1;
        while at < pending.len() {
            if !self.overlap(pending[at].scope, scope) {
                at += 1;
                continue;
            }
            let other = pending.swap_remove(at);
            let first = &mut pending[first];
            if first.leader.is_none() {
                first.leader = other.leader;
            } else if let Some(leader) = other.leader {
                leader.go.set();
                first.swallowed.push(leader);
            }
            first.swallowed.extend(other.swallowed);
            first.guests.extend(other.guests);
        }
    }

    fn begin(&self, turns: &mut Turns<M>, scope: u32) -> u64 {
        // Bounded waiting: no turn overtakes a pending one that it overlaps.
        debug_assert!(
            turns
                .pending
                .iter()
                .map(|pending| pending.scope)
                .chain(turns.running.iter().map(|running| running.scope))
                .all(|other| !self.overlap(other, scope)),
            "turns of overlapping scopes overlap, or one overtakes another"
        );
        turns.next += 1;
        let number = turns.next;
        turns.running.push(Running {
            scope,
            number,
            tickets: Vec::new(),
            guest: None,
            guests: VecDeque::new(),
        });
        number
    }

    /// Scope and number of the flush that the ticket's holder leads now; `None` if another flush swallowed it.
    fn start(&self, ticket: &Arc<Ticket<M>>) -> Option<(u32, u64)> {
        let turns = self.combiner.turns.lock();
        let leads = |running: &&Running<M>| {
            running
                .tickets
                .first()
                .is_some_and(|first| Arc::ptr_eq(first, ticket))
        };
        turns
            .running
            .iter()
            .find(leads)
            .map(|running| (running.scope, running.number))
    }

    /// Number of the turn that the ticket's holder has as a guest.
    fn turn_of_guest(&self, ticket: &Arc<Ticket<M>>) -> u64 {
        let turns = self.combiner.turns.lock();
        let is_its = |running: &&Running<M>| {
            let guest = running.guest.as_ref();
            guest.is_some_and(|guest| Arc::ptr_eq(guest, ticket))
        };
        let running = turns.running.iter().find(is_its);
        running.expect("the turn was passed on to it").number
    }

    fn run(&self, scope: u32) {
        let count = if scope == ROOT {
            &self.combiner.root
        } else {
            &self.combiner.subtree
        };
        count.fetch_add(1, Order::Relaxed);
        self.flush_exclusively(scope);
    }

    /// Ends a flush or a guest's work. Readers that waited for the flush return, and the next guest has the turn. After
    /// the last guest, pending flushes start that only this turn held up.
    fn finish(&self, number: u64) {
        let mut turns = self.combiner.turns.lock();
        let at = turns
            .running
            .iter()
            .position(|running| running.number == number);
        let at = at.expect("a turn ends once, and its task ends it");
        let running = &mut turns.running[at];
        let done = std::mem::take(&mut running.tickets);
        if !running.pass_on() {
            turns.running.swap_remove(at);
            self.start_pending(&mut turns);
        }
        drop(turns);
        done.iter().for_each(|ticket| ticket.done.set());
    }

    fn start_pending(&self, turns: &mut Turns<M>) {
        let mut at = 0;
        while at < turns.pending.len() {
            let scope = turns.pending[at].scope;
            if turns
                .running
                .iter()
                .any(|running| self.overlap(running.scope, scope))
            {
                at += 1;
                continue;
            }
            let pending = turns.pending.swap_remove(at);
            let number = self.begin(turns, scope);
            let started = turns.running.last_mut().expect("just begun");
            debug_assert_eq!(started.number, number);
            started.guests = pending.guests;
            match pending.leader {
                Some(leader) => {
                    leader.go.set();
                    started.tickets.push(leader);
                    started.tickets.extend(pending.swallowed);
                }
                // Only guests wait: no flush is wanted.
                None => {
                    started.pass_on();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use bursar_machine::Host;

    use super::*;
    use crate::stats::{FlushPolicy, Layout};

    fn tree() -> Tree<Host> {
        let machine = Host::start().expect("the host starts");
        let layout = Layout::new(&[], machine.nodes()).expect("no statistics");
        Tree::new(machine, layout, FlushPolicy::Combining, Duration::MAX).expect("a root")
    }

    /// Turns that are wanted and have not begun.
    fn waiting(tree: &Tree<Host>) -> usize {
        let turns = tree.combiner.turns.lock();
        let wanted = turns
            .pending
            .iter()
            .map(|pending| pending.guests.len() + usize::from(pending.leader.is_some()));
        wanted.sum()
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        while !is_so() {
            thread::yield_now();
        }
    }

    /// Readers that return as soon as they have been served do not overtake the end of a group.
    #[test]
    fn the_end_of_a_group_waits_for_one_flush_after_what_runs() {
        for _ in 0..200 {
            let tree = &tree();
            let has_ended = &AtomicBool::new(false);
            thread::scope(|scope| {
                tree.exclusively(ROOT, || {
                    scope.spawn(|| {
                        tree.flush(ROOT);
                        // The flush whose guest it was is done. The next flush comes after its turn.
                        tree.flush(ROOT);
                        assert!(has_ended.load(Ordering::SeqCst), "overtaken by a flush");
                    });
                    wait_until(|| waiting(tree) == 1);
                    scope.spawn(|| {
                        tree.exclusively(ROOT, || has_ended.store(true, Ordering::SeqCst));
                    });
                    wait_until(|| waiting(tree) == 2);
                });
            });
        }
    }

    /// Guests that come first need no flush. A reader that comes then brings one, and they have their turns after it.
    #[test]
    fn guests_have_their_turns_one_by_one() {
        let tree = &tree();
        let (inside, had) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
        let work = move || {
            assert_eq!(
                inside.fetch_add(1, Ordering::SeqCst),
                0,
                "two have the turn"
            );
            thread::yield_now();
            inside.fetch_sub(1, Ordering::SeqCst);
            had.fetch_add(1, Ordering::SeqCst);
        };
        thread::scope(|scope| {
            tree.exclusively(ROOT, || {
                for count in 1..=4 {
                    scope.spawn(move || tree.exclusively(ROOT, work));
                    wait_until(|| waiting(tree) == count);
                }
            });
        });
        let flushes = tree.combiner.counts().root;
        assert_eq!((had.load(Ordering::SeqCst), flushes), (4, 0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || (0..100).for_each(|_| tree.exclusively(ROOT, work)));
                scope.spawn(|| (0..100).for_each(|_| tree.flush(ROOT)));
            }
        });
        assert_eq!(had.load(Ordering::SeqCst), 404);
        assert_eq!(waiting(tree), 0);
    }
}
