//! Who flushes and who waits: flushes of overlapping subtrees take turns, and those who want one share it.
//!
//! At any time the flushes that *run* have disjoint scopes, and so have those that are *pending*. A flush that is wanted
//! joins the pending one that overlaps it, which is widened if need be (and swallows the others that it then overlaps);
//! a running one is of no use to it, since that may have passed by already. So a reader waits for the flushes that run
//! when it comes, and for the one pending flush that contains its own: two durations of the largest overlapping scope.
//!
//! The lock below is held for a walk over these two short lists, never for a flush, so readers of disjoint subtrees wait
//! for one another in the combined fence only.

use std::sync::Arc;

use bursar_machine::{AtomicWord, Event, Lock, Machine, Order};

use super::{ROOT, Tree};

/// How flushes came about, since the memory was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlushCounts {
    /// Flushes of the whole tree.
    pub root: u64,
    /// Flushes of a subtree.
    pub subtree: u64,
    /// Reads that shared a flush which another had asked for.
    pub joined: u64,
    /// Fences passed.
    pub fences: u64,
}

struct Ticket<M: Machine> {
    /// The leader may start, or has nothing to do any more.
    go: M::Event,
    done: M::Event,
}

struct Pending<M: Machine> {
    scope: u32,
    ticket: Arc<Ticket<M>>,
    /// Those whose flush this one does as well.
    swallowed: Vec<Arc<Ticket<M>>>,
}

struct Running<M: Machine> {
    scope: u32,
    number: u64,
    /// Of a flush that was pending before: its leader's, then those it swallowed.
    tickets: Vec<Arc<Ticket<M>>>,
}

struct Turns<M: Machine> {
    running: Vec<Running<M>>,
    pending: Vec<Pending<M>>,
    next: u64,
}

/// See the module.
pub(crate) struct Combiner<M: Machine> {
    turns: M::Mutex<Turns<M>>,
    root: M::Word,
    subtree: M::Word,
    joined: M::Word,
    fences: M::Word,
}

enum Turn<M: Machine> {
    Run(u64),
    Lead(Arc<Ticket<M>>),
    Wait(Arc<Ticket<M>>),
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
        // Relaxed, here and below: statistics of the statistics.
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
    /// Returns after a flush of a scope that contains `scope` which began after this call.
    #[doc(alias = "css_rstat_flush")]
    pub(crate) fn flush(&self, scope: u32) {
        let number = match self.turn(scope) {
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
        };
        self.run(scope);
        self.finish(number);
    }

    /// Does `work` while no flush runs that overlaps `scope`.
    pub(crate) fn exclusively(&self, scope: u32, work: impl FnOnce()) {
        let number = loop {
            match self.turn(scope) {
                Turn::Run(number) => break number,
                Turn::Wait(ticket) => ticket.done.wait(),
                Turn::Lead(ticket) => {
                    ticket.go.wait();
                    let Some((scope, number)) = self.start(&ticket) else {
                        ticket.done.wait();
                        continue;
                    };
                    // Others may have joined: they get their flush first, and `work` what it came for, in one turn.
                    self.run(scope);
                    work();
                    return self.finish(number);
                }
            }
        };
        work();
        self.finish(number);
    }

    fn overlap(&self, one: u32, other: u32) -> bool {
        self.is_ancestor(one, other) || self.is_ancestor(other, one)
    }

    fn turn(&self, scope: u32) -> Turn<M> {
        let mut turns = self.combiner.turns.lock();
        let first = turns
            .pending
            .iter()
            .position(|pending| self.overlap(pending.scope, scope));
        if let Some(first) = first {
            if self.is_ancestor(scope, turns.pending[first].scope) {
                turns.pending[first].scope = scope;
                let mut at = first + 1;
                while at < turns.pending.len() {
                    if !self.overlap(turns.pending[at].scope, scope) {
                        at += 1;
                        continue;
                    }
                    let other = turns.pending.swap_remove(at);
                    other.ticket.go.set();
                    turns.pending[first].swallowed.push(other.ticket);
                    turns.pending[first].swallowed.extend(other.swallowed);
                }
            }
            return Turn::Wait(turns.pending[first].ticket.clone());
        }
        if turns
            .running
            .iter()
            .any(|running| self.overlap(running.scope, scope))
        {
            let ticket = Arc::new(Ticket {
                go: M::Event::new(),
                done: M::Event::new(),
            });
            turns.pending.push(Pending {
                scope,
                ticket: ticket.clone(),
                swallowed: Vec::new(),
            });
            return Turn::Lead(ticket);
        }
        Turn::Run(self.begin(&mut turns, scope))
    }

    fn begin(&self, turns: &mut Turns<M>, scope: u32) -> u64 {
        // Bounded waiting: whoever is pending is overtaken by none that overlaps it.
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
        });
        number
    }

    /// The scope and number of the flush that the ticket's holder leads now; `None` if another flush swallowed it.
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

    fn run(&self, scope: u32) {
        let count = if scope == ROOT {
            &self.combiner.root
        } else {
            &self.combiner.subtree
        };
        count.fetch_add(1, Order::Relaxed);
        self.flush_exclusively(scope);
    }

    /// Ends a turn: those who waited for it return, and pending flushes that only it held up start.
    fn finish(&self, number: u64) {
        let mut turns = self.combiner.turns.lock();
        let at = turns
            .running
            .iter()
            .position(|running| running.number == number);
        let ended = turns
            .running
            .swap_remove(at.expect("ended once, by whoever began it"));
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
            let number = self.begin(&mut turns, scope);
            let started = turns.running.last_mut().expect("just begun");
            debug_assert_eq!(started.number, number);
            pending.ticket.go.set();
            started.tickets.push(pending.ticket);
            started.tickets.extend(pending.swallowed);
        }
        drop(turns);
        ended.tickets.iter().for_each(|ticket| ticket.done.set());
    }
}
