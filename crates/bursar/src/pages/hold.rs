//! Locks that know who holds them, since when, and how long holders and waiters took.
//!
//! What is known stands beside the lock or under it, so that it costs the holder two looks at the clock and no line that
//! others write. Who holds it is told by plain words that only the holder writes: somebody who looks from outside may find a
//! holder that has just gone, never one that was not there.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::{Lock, Machine};

use super::histogram::Histogram;

/// What a lock's holder is doing.
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
    /// Looking.
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

    /// For reports.
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

/// Who holds a lock, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its [`Machine::task`].
    pub task: u64,
    /// The CPU that it was on when it took the lock; the number of CPUs if none of its own.
    pub cpu: u32,
    /// What it does.
    pub work: Work,
    /// [`Machine::now_ns`] when it took the lock.
    pub since_ns: u64,
}

/// What a lock guards, with its times.
pub(super) struct Timed<T> {
    value: T,
    pub(super) holds: Histogram,
    pub(super) waits: Histogram,
    /// Pages put in under each hold that put any in.
    pub(super) given: Histogram,
}

/// A lock that knows its holder.
pub(super) struct KnownLock<L> {
    lock: L,
    // Plain words, see the module: no protocol between CPUs rests on them.
    task: AtomicU64,
    since_ns: AtomicU64,
    /// The CPU and the work.
    what: AtomicU64,
    waiting: AtomicU64,
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
            task: AtomicU64::new(0),
            since_ns: AtomicU64::new(0),
            what: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
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
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let begin_ns = machine.now_ns();
        let mut guard = self.lock.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
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
        let cpu = u64::from(machine.current_shard().0);
        self.what.store(cpu << 8 | work as u64, Ordering::Relaxed);
        self.since_ns.store(since_ns, Ordering::Relaxed);
        // Release: whoever sees the task sees since when and what.
        self.task.store(machine.task(), Ordering::Release);
        Hold {
            guard,
            lock: self,
            machine,
            since_ns,
            given_pages: 0,
        }
    }

    /// How many wait for it, about.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Who holds it, as far as can be seen, and how many wait.
    pub(super) fn holder(&self) -> Option<(Holder, u64)> {
        // Acquire: pairs with the release in `hold`.
        let task = self.task.load(Ordering::Acquire);
        let what = self.what.load(Ordering::Relaxed);
        let holder = Holder {
            task,
            cpu: (what >> 8) as u32,
            work: Work::ALL[(what & 0xff) as usize],
            since_ns: self.since_ns.load(Ordering::Relaxed),
        };
        // Another holder by now: then not this one for long.
        let still = task != 0 && self.task.load(Ordering::Acquire) == task;
        still.then(|| (holder, self.waiting.load(Ordering::Relaxed)))
    }
}

impl<M: Machine, T: Send + 'static, L: Lock<Timed<T>>> Hold<'_, M, T, L> {
    /// How long it has been held, nanoseconds.
    pub(super) fn held_ns(&self) -> u64 {
        self.machine.now_ns() - self.since_ns
    }

    /// Says that pages were put in.
    pub(super) fn gave(&mut self, pages: u32) {
        self.given_pages += u64::from(pages);
    }

    /// Pages put in under each hold that put any in, so far.
    pub(super) fn given(&self) -> &Histogram {
        &self.guard.given
    }

    /// Times of holders and of waiters so far, without this one's.
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
        // Relaxed: see the module.
        self.lock.task.store(0, Ordering::Relaxed);
    }
}
