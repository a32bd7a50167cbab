//! Locks that record their holder, the start of the hold, and the times of holds and waits.
//!
//! The records lie beside the lock or under it, so they cost the holder two looks at the clock and no line that others
//! write. Plain words that only the holder writes name the holder ([`HolderWords`]). They are the host's words on every machine:
//! a simulated machine charges no time for them, and only reports depend on them. A look from outside may find a holder that has
//! just gone, never one that was not there.

#[cfg(test)]
mod tests;

use std::ops::{Deref, DerefMut};

use bursar_machine::host::HostWord;
use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::histogram::Histogram;

/// Work of a lock's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// Taking pages.
    Alloc,
    /// Giving pages back.
    Free,
    /// Emptying per-CPU lists.
    Drain,
    /// Giving memory back to the system.
    Return,
    /// Reading for a report.
    Report,
}

impl Work {
    const ALL: [Self; 5] = [
        Self::Alloc,
        Self::Free,
        Self::Drain,
        Self::Return,
        Self::Report,
    ];

    /// Name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alloc => "taking pages",
            Self::Free => "giving pages back",
            Self::Drain => "emptying per-CPU lists",
            Self::Return => "returning memory to the system",
            Self::Report => "reporting",
        }
    }
}

/// Holder of a lock, and the start of its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The holder's [`Machine::task`].
    pub task: u64,
    /// CPU on which it took the lock; the number of CPUs if it had none of its own.
    pub cpu: u32,
    /// Its work.
    pub work: Work,
    /// [`Machine::now_ns`] at which it took the lock.
    pub since_ns: u64,
}

/// Value that a lock guards, with the lock's times.
pub(super) struct Timed<T> {
    value: T,
    pub(super) holds: Histogram,
    pub(super) waits: Histogram,
    /// Pages put in under each hold that put any in.
    pub(super) given: Histogram,
}

/// Words that show a lock's holder to others. Only the holder writes them.
struct HolderWords<W> {
    /// Work (bits 0-7) and CPU (8-39) of the holder; holds so far (40-63).
    what: W,
    since_ns: W,
    /// 0 while nobody holds the lock.
    task: W,
}

impl<W: AtomicWord> HolderWords<W> {
    fn new() -> Self {
        Self {
            what: W::new(0),
            since_ns: W::new(0),
            task: W::new(0),
        }
    }

    /// Shows a new holder.
    fn enter(&self, holder: Holder) {
        // Relaxed: the lock shows us the holder before.
        let holds = (self.what.load(MemoryOrder::Relaxed) >> 40) + 1;
        let what = holds << 40 | u64::from(holder.cpu) << 8 | holder.work as u64;
        // Release, all: pair with the Acquires in `look`. A look that sees one of them also sees what was written before it.
        self.what.store(what, MemoryOrder::Release);
        self.since_ns.store(holder.since_ns, MemoryOrder::Release);
        self.task.store(holder.task, MemoryOrder::Release);
    }

    /// The holder goes.
    fn leave(&self) {
        // Relaxed: the next `enter` releases this store, too.
        self.task.store(0, MemoryOrder::Relaxed);
    }

    /// The holder, unless it changes at this moment.
    ///
    /// Each load sees a hold that is no older than the load before it saw. If the first and the last see one hold, all do. The number
    /// of holds tells them apart, unless 2^24 holds pass during a look.
    fn look(&self) -> Option<Holder> {
        // Acquire, all: pair with the Releases in `enter`.
        let what = self.what.load(MemoryOrder::Acquire);
        let task = self.task.load(MemoryOrder::Acquire);
        let since_ns = self.since_ns.load(MemoryOrder::Acquire);
        // Relaxed: no load follows it.
        let is_same = self.what.load(MemoryOrder::Relaxed) == what;
        (task != 0 && is_same).then(|| Holder {
            task,
            cpu: (what >> 8) as u32,
            work: Work::ALL[(what & 0xff) as usize],
            since_ns,
        })
    }
}

/// A lock that knows its holder.
pub(super) struct KnownLock<L> {
    lock: L,
    holder: HolderWords<HostWord>,
    waiting: HostWord,
}

/// Holds a [`KnownLock`].
pub(super) struct Hold<'a, M: Machine, T: Send + 'static, L: Lock<Timed<T>> + 'static> {
    guard: L::Guard<'a>,
    lock: &'a KnownLock<L>,
    machine: &'a M,
    since_ns: u64,
    given_pages: u64,
}

impl<L> KnownLock<L> {
    pub(super) fn new<T: Send>(value: T) -> Self
    where
        L: Lock<Timed<T>>,
    {
        Self {
            lock: L::new(Timed {
                value,
                holds: Histogram::default(),
                waits: Histogram::default(),
                given: Histogram::default(),
            }),
            holder: HolderWords::new(),
            waiting: HostWord::new(0),
        }
    }

    pub(super) fn lock<'a, M: Machine, T: Send + 'static>(
        &'a self,
        machine: &'a M,
        work: Work,
    ) -> Hold<'a, M, T, L>
    where
        L: Lock<Timed<T>> + 'static,
    {
        if let Some(hold) = self.try_lock(machine, work) {
            return hold;
        }
        // Relaxed, here and below: for reports.
        self.waiting.fetch_add(1, MemoryOrder::Relaxed);
        let begin_ns = machine.now_ns();
        let mut guard = self.lock.lock();
        self.waiting.fetch_sub(1, MemoryOrder::Relaxed);
        let since_ns = machine.now_ns();
        guard.waits.record(since_ns - begin_ns);
        self.hold(guard, machine, work, since_ns)
    }

    pub(super) fn try_lock<'a, M: Machine, T: Send + 'static>(
        &'a self,
        machine: &'a M,
        work: Work,
    ) -> Option<Hold<'a, M, T, L>>
    where
        L: Lock<Timed<T>> + 'static,
    {
        let guard = self.lock.try_lock()?;
        Some(self.hold(guard, machine, work, machine.now_ns()))
    }

    fn hold<'a, M: Machine, T: Send + 'static>(
        &'a self,
        guard: L::Guard<'a>,
        machine: &'a M,
        work: Work,
        since_ns: u64,
    ) -> Hold<'a, M, T, L>
    where
        L: Lock<Timed<T>> + 'static,
    {
        self.holder.enter(Holder {
            task: machine.task(),
            cpu: machine.current_shard().0,
            work,
            since_ns,
        });
        Hold {
            guard,
            lock: self,
            machine,
            since_ns,
            given_pages: 0,
        }
    }

    /// Approximate number of waiters.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(MemoryOrder::Relaxed)
    }

    /// Holder, as far as it can be seen, and number of waiters.
    pub(super) fn holder(&self) -> Option<(Holder, u64)> {
        let holder = self.holder.look()?;
        Some((holder, self.waiting()))
    }
}

impl<M: Machine, T: Send + 'static, L: Lock<Timed<T>>> Hold<'_, M, T, L> {
    /// Time since the hold began, nanoseconds.
    pub(super) fn held_ns(&self) -> u64 {
        self.machine.now_ns() - self.since_ns
    }

    /// Notes that pages were put in.
    pub(super) fn gave(&mut self, pages: u32) {
        self.given_pages += u64::from(pages);
    }

    /// Pages put in so far under each hold that put any in.
    pub(super) fn given(&self) -> &Histogram {
        &self.guard.given
    }

    /// Times of holds and waits so far, without this hold's.
    pub(super) fn times(&self) -> (&Histogram, &Histogram) {
        (&self.guard.holds, &self.guard.waits)
    }
}

impl<M: Machine, T: Send + 'static, L: Lock<Timed<T>>> Deref for Hold<'_, M, T, L> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard.value
    }
}

impl<M: Machine, T: Send + 'static, L: Lock<Timed<T>>> DerefMut for Hold<'_, M, T, L> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard.value
    }
}

impl<M: Machine, T: Send + 'static, L: Lock<Timed<T>> + 'static> Drop for Hold<'_, M, T, L> {
    fn drop(&mut self) {
        let held_ns = self.held_ns();
        self.guard.holds.record(held_ns);
        if self.given_pages > 0 {
            self.guard.given.record(self.given_pages);
        }
        self.lock.holder.leave();
    }
}
