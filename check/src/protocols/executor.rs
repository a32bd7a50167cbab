//! Polling futures in the tasks of a machine: a task that finds one pending sleeps until it is woken.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};

use bursar_machine::{Event, Machine};

use super::locked::locked;
/// Place where one task sleeps.
pub(super) struct Bed<M: Machine>(Mutex<Sleep<M>>);

struct Sleep<M: Machine> {
    is_woken: bool,
    /// A fresh event for each sleep, because an event happens once.
    woken: Option<Arc<M::Event>>,
}

impl<M: Machine> Bed<M> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Sleep {
            is_woken: false,
            woken: None,
        })))
    }

    // Not the machine's lock: nothing of the machine happens while it is held.
    fn sleep(&self) -> MutexGuard<'_, Sleep<M>> {
        locked(&self.0)
    }

    /// Sleeps until another task has woken it since the last time.
    pub(super) fn wait(&self) {
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

/// Time for which a task waits for a future before it drops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Endless,
    /// Drops it after it was pending once.
    None,
    /// Drops it after it was pending once, and woken.
    UntilWoken,
}

/// Polls a future by `poll` until it is ready, or the patience ends.
pub(super) fn wait<M: Machine, R>(
    patience: Patience,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>,
) -> Option<R> {
    let bed = Bed::<M>::new();
    let waker = Waker::from(bed.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = poll(&mut context) {
            return Some(result);
        }
        if patience != Patience::None {
            bed.wait();
        }
        if patience != Patience::Endless {
            return None;
        }
    }
}

/// Polls a future until it is ready.
pub(super) fn block_on<M: Machine, F: Future + Unpin>(mut future: F) -> F::Output {
    let ready = wait::<M, _>(Patience::Endless, |context| {
        Pin::new(&mut future).poll(context)
    });
    ready.expect("patience is endless")
}
