//! A gate: lets operations in, or one task that closes it.
//!
//! Each group has two for its charges. *Operations* that change counters pass the gates of their group and of all groups above. A
//! task that is about to refuse a charge closes the gate of the limit in its way. *Drains* enter the gates above their scope and
//! close the gate of the scope. So drains of overlapping subtrees take turns, and drains of disjoint ones do not meet.
//!
//! A drain counts itself in at each gate. An operation usually has one word of its CPU instead (`limit/operations.rs`).
//!
//! The tree has one for the ends of groups, which a snapshot closes while it walks.
//!
//! Code inside a gate never waits for code outside. A task that finds a gate closed leaves all gates and waits outside.

use std::sync::Arc;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

/// Turns that [`Gate::give_way`] looks before it goes on, so that a task that gets no CPU holds up no other. Chosen, not
/// measured: 64 short pauses, and some thousand turns given to other tasks. A task that was woken needs a few.
const PATIENCE: u32 = 4096;

/// One gate of one group.
pub(crate) struct Gate<M: Machine> {
    /// Entries under way at or below the group.
    in_flight: M::Word,
    /// Tasks that have closed the gate.
    closed: M::Word,
    /// Tasks that waited here and have not tried again yet.
    arriving: M::Word,
    /// Made by the first task that waits. Happens when the gate opens.
    opened: M::Mutex<Option<Arc<M::Event>>>,
}

impl<M: Machine> Gate<M> {
    pub(crate) fn new() -> Self {
        Self {
            in_flight: M::Word::new(0),
            closed: M::Word::new(0),
            arriving: M::Word::new(0),
            opened: M::Mutex::new(None),
        }
    }

    /// Counts an entry. The caller looks at [`Gate::is_closed`] next, and leaves if it is.
    pub(crate) fn enter(&self) {
        // Full: pairs with `close`. If our count comes first, the closer waits for us. If the closing comes first, we see it.
        self.in_flight.fetch_add(1, MemoryOrder::Full);
    }

    pub(crate) fn exit(&self) {
        // Full: a closer that sees us gone sees our writes.
        self.in_flight.fetch_sub(1, MemoryOrder::Full);
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Full: pairs with `close`.
        self.closed.load(MemoryOrder::Full) != 0
    }

    /// Lets no entry in from now on, and waits for those inside to leave. Other tasks may have closed it, too.
    pub(crate) fn close(&self, machine: &M) {
        // Full: pairs with `enter`.
        self.closed.fetch_add(1, MemoryOrder::Full);
        bursar_machine::busy_wait(
            || self.in_flight.load(MemoryOrder::Full) == 0,
            |round| machine.relax(round),
        );
    }

    pub(crate) fn open(&self) {
        let mut opened = self.opened.lock();
        if self.closed.fetch_sub(1, MemoryOrder::Full) == 1
            && let Some(event) = opened.take()
        {
            bursar_machine::Event::set(&*event);
        }
    }

    /// Waits until the gate is open, if it is closed.
    pub(crate) fn wait_until_open(&self) {
        let event = {
            // Under the lock under which the gate opens: either the event is made before, or the gate is open.
            let mut opened = self.opened.lock();
            if !self.is_closed() {
                return;
            }
            let event = opened.get_or_insert_with(|| Arc::new(bursar_machine::Event::new()));
            event.clone()
        };
        bursar_machine::Event::wait(&*event);
    }

    /// Counts a task that is about to wait here, until the returned value is dropped: after it has tried again.
    pub(crate) fn arrive(&self) -> Arriving<'_, M> {
        self.arriving.fetch_add(1, MemoryOrder::Full);
        Arriving(self)
    }

    /// Lets tasks that wait for the gate go first, if they come soon. The caller is inside of no gate, and has not closed this
    /// one.
    pub(crate) fn give_way(&self, machine: &M) {
        for round in 0..PATIENCE {
            if self.arriving.load(MemoryOrder::Full) == 0 {
                return;
            }
            machine.relax(round);
        }
    }

    /// Puts the gate right in a forked child: it is empty.
    pub(crate) fn forget_tasks(&self) {
        debug_assert_eq!(
            self.closed.load(MemoryOrder::Full),
            0,
            "a drain is an operation"
        );
        self.in_flight.store(0, MemoryOrder::Full);
        self.arriving.store(0, MemoryOrder::Full);
    }
}

/// A task that waited for a gate and has not tried again yet.
pub(crate) struct Arriving<'a, M: Machine>(&'a Gate<M>);

impl<M: Machine> Drop for Arriving<'_, M> {
    fn drop(&mut self) {
        self.0.arriving.fetch_sub(1, MemoryOrder::Full);
    }
}
