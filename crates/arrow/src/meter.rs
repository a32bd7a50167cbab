//! Charges of object stores, and what follows a refusal.

use std::future::{Future, poll_fn};
use std::mem::replace;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bursar::{Charge, ChargeAsync, ChargeError, Group};
use object_store::Result;
use tokio::task::AbortHandle;

/// Answer of a [`ChargedStore`](crate::ChargedStore) to a refused charge.
#[cfg_attr(docsrs, doc(cfg(feature = "object_store")))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnRefusal {
    /// The request fails at once. A scan of DataFusion passes the error on, so its query fails.
    #[default]
    Fail,
    /// The request waits for memory, and fails if there is none in time. It needs a runtime of tokio with a timer. Until then it is in the queue of its limit, also
    /// if its reader does not poll it. A stream may wait for bytes that its own reader holds: the time ends that, too.
    Wait(Duration),
}

/// A group, and what to do when it refuses.
#[derive(Clone)]
pub(crate) struct Meter {
    pub(crate) group: Group,
    pub(crate) on_refusal: OnRefusal,
}

impl Meter {
    /// Charges `bytes`, or waits for them, if it may.
    pub(crate) async fn charge(&self, bytes: u64) -> Result<Charge> {
        self.or_wait(self.group.try_charge(bytes), bytes).await
    }

    /// Waits, if it may, after the first attempt to charge `bytes` was refused.
    pub(crate) async fn or_wait(
        &self,
        first: Result<Charge, ChargeError>,
        bytes: u64,
    ) -> Result<Charge> {
        let charged = match (first, self.on_refusal) {
            (Err(ChargeError::LimitReached(_)), OnRefusal::Wait(patience)) => {
                // One that never fits is refused here at once.
                self.wait(bytes, patience).await
            }
            (first, _) => first,
        };
        charged.map_err(refused)
    }

    /// Waits. A timer of its own ends the wait in time, also if nobody polls this.
    async fn wait(&self, bytes: u64, patience: Duration) -> Result<Charge, ChargeError> {
        let place = Arc::new(Mutex::new(Wait::Waits(self.group.charge_async(bytes))));
        let timed = place.clone();
        let timer = tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            Wait::end(&timed);
        });
        let _timer = Timer(timer.abort_handle());
        let charged = poll_fn(|context| Wait::poll(&place, context));
        match tokio::time::timeout(patience, charged).await {
            Ok(charged) => charged,
            Err(_) => Err(poll_fn(|context| Wait::poll_end(&place, context)).await),
        }
    }
}

/// A wait, which its poller and its timer share.
enum Wait {
    Waits(ChargeAsync),
    /// It is being polled.
    Polled,
    /// Its time is over, and its poller or its timer gives it up.
    Late,
    GivenUp(ChargeError),
}

impl Wait {
    /// The wait, or its end; `None` while the timer ends it.
    fn take(place: &Mutex<Self>) -> Option<Result<ChargeAsync, ChargeError>> {
        let mut at = lock(place);
        match replace(&mut *at, Self::Polled) {
            Self::Waits(waiting) => Some(Ok(waiting)),
            Self::GivenUp(error) => Some(Err(error)),
            other => {
                *at = other;
                None
            }
        }
    }

    fn poll(place: &Mutex<Self>, context: &mut Context<'_>) -> Poll<Result<Charge, ChargeError>> {
        // Out of its place meanwhile: the poll runs the runtime's code.
        let mut waiting = match Self::take(place) {
            Some(Ok(waiting)) => waiting,
            Some(Err(error)) => return Poll::Ready(Err(error)),
            None => return soon(context),
        };
        let polled = Pin::new(&mut waiting).poll(context);
        if polled.is_ready() {
            return polled;
        }
        let mut at = lock(place);
        if matches!(*at, Self::Late) {
            drop(at);
            return Poll::Ready(Err(waiting.give_up()));
        }
        *at = Self::Waits(waiting);
        Poll::Pending
    }

    /// The end of a wait whose time is over.
    fn poll_end(place: &Mutex<Self>, context: &mut Context<'_>) -> Poll<ChargeError> {
        match Self::take(place) {
            Some(Ok(waiting)) => Poll::Ready(waiting.give_up()),
            Some(Err(error)) => Poll::Ready(error),
            None => soon(context),
        }
    }

    fn end(place: &Mutex<Self>) {
        let waiting = replace(&mut *lock(place), Self::Late);
        if let Self::Waits(waiting) = waiting {
            let error = waiting.give_up();
            *lock(place) = Self::GivenUp(error);
        }
    }
}

fn soon<T>(context: &mut Context<'_>) -> Poll<T> {
    context.waker().wake_by_ref();
    Poll::Pending
}

fn lock(place: &Mutex<Wait>) -> MutexGuard<'_, Wait> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A task that ends with the request.
struct Timer(AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn refused(error: ChargeError) -> object_store::Error {
    object_store::Error::Generic {
        store: "bursar",
        source: Box::new(error),
    }
}
