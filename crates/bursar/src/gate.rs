//! A gate: lets operations in, or one task that closes it.
//!
//! Each group has two for its charges. *Operations* that change counters pass the gates of their group and of all groups above. A
//! task that is about to refuse a charge closes the gate of the limit in its way. *Drains* enter the gates above their scope and
//! close the gate of the scope. So drains of overlapping subtrees take turns, and drains of disjoint ones do not meet.
//!
//! A drain counts itself in at each gate. An operation takes the word of its CPU instead, if that is free, and writes its group there. So
//! it counts itself in once, whatever its depth, and CPUs do not meet. At its group and at each group above it marks the CPU, unless
//! the mark is there already. If another operation has the word (its task was preempted, or a signal handler runs), it counts itself
//! in at each gate.
//!
//! A task that closes a group to operations takes the marks of that group, and waits until no marked CPU's word has an operation at
//! or below the group, and until the gate is empty. It never waits for an operation elsewhere. It looks only at CPUs where an
//! operation began since the last closing: otherwise each of many refusals would fetch a line of every CPU.
//!
//! The tree has one gate for the ends of groups, which a snapshot closes while it walks.
//!
//! Code inside a gate never waits for code outside. A task that finds a gate closed leaves all gates and waits outside.

use std::sync::Arc;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder, Shard};

use crate::apart::Apart;
use crate::room;

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
        // Full: pairs with `is_closed`. A task that finds the gate open sees what its closer wrote.
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
        // Relaxed, as in `give_way`: a count that is seen late costs this task a turn, and decides nothing else.
        self.arriving.fetch_add(1, MemoryOrder::Relaxed);
        Arriving(self)
    }

    /// Lets tasks that wait for the gate go first, if they come soon. The caller is inside of no gate, and has not closed this
    /// one.
    pub(crate) fn give_way(&self, machine: &M) {
        for round in 0..PATIENCE {
            // Relaxed: if the other goes first, `close` and `is_closed` keep the two apart.
            if self.arriving.load(MemoryOrder::Relaxed) == 0 {
                return;
            }
            // Never a sleep, which would make the turns much longer.
            machine.relax(round.min(bursar_machine::GIVE_WAY));
        }
    }

    /// Puts the gate right in a forked child: it is empty.
    pub(crate) fn forget_tasks(&self) {
        // Full, all: pair with nothing. The child has no other thread.
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
        // Relaxed: as in `arrive`.
        self.0.arriving.fetch_sub(1, MemoryOrder::Relaxed);
    }
}

/// Shards on which operations at or below a group have begun since the group was last closed.
pub(crate) struct Begun<M: Machine>(Box<[M::Word]>);

impl<M: Machine> Begun<M> {
    /// Returns an open gate for `shards` shards and the extra one.
    /// `None` if there is no memory for it.
    pub(crate) fn new(shards: u32) -> Option<Self> {
        let words = (shards / u64::BITS) as usize + 1;
        room::boxed(words, || M::Word::new(0)).map(Self)
    }

    /// Marks a shard whose word an operation has taken.
    pub(crate) fn mark(&self, Shard(shard): Shard) {
        let word = &self.0[(shard / u64::BITS) as usize];
        let bit = 1 << (shard % u64::BITS);
        // Full, both: after taking the word, and before the look whether the group is closed. If we find the mark of another
        // operation, a closer that takes it comes later, and finds our word taken. If the closer came first, the mark is gone.
        if word.load(MemoryOrder::Full) & bit == 0 {
            word.fetch_or(bit, MemoryOrder::Full);
        }
    }

    /// Takes the marks.
    fn take(&self) -> impl Iterator<Item = Shard> + '_ {
        self.0.iter().zip(0..).flat_map(|(word, at)| {
            // Full, both: pair with `mark`.
            let mut bits = match word.load(MemoryOrder::Full) {
                0 => 0,
                _ => word.swap(0, MemoryOrder::Full),
            };
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(Shard(at * u64::BITS + bit))
            })
        })
    }
}

/// Word of each shard: 0, or 1 and the group of the operation that has the word.
pub(crate) struct Operations<M: Machine>(Box<[Apart<M::Word>]>);

impl<M: Machine> Operations<M> {
    /// `None` if there is no memory for it.
    pub(crate) fn new(machine: &M) -> Option<Self> {
        room::boxed(machine.cpus() + 1, || Apart(M::Word::new(0))).map(Self)
    }

    /// Takes the word of a shard for an operation at a group, if it is free. The caller looks next whether the group, or one
    /// above, is closed.
    pub(crate) fn take(&self, shard: Shard, index: u32) -> Option<&M::Word> {
        let word: &M::Word = &self.0[shard.0 as usize];
        let taken = u64::from(index) + 1;
        // Full: pairs with `wait_for`. If we come first, the closer waits for us. If the closing comes first, we see it.
        let before = word.compare_exchange(0, taken, MemoryOrder::Full);
        before.is_ok().then_some(word)
    }

    /// Gives a word back.
    pub(crate) fn give_back(word: &M::Word) {
        // Release: pairs with the load in `wait_for`, and with `take` of the next operation, whose word a closer may see. A closer
        // that sees us gone sees our writes.
        word.store(0, MemoryOrder::Release);
    }

    /// Waits until no marked shard has an operation at a group of which `is_below` says that it is closed. Call after closing it.
    pub(crate) fn wait_for(&self, machine: &M, begun: &Begun<M>, is_below: impl Fn(u32) -> bool) {
        for shard in begun.take() {
            // Full: pairs with `take`.
            let is_elsewhere = || match self.0[shard.0 as usize].load(MemoryOrder::Full) {
                0 => true,
                taken => !is_below((taken - 1) as u32),
            };
            bursar_machine::busy_wait(is_elsewhere, |round| machine.relax(round));
        }
    }

    /// Forgets operations of tasks that a forked child does not have.
    pub(crate) fn forget_tasks(&self) {
        for word in &self.0 {
            // Full: pairs with nothing, as in [`Gate::forget_tasks`].
            word.store(0, MemoryOrder::Full);
        }
    }
}
