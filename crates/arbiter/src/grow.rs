//! Waiting for memory while a query runs.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bursar::{Charge, ChargeError, Host, Machine};

use crate::arbiter::{Grant, State, Widener};
use crate::engine::Engine;
use crate::grow_error::GrowError;
use crate::ledger::{GrowNeed, Grown};

/// Number of times that others may take what was promised without a wait.
const TRIES: u32 = 4;

/// A query that waits for memory; see [`Grant::grow`]. Dropping it gives up.
///
/// # Panics
/// If polled after it was ready.
#[must_use = "a future does nothing unless it is polled"]
pub struct Grow<M: Machine = Host> {
    widener: Widener<M>,
    bytes: u64,
    /// Time since when it waits.
    since_ns: Option<u64>,
    state: State,
}

impl<M: Machine> fmt::Debug for Grow<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grow")
            .field("group", &self.widener.group)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> Unpin for Grow<M> {}

impl<M: Machine> Grant<M> {
    /// Charges `bytes` to the group. Waits while the memory is not there, and others may have to yield: see [yielding](crate#yielding).
    /// Tasks of one query may wait at once. The query counts as waiting while one of them does.
    ///
    /// # Errors
    /// [`GrowError`].
    pub fn grow(&self, bytes: u64) -> Grow<M> {
        Grow {
            widener: self.widener(),
            bytes,
            since_ns: None,
            state: State::New,
        }
    }

    /// Says who can be asked to give back memory of this query, or to end. Takes the place of the one before.
    pub fn attach(&self, engine: Arc<dyn Engine>) {
        let Widener { inner, grant, .. } = &self.widener;
        let before = inner.with(|ledger, _, _| ledger.attach(*grant, engine));
        // A user's code.
        drop(before);
    }
}

impl<M: Machine> Future for Grow<M> {
    type Output = Result<Charge<M>, GrowError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        assert!(this.state != State::Done, "polled after it was ready");
        let answer = this.poll_charge(context);
        if answer.is_ready() {
            this.end_wait();
            this.state = State::Done;
        }
        answer
    }
}

impl<M: Machine> Grow<M> {
    /// Polls the wait of that number. Ready means that the grant has what it waited for, or that a forked child asks anew.
    fn poll_wait(&self, number: u64, waker: &Waker) -> Poll<Result<(), GrowError>> {
        let Widener {
            inner,
            grant,
            group,
        } = &self.widener;
        // The first stores the waker before others are asked: they may answer at once.
        for is_last in [false, true] {
            // Runs the runtime's code, so before the lock.
            let waker = waker.clone();
            let polled =
                inner.with(|ledger, now_ns, after| ledger.poll_grow(number, waker, now_ns, after));
            match polled {
                Some(None) if is_last => return Poll::Pending,
                Some(None) => inner.relieve(),
                Some(Some(Err(error))) => return Poll::Ready(Err(error)),
                None | Some(Some(Ok(()))) => break,
            }
        }
        inner.settle(*grant, group);
        Poll::Ready(Ok(()))
    }

    fn poll_charge(&mut self, context: &mut Context<'_>) -> Poll<Result<Charge<M>, GrowError>> {
        let mut tries = 0;
        loop {
            if let State::Waiting(number) = self.state {
                match self.poll_wait(number, context.waker()) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            let charge = self.widener.group.try_charge(self.bytes);
            self.end_wait();
            let Widener {
                inner,
                grant,
                group,
            } = &self.widener;
            let needs_room = match charge {
                Ok(charge) => return Poll::Ready(Ok(charge)),
                Err(ChargeError::LimitReached(reached)) if tries < TRIES => {
                    reached.limited != group.path()
                }
                // Others charge what is promised, outside of all grants.
                Err(error) => return Poll::Ready(Err(GrowError::Charge(error))),
            };
            let need = GrowNeed {
                bytes: self.bytes,
                needs_room,
                since_ns: self.since_ns,
            };
            // Runs the runtime's code, so before the lock.
            let waker = context.waker().clone();
            let grown = inner.with(|ledger, now_ns, after| {
                (ledger.grow(*grant, need, waker, now_ns, after), now_ns)
            });
            match grown {
                (Ok(Grown::Now), _) => {
                    tries += 1;
                    inner.settle(*grant, group);
                }
                (Ok(Grown::Waits(number)), now_ns) => {
                    self.since_ns.get_or_insert(now_ns);
                    self.state = State::Waiting(number);
                    inner.shrink();
                }
                (Err(error), _) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Ends the wait, if there is one.
    fn end_wait(&mut self) {
        if let State::Waiting(number) = self.state {
            self.state = State::New;
            let inner = &self.widener.inner;
            inner.with(|ledger, now_ns, after| ledger.end_grow(number, now_ns, after));
        }
    }
}

impl<M: Machine> Drop for Grow<M> {
    fn drop(&mut self) {
        self.end_wait();
    }
}
