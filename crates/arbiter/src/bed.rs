//! A thread that waits for a future.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Wake;
use std::time::Duration;

/// Place where a thread waits to be woken.
#[derive(Default)]
pub(crate) struct Bed {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Bed {
    pub(crate) fn sleep(&self, at_most: Duration) {
        let woken = self.is_woken.lock().unwrap_or_else(PoisonError::into_inner);
        let slept = self
            .woken
            .wait_timeout_while(woken, at_most, |woken| !*woken);
        *slept.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

impl Wake for Bed {
    fn wake(self: Arc<Self>) {
        *self.is_woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken.notify_one();
    }
}
