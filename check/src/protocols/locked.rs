//! Locks of the host: nothing of the machine happens while they are held, and they cost no step.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what belongs to the scenario, also after a panic.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
