//! Waiting for memory while a query runs.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bursar::{Bytes, Charge, ChargeError, Host, Machine};

use crate::arbiter::{Grant, Widener};
use crate::engine::{Engine, Stop};
use crate::ledger::{GrowNeed, Grown};

/// Reason why a query does not get more memory.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrowError {
    /// The query was stopped, so that others can go on.
    Stopped(Arc<Stop>),
    /// A limit is smaller than what the query would have.
    NeverFits {
        /// Path of the group whose limit that is.
        limited: String,
        /// Its `max`, bytes.
        max: u64,
        /// Bytes that the query would have.
        needed: u64,
    },
    /// Nobody who holds memory can yield, and nobody runs who may end.
    NobodyYields {
        /// Path of the group whose limit is in the way.
        limited: String,
        /// Bytes that are missing.
        missing: u64,
        /// Number of the decision.
        decision: u64,
    },
    /// The grant is inside of another, and that one has too little left. Such a query never waits, because the query around it may wait for it.
    Nested {
        /// Path of the group of the grant around it.
        grant: String,
        /// Bytes that that grant has left.
        left: u64,
    },
    /// A limit inside of the grant, or one that was set meanwhile, refuses the charge.
    Charge(ChargeError),
    /// The grant has ended.
    Ended,
}

bursar::debug_as_message!(
    enum GrowError {
        Stopped(stop),
        NeverFits { limited, max, needed },
        NobodyYields { limited, missing, decision },
        Nested { grant, left },
        Charge(error),
        Ended,
    }
);

impl fmt::Display for GrowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(stop) => stop.fmt(f),
            Self::NeverFits {
                limited,
                max,
                needed,
            } => write!(
                f,
                "the query would have {}, and {} may have at most {}",
                Bytes(*needed),
                bursar::printable(limited),
                Bytes(*max)
            ),
            Self::NobodyYields {
                limited,
                missing,
                decision,
            } => write!(
                f,
                "{} are missing below the limit of {}, and no other query can give them back (decision {decision})",
                Bytes(*missing),
                bursar::printable(limited)
            ),
            Self::Nested { grant, left } => write!(
                f,
                "the grant {} that the query runs in has {} left",
                bursar::printable(grant),
                Bytes(*left)
            ),
            Self::Charge(error) => error.fmt(f),
            Self::Ended => f.write_str("the grant has ended"),
        }
    }
}

impl std::error::Error for GrowError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Charge(error) => Some(error),
            _ => None,
        }
    }
}

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

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Waiting(u64),
    Done,
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
    pub fn attach(&self, engine: Arc<dyn Engine<M>>) {
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
        let widener = self.widener.clone();
        let Widener {
            inner,
            grant,
            group,
        } = &widener;
        let waker = context.waker().clone();
        let mut tries = 0;
        loop {
            if let State::Waiting(number) = self.state {
                match self.poll_wait(number, &waker) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            let charge = group.try_charge(self.bytes);
            self.end_wait();
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
            let own = waker.clone();
            let grown = inner.with(|ledger, now_ns, after| {
                (ledger.grow(*grant, need, own, now_ns, after), now_ns)
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

/// Calls a user's code. Its panic must not harm the query that this is done for.
pub(crate) fn call<M: Machine, R>(machine: &M, what: &str, call: impl FnOnce() -> R) -> Option<R> {
    let answer = catch_unwind(AssertUnwindSafe(call));
    if answer.is_err() {
        machine.warn(format_args!("{what} of an engine panicked"));
    }
    answer.ok()
}
