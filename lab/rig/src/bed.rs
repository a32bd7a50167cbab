//! A place where a task sleeps until a waker wakes it, for futures that the tasks of a machine poll.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

use bursar_machine::{Event, Machine};

/// Place where one task sleeps. Its waker wakes that task.
pub struct Bed<M: Machine>(Mutex<Sleep<M>>);

struct Sleep<M: Machine> {
    is_woken: bool,
    /// A fresh event for each sleep, because an event happens once.
    woken: Option<Arc<M::Event>>,
}

impl<M: Machine> Bed<M> {
    /// Makes a place where nobody sleeps yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Sleep {
            is_woken: false,
            woken: None,
        })))
    }

    // Not the machine's lock: nothing of the machine happens while it is held.
    fn sleep(&self) -> MutexGuard<'_, Sleep<M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until another task has woken it since the last time.
    pub fn wait(&self) {
        let woken = {
            let mut sleep = self.sleep();
            (!sleep.is_woken).then(|| {
                let woken = Arc::new(M::Event::new());
                sleep.woken = Some(woken.clone());
                woken
            })
        };
        if let Some(woken) = woken {
            woken.wait();
        }
        self.sleep().is_woken = false;
    }
}

impl<M: Machine> Wake for Bed<M> {
    fn wake(self: Arc<Self>) {
        let woken = {
            let mut sleep = self.sleep();
            sleep.is_woken = true;
            sleep.woken.take()
        };
        if let Some(woken) = woken {
            woken.set();
        }
    }
}

impl<M: Machine> fmt::Debug for Bed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bed").finish_non_exhaustive()
    }
}
