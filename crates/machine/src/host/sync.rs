//! Words, locks and completions of the host.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use super::fork::{self, HostOperation};
use super::now_ns;
use crate::timer::LockWaits;
use crate::{AtomicWord, Event, Lock, Order};

/// Atomic word of the host.
#[derive(Debug)]
#[repr(transparent)]
pub struct HostWord(AtomicU64);

#[inline]
fn loads(order: Order) -> Ordering {
    match order {
        Order::Relaxed => Ordering::Relaxed,
        Order::Acquire => Ordering::Acquire,
        Order::Release | Order::Full => Ordering::SeqCst,
    }
}

#[inline]
fn stores(order: Order) -> Ordering {
    match order {
        Order::Relaxed => Ordering::Relaxed,
        Order::Release => Ordering::Release,
        Order::Acquire | Order::Full => Ordering::SeqCst,
    }
}

#[inline]
fn updates(order: Order) -> Ordering {
    match order {
        Order::Relaxed => Ordering::Relaxed,
        Order::Acquire => Ordering::Acquire,
        Order::Release => Ordering::Release,
        Order::Full => Ordering::SeqCst,
    }
}

impl AtomicWord for HostWord {
    #[inline]
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    #[inline]
    fn load(&self, order: Order) -> u64 {
        self.0.load(loads(order))
    }
    #[inline]
    fn store(&self, value: u64, order: Order) {
        self.0.store(value, stores(order));
    }
    #[inline]
    fn swap(&self, value: u64, order: Order) -> u64 {
        self.0.swap(value, updates(order))
    }
    #[inline]
    fn fetch_add(&self, value: u64, order: Order) -> u64 {
        self.0.fetch_add(value, updates(order))
    }
    #[inline]
    fn fetch_or(&self, bits: u64, order: Order) -> u64 {
        self.0.fetch_or(bits, updates(order))
    }
    #[inline]
    fn fetch_and(&self, bits: u64, order: Order) -> u64 {
        self.0.fetch_and(bits, updates(order))
    }
    #[inline]
    fn compare_exchange(&self, current: u64, new: u64, order: Order) -> Result<u64, u64> {
        let failure = match order {
            Order::Full => Ordering::SeqCst,
            _ => Ordering::Acquire,
        };
        self.0
            .compare_exchange(current, new, updates(order), failure)
    }
}

/// Pauses: first for the sibling hyperthread, then for other threads, because the awaited thread may have been
/// preempted on this very CPU.
pub(super) fn relax(round: u32) {
    if round < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

thread_local! {
    /// Waits of this thread. Plain numbers: no task has to clear them, and no protocol depends on them.
    static LOCK_WAITS: Cell<LockWaits> = const { Cell::new(LockWaits { spin_ns: 0, sleep_ns: 0 }) };
}

/// Times that this thread has waited for locks so far.
pub(super) fn lock_waits() -> LockWaits {
    LOCK_WAITS.get()
}

fn note_wait(add: impl FnOnce(&mut LockWaits)) {
    let mut waits = LOCK_WAITS.get();
    add(&mut waits);
    LOCK_WAITS.set(waits);
}

/// Sleeping lock that counts the acquisitions that had to wait.
#[derive(Debug)]
pub struct HostMutex<T> {
    mutex: Mutex<T>,
    waits: AtomicU64,
}

/// Guard of a [`HostMutex`]. It is an operation: a fork waits until it is gone, so that no lock stays taken in the
/// child.
#[derive(Debug)]
pub struct HostMutexGuard<'a, T> {
    // In this order, so that the lock is free before the operation ends.
    value: MutexGuard<'a, T>,
    _operation: HostOperation,
}

impl<T> Deref for HostMutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for HostMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Send + 'static> Lock<T> for HostMutex<T> {
    type Guard<'a> = HostMutexGuard<'a, T>;

    fn new(value: T) -> Self {
        Self {
            mutex: Mutex::new(value),
            waits: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> Self::Guard<'_> {
        let operation = fork::operation();
        let value = self.try_take().unwrap_or_else(|| {
            // Relaxed: a statistic.
            self.waits.fetch_add(1, Ordering::Relaxed);
            let began_ns = now_ns();
            // A panic under one of our locks is a bug that has been reported already; the data stays readable.
            let value = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
            note_wait(|waits| waits.sleep_ns += now_ns() - began_ns);
            value
        });
        HostMutexGuard {
            value,
            _operation: operation,
        }
    }

    fn try_lock(&self) -> Option<Self::Guard<'_>> {
        let operation = fork::operation();
        let value = self.try_take()?;
        Some(HostMutexGuard {
            value,
            _operation: operation,
        })
    }

    fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

impl<T> HostMutex<T> {
    fn try_take(&self) -> Option<MutexGuard<'_, T>> {
        match self.mutex.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Spinning lock. Waiters spin on the flag; the mutex behind it only hands out the reference (and is never contended).
#[derive(Debug)]
pub struct HostSpin<T> {
    taken: AtomicBool,
    value: Mutex<T>,
    waits: AtomicU64,
}

/// Guard of a [`HostSpin`].
#[derive(Debug)]
pub struct HostSpinGuard<'a, T> {
    // Dropped before `taken` is cleared: `Drop for HostSpinGuard` runs first, so it drops this guard itself.
    value: Option<MutexGuard<'a, T>>,
    taken: &'a AtomicBool,
}

impl<T> Deref for HostSpinGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect("held until drop")
    }
}

impl<T> DerefMut for HostSpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("held until drop")
    }
}

impl<T> Drop for HostSpinGuard<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        // Release: pairs with the Acquire in `try_lock`.
        self.taken.store(false, Ordering::Release);
    }
}

impl<T: Send + 'static> Lock<T> for HostSpin<T> {
    type Guard<'a> = HostSpinGuard<'a, T>;

    fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            value: Mutex::new(value),
            waits: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> Self::Guard<'_> {
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        let began_ns = now_ns();
        let mut round = 0;
        loop {
            if let Some(guard) = self.try_lock() {
                note_wait(|waits| waits.spin_ns += now_ns() - began_ns);
                return guard;
            }
            relax(round);
            round = round.saturating_add(1);
        }
    }

    fn try_lock(&self) -> Option<Self::Guard<'_>> {
        // Acquire: pairs with the Release in `HostSpinGuard::drop`.
        if self.taken.load(Ordering::Relaxed) || self.taken.swap(true, Ordering::Acquire) {
            return None;
        }
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        Some(HostSpinGuard {
            value: Some(value),
            taken: &self.taken,
        })
    }

    fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

/// Completion of the host.
#[derive(Debug, Default)]
pub struct HostEvent {
    happened: Mutex<bool>,
    changed: Condvar,
}

impl Event for HostEvent {
    fn new() -> Self {
        Self::default()
    }

    fn set(&self) {
        *self.happened.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let guard = self.happened.lock().unwrap_or_else(PoisonError::into_inner);
        drop(
            self.changed
                .wait_while(guard, |happened| !*happened)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
}
