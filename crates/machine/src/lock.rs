//! Locks and events of a machine.

use core::ops::{Deref, DerefMut};

/// A lock around a `T`. Every machine offers a sleeping and a spinning kind ([`crate::Machine::Mutex`],
/// [`crate::Machine::Spin`]).
///
/// Both count how often an acquisition found the lock taken, because *that* is what the experiments measure; the
/// uncontended path counts nothing.
pub trait Lock<T: Send>: Send + Sync {
    /// What holds the lock; dropping it releases the lock.
    type Guard<'a>: Deref<Target = T> + DerefMut
    where
        Self: 'a;

    /// An unlocked lock.
    fn new(value: T) -> Self;
    /// Waits for the lock and takes it.
    fn lock(&self) -> Self::Guard<'_>;
    /// Takes the lock if that needs no waiting.
    fn try_lock(&self) -> Option<Self::Guard<'_>>;
    /// How many acquisitions by [`Lock::lock`] had to wait so far.
    fn waits(&self) -> u64;
}

/// Something that happens once and that any number of tasks may wait for (the kernel's completion).
#[doc(alias = "completion")]
pub trait Event: Send + Sync {
    /// An event that has not happened.
    fn new() -> Self;
    /// Lets it happen: every present and future [`Event::wait`] returns.
    ///
    /// What happened before `set` is visible after `wait`.
    #[doc(alias = "complete_all")]
    fn set(&self);
    /// Waits until it has happened.
    #[doc(alias = "wait_for_completion")]
    fn wait(&self);
}
