//! Words, locks and completions of the host.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use super::fork::{self, HostOperation};
use super::time::{now_ns, relax};
use crate::{AtomicWord, Event, Lock, LockWaits, MemoryOrder};

/// Atomic word of the host.
#[derive(Debug)]
#[repr(transparent)]
pub struct HostWord(AtomicU64);

/// The fence on either side of a `Full` access. On x86-64 `Full` stores and updates are fences by themselves, and loads have none: only a
/// weaker write before one would need it. Elsewhere a sequentially consistent access orders only itself among its kind, so the fences are
/// of their own, as on the machine of loom.
#[inline]
fn fence_if_full(order: MemoryOrder) {
    if cfg!(not(target_arch = "x86_64")) && order == MemoryOrder::Full {
        // SeqCst: pairs with the fences of the other `Full` accesses.
        fence(Ordering::SeqCst);
    }
}

/// Makes a store or an update. A `Full` load has no fence behind it: it acquires, which orders all that follows.
#[inline]
fn fenced<R>(order: MemoryOrder, write: impl FnOnce() -> R) -> R {
    fence_if_full(order);
    let result = write();
    fence_if_full(order);
    result
}

#[inline]
fn loads(order: MemoryOrder) -> Ordering {
    fence_if_full(order);
    // Acquire, Release, and SeqCst for Full: the caller names what they pair with.
    match order {
        MemoryOrder::Relaxed => Ordering::Relaxed,
        MemoryOrder::Acquire => Ordering::Acquire,
        MemoryOrder::Release | MemoryOrder::Full => Ordering::SeqCst,
    }
}

#[inline]
fn stores(order: MemoryOrder) -> Ordering {
    // Acquire, Release, and SeqCst for Full: the caller names what they pair with.
    match order {
        MemoryOrder::Relaxed => Ordering::Relaxed,
        MemoryOrder::Release => Ordering::Release,
        MemoryOrder::Acquire | MemoryOrder::Full => Ordering::SeqCst,
    }
}

#[inline]
fn updates(order: MemoryOrder) -> Ordering {
    // Acquire, Release, and SeqCst for Full: the caller names what they pair with.
    match order {
        MemoryOrder::Relaxed => Ordering::Relaxed,
        MemoryOrder::Acquire => Ordering::Acquire,
        MemoryOrder::Release => Ordering::Release,
        MemoryOrder::Full => Ordering::SeqCst,
    }
}

impl AtomicWord for HostWord {
    #[inline]
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }
    #[inline]
    fn load(&self, order: MemoryOrder) -> u64 {
        self.0.load(loads(order))
    }
    #[inline]
    fn store(&self, value: u64, order: MemoryOrder) {
        fenced(order, || self.0.store(value, stores(order)));
    }
    #[inline]
    fn prefetch(&self) {
        prefetch(ptr::from_ref(self).cast(), Intent::Load);
    }
    #[inline]
    fn swap(&self, value: u64, order: MemoryOrder) -> u64 {
        fenced(order, || self.0.swap(value, updates(order)))
    }
    #[inline]
    fn fetch_add(&self, value: u64, order: MemoryOrder) -> u64 {
        fenced(order, || self.0.fetch_add(value, updates(order)))
    }
    #[inline]
    fn fetch_or(&self, bits: u64, order: MemoryOrder) -> u64 {
        fenced(order, || self.0.fetch_or(bits, updates(order)))
    }
    #[inline]
    fn fetch_and(&self, bits: u64, order: MemoryOrder) -> u64 {
        fenced(order, || self.0.fetch_and(bits, updates(order)))
    }
    #[inline]
    fn compare_exchange(&self, current: u64, new: u64, order: MemoryOrder) -> Result<u64, u64> {
        // Acquire, and SeqCst for Full: the caller names what they pair with.
        let failure = match order {
            MemoryOrder::Full => Ordering::SeqCst,
            _ => Ordering::Acquire,
        };
        let exchange = || {
            self.0
                .compare_exchange(current, new, updates(order), failure)
        };
        fenced(order, exchange)
    }
}

/// Purpose of a line that is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Intent {
    Load,
    Change,
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(at: *const i8, intent: Intent) {
    use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
    // SAFETY: a hint, which reads nothing and cannot fault, whatever the address.
    unsafe {
        match intent {
            Intent::Load => _mm_prefetch::<_MM_HINT_T0>(at),
            Intent::Change => _mm_prefetch::<_MM_HINT_ET0>(at),
        }
    }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn prefetch(at: *const i8, intent: Intent) {
    use std::arch::asm;
    // SAFETY: a hint, which reads nothing and cannot fault, whatever the address.
    unsafe {
        match intent {
            Intent::Load => {
                asm!("prfm pldl1keep, [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly));
            }
            Intent::Change => {
                asm!("prfm pstl1keep, [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly));
            }
        }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
fn prefetch(_: *const i8, _: Intent) {}

thread_local! {
    /// Waits of this thread. Plain numbers: no task has to clear them, and no protocol depends on them.
    static LOCK_WAITS: Cell<LockWaits> = const { Cell::new(LockWaits { spin_ns: 0, sleep_ns: 0 }) };
}

/// Times that this thread has waited for locks so far.
pub fn lock_waits() -> LockWaits {
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
        Self::of(value)
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

    #[inline]
    fn prefetch(&self) {
        prefetch(ptr::from_ref(&self.mutex).cast(), Intent::Change);
    }

    fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

impl<T> HostMutex<T> {
    /// Makes a lock, also of a static value.
    pub const fn of(value: T) -> Self {
        Self {
            mutex: Mutex::new(value),
            waits: AtomicU64::new(0),
        }
    }

    fn try_take(&self) -> Option<MutexGuard<'_, T>> {
        match self.mutex.try_lock() {
            Ok(value) => Some(value),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// Spinning lock.
pub struct HostSpin<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
    waits: AtomicU64,
}

// SAFETY: the value is reached through a guard only, and one guard exists at a time, so threads hand the value to one another.
unsafe impl<T: Send> Sync for HostSpin<T> {}

// As a mutex is: a panic under one of our locks is a bug that has been reported already, and the value stays readable.
impl<T> RefUnwindSafe for HostSpin<T> {}
impl<T> UnwindSafe for HostSpin<T> {}

impl<T> fmt::Debug for HostSpin<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostSpin")
            .field("taken", &self.taken)
            .field("waits", &self.waits)
            .finish_non_exhaustive()
    }
}

/// Guard of a [`HostSpin`].
pub struct HostSpinGuard<'a, T> {
    lock: &'a HostSpin<T>,
    /// The guard gives out `&mut T` to its own thread only.
    _value: PhantomData<&'a mut T>,
}

impl<T: fmt::Debug> fmt::Debug for HostSpinGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Deref for HostSpinGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: we took the lock and have not released it, so no other guard exists; ours is borrowed.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for HostSpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; ours is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for HostSpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `try_lock`.
        self.lock.taken.store(false, Ordering::Release);
    }
}

impl<T: Send + 'static> Lock<T> for HostSpin<T> {
    type Guard<'a> = HostSpinGuard<'a, T>;

    fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
            waits: AtomicU64::new(0),
        }
    }

    #[inline]
    fn lock(&self) -> Self::Guard<'_> {
        self.try_lock().unwrap_or_else(|| self.spin())
    }

    #[inline]
    fn try_lock(&self) -> Option<Self::Guard<'_>> {
        // Acquire: pairs with the Release in `HostSpinGuard::drop`.
        if self.taken.load(Ordering::Relaxed) || self.taken.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(HostSpinGuard {
            lock: self,
            _value: PhantomData,
        })
    }

    #[inline]
    fn prefetch(&self) {
        prefetch(ptr::from_ref(&self.taken).cast(), Intent::Change);
    }

    fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

impl<T: Send + 'static> HostSpin<T> {
    #[cold]
    fn spin(&self) -> HostSpinGuard<'_, T> {
        // Relaxed: a statistic.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn threads_take_turns_at<L: Lock<u64> + Sync>() {
        const THREADS: u64 = 4;
        const TURNS: u64 = 20_000;
        let lock = L::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..TURNS).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), THREADS * TURNS);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn threads_take_turns() {
        threads_take_turns_at::<HostMutex<u64>>();
        threads_take_turns_at::<HostSpin<u64>>();
    }

    /// `waited` tells the time of the kind of wait that the lock notes.
    fn waits_are_counted_and_timed_at<L: Lock<u64>>(waited: fn(LockWaits) -> u64) {
        let lock = L::new(0);
        // The clock begins with the process. Now a time of the clock is more than any wait here.
        crate::busy_wait(|| now_ns() > 10_000_000, relax);
        drop(lock.lock());
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert_eq!(lock.waits(), 0, "none had to wait");
        let mut rounds = 0;
        // A clock that ticks seldom may miss a wait.
        while !a_wait_is_timed(&lock, waited) {
            rounds += 1;
            assert_eq!(lock.waits(), rounds);
            assert!(rounds < 500, "no wait was timed");
        }
    }

    /// Lets one thread wait for the lock, and returns whether it has waited for some time.
    fn a_wait_is_timed<L: Lock<u64>>(lock: &L, waited: fn(LockWaits) -> u64) -> bool {
        let before = lock.waits();
        let held = lock.lock();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let began_ns = now_ns();
                drop(lock.lock());
                let waits = lock_waits();
                assert_eq!(waits.all_ns(), waited(waits), "no other kind");
                assert!(waited(waits) <= now_ns() - began_ns);
                waited(waits) > 0
            });
            crate::busy_wait(|| lock.waits() > before, relax);
            drop(held);
            waiter.join().unwrap()
        })
    }

    #[test]
    fn waits_are_counted_and_timed() {
        waits_are_counted_and_timed_at::<HostMutex<u64>>(|waits| waits.sleep_ns);
        waits_are_counted_and_timed_at::<HostSpin<u64>>(|waits| waits.spin_ns);
    }

    #[test]
    fn an_event_lets_all_go_on_once_it_has_happened() {
        const WAITERS: u64 = 2;
        let (event, began, happened) =
            (HostEvent::new(), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..WAITERS {
                scope.spawn(|| {
                    began.fetch_add(1, Ordering::Relaxed);
                    event.wait();
                    assert!(happened.load(Ordering::Relaxed), "it went on too soon");
                });
            }
            crate::busy_wait(|| began.load(Ordering::Relaxed) == WAITERS, relax);
            // They have time to go on too soon.
            (0..2 * crate::GIVE_WAY).for_each(relax);
            happened.store(true, Ordering::Relaxed);
            event.set();
        });
        event.wait();
    }
}
