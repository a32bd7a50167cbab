//! Polling futures in the tasks of a machine: a task that finds one pending sleeps until it is woken.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bursar_machine::Machine;
use bursar_rig::bed::Bed;

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
