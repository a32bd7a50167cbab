//! Locks and events of a machine.

use core::ops::{Deref, DerefMut};

/// Lock around a `T`. Every machine offers a sleeping and a spinning kind ([`crate::Machine::Mutex`],
/// [`crate::Machine::Spin`]).
///
/// Both count the acquisitions that found the lock taken, because *that* is what the experiments measure. The
/// uncontended path counts nothing.
pub trait Lock<T: Send>: Send + Sync {
    /// Guard of the lock; its drop releases the lock.
    type Guard<'a>: Deref<Target = T> + DerefMut
    where
        Self: 'a;

    /// Makes an unlocked lock.
    fn new(value: T) -> Self;
    /// Waits for the lock and takes it.
    fn lock(&self) -> Self::Guard<'_>;
    /// Takes the lock if that needs no waiting.
    fn try_lock(&self) -> Option<Self::Guard<'_>>;
    /// Begins to bring the lock's line here for an acquisition that follows, and does not wait for it. Changes nothing but time.
    #[inline]
    fn prefetch(&self) {}
    /// Number of acquisitions by [`Lock::lock`] that had to wait so far.
    fn waits(&self) -> u64;
}

/// Event that happens once and that any number of tasks may wait for (the kernel's completion).
#[doc(alias = "completion")]
pub trait Event: Send + Sync {
    /// Makes an event that has not happened.
    fn new() -> Self;
    /// Makes the event happen: every present and future [`Event::wait`] returns.
    ///
    /// Writes before `set` are visible after `wait`.
    #[doc(alias = "complete_all")]
    fn set(&self);
    /// Waits until the event has happened.
    #[doc(alias = "wait_for_completion")]
    fn wait(&self);
}

/// Times that a task has waited for locks, nanoseconds, including the transfer of the lock's line to the CPU. Locks
/// that were free at once are not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWaits {
    /// Waits for [`crate::Machine::Spin`].
    pub spin_ns: u64,
    /// Waits for [`crate::Machine::Mutex`].
    pub sleep_ns: u64,
}

impl LockWaits {
    /// Sum of both.
    pub fn all_ns(self) -> u64 {
        self.spin_ns + self.sleep_ns
    }

    /// Waits since an earlier reading.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            spin_ns: self.spin_ns - before.spin_ns,
            sleep_ns: self.sleep_ns - before.sleep_ns,
        }
    }
}
