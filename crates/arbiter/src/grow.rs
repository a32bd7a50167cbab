//! Waiting for memory while a query runs.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::{Charge, ChargeError, Group, Host, Machine};

use crate::arbiter::{Grant, State, Widener};
use crate::bed::Bed;
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
    /// Whether the bytes stay promised when nothing is charged at once.
    is_kept: bool,
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
        self.widener.grow(bytes)
    }

    /// Says who can be asked to give back memory of this query, or to end. Takes the place of the one before.
    pub fn attach(&self, engine: Arc<dyn Engine>) {
        let Widener { inner, grant, .. } = &self.widener;
        let before = inner.with(|ledger, _, _| ledger.attach(*grant, engine));
        // A user's code.
        drop(before);
    }
}

/// A query that waits for room; see [`Widener::wait_for_room`]. Dropping it gives up.
///
/// # Panics
/// If polled after it was ready.
#[must_use = "a future does nothing unless it is polled"]
#[derive(Debug)]
pub struct Room<M: Machine = Host>(Grow<M>);

impl<M: Machine> Widener<M> {
    /// [`Grant::grow`].
    ///
    /// # Errors
    /// [`GrowError`].
    pub fn grow(&self, bytes: u64) -> Grow<M> {
        self.wait(bytes, false)
    }

    /// Waits as [`Grant::grow`] does, at most [`crate::Yielding::room_max`], and charges nothing. For a query whose requests cannot wait: it waits
    /// before it makes them. The grant keeps the bytes for it.
    ///
    /// # Errors
    /// [`GrowError`].
    pub fn wait_for_room(&self, bytes: u64) -> Room<M> {
        Room(self.wait(bytes, true))
    }

    fn wait(&self, bytes: u64, is_kept: bool) -> Grow<M> {
        Grow {
            widener: self.clone(),
            bytes,
            is_kept,
            since_ns: None,
            state: State::New,
        }
    }
}

/// Longest time until a thread that waits looks by itself: a forked child has no ticker. Judgement.
const LOOK_MAX: Duration = Duration::from_millis(100);

impl Widener<Host> {
    /// [`Grant::grow`] that blocks the thread, at most for `patience`.
    ///
    /// # Errors
    /// [`GrowError`]; [`GrowError::TimedOut`] if the patience is over.
    pub fn grow_blocking(
        &self,
        bytes: u64,
        patience: Option<Duration>,
    ) -> Result<Charge, GrowError> {
        let bed = Arc::new(Bed::default());
        let waker = Waker::from(bed.clone());
        let memory = self.group.memory();
        let now = || Duration::from_nanos(memory.machine().now_ns());
        let began = now();
        let mut grow = self.grow(bytes);
        loop {
            if let Poll::Ready(answer) = Pin::new(&mut grow).poll(&mut Context::from_waker(&waker))
            {
                return answer;
            }
            let waited = now().saturating_sub(began);
            let rest = patience.map_or(LOOK_MAX, |patience| patience.saturating_sub(waited));
            if rest.is_zero() {
                return Err(GrowError::TimedOut { bytes });
            }
            bed.sleep(rest.min(LOOK_MAX));
        }
    }
}

impl<M: Machine> Future for Grow<M> {
    type Output = Result<Charge<M>, GrowError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_until(context, |group, bytes| match group.try_charge(bytes) {
            Ok(charge) => Attempt::Ended(Ok(charge)),
            Err(ChargeError::LimitReached(reached)) => Attempt::Short {
                needs_room: reached.limited != group.path(),
                last: Err(ChargeError::LimitReached(reached)),
            },
            Err(error) => Attempt::Ended(Err(error)),
        })
    }
}

impl<M: Machine> Future for Room<M> {
    type Output = Result<(), GrowError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.0.poll_until(context, |group, bytes| {
            let has_room =
                |group: &Group<M>| group.limits().max.saturating_sub(group.reserved()) >= bytes;
            let mut above = std::iter::successors(group.parent(), Group::parent);
            let needs_room = !above.all(|group| has_room(&group));
            match has_room(group) && !needs_room {
                true => Attempt::Ended(Ok(())),
                false => Attempt::Short {
                    needs_room,
                    last: Ok(()),
                },
            }
        });
        // After a wait the arbiter keeps it already.
        if let Poll::Ready(Ok(())) = answer
            && self.0.since_ns.is_none()
        {
            let Widener { inner, grant, .. } = &self.0.widener;
            let bytes = self.0.bytes;
            inner.with(|ledger, _, _| ledger.keep_room(*grant, bytes));
        }
        answer
    }
}

/// Outcome of a look for memory.
enum Attempt<T> {
    Ended(Result<T, ChargeError>),
    Short {
        /// A limit above its grant was in the way.
        needs_room: bool,
        /// The answer, if others take again and again what was promised.
        last: Result<T, ChargeError>,
    },
}

impl<M: Machine> Grow<M> {
    /// Polls the wait of that number. Ready means that the grant has what it waited for, or that a forked child asks anew.
    fn poll_wait(&self, number: u64, waker: &Waker) -> Poll<Result<(), GrowError>> {
        let Widener {
            inner,
            grant,
            group,
            ..
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

    /// Waits until an attempt ends.
    fn poll_until<T>(
        &mut self,
        context: &mut Context<'_>,
        attempt: impl Fn(&Group<M>, u64) -> Attempt<T>,
    ) -> Poll<Result<T, GrowError>> {
        assert!(self.state != State::Done, "polled after it was ready");
        let answer = self.poll_attempts(context, attempt);
        if answer.is_ready() {
            self.end_wait(false);
            self.state = State::Done;
        }
        answer
    }

    fn poll_attempts<T>(
        &mut self,
        context: &mut Context<'_>,
        attempt: impl Fn(&Group<M>, u64) -> Attempt<T>,
    ) -> Poll<Result<T, GrowError>> {
        let mut tries = 0;
        loop {
            if let State::Waiting(number) = self.state {
                match self.poll_wait(number, context.waker()) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            let attempted = attempt(&self.widener.group, self.bytes);
            self.end_wait(false);
            let needs_room = match attempted {
                Attempt::Short { needs_room, .. } if tries < TRIES => needs_room,
                // Others charge what is promised, outside of all grants.
                Attempt::Short { last: ended, .. } | Attempt::Ended(ended) => {
                    return Poll::Ready(ended.map_err(|error| match error {
                        // A grant closes its group just before it ends, so the two are one to who waits.
                        ChargeError::Removed { .. } => GrowError::Ended,
                        error => GrowError::Charge(error),
                    }));
                }
            };
            let Widener {
                inner,
                grant,
                group,
                ..
            } = &self.widener;
            let need = GrowNeed {
                bytes: self.bytes,
                needs_room,
                is_kept: self.is_kept,
                since_ns: self.since_ns,
            };
            let grown = inner
                .with(|ledger, now_ns, after| (ledger.grow(*grant, need, now_ns, after), now_ns));
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
    fn end_wait(&mut self, is_dropped: bool) {
        if let State::Waiting(number) = self.state {
            self.state = State::New;
            let inner = &self.widener.inner;
            inner.with(|ledger, now_ns, after| ledger.end_grow(number, is_dropped, now_ns, after));
        }
    }
}

impl<M: Machine> Drop for Grow<M> {
    fn drop(&mut self) {
        self.end_wait(true);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use bursar::Memory;

    use super::*;
    use crate::{Arbiter, Ask, Policy};

    #[test]
    fn others_may_take_what_was_promised_four_times() {
        let memory = Memory::builder().max(100).build().unwrap();
        let arbiter = Arbiter::new(&memory, Policy::default());
        let ask = Ask::new(&memory.root(), "query").least(10, 0);
        let grant = arbiter.try_admit(ask).unwrap();
        let attempts = Cell::new(0);
        let attempt = |_: &Group, _| {
            attempts.set(attempts.get() + 1);
            match attempts.get() {
                0..100 => Attempt::Short {
                    needs_room: false,
                    last: Ok(()),
                },
                _ => Attempt::Ended(Ok(())),
            }
        };
        let mut grow = grant.grow(10);
        let answer = grow.poll_until(&mut Context::from_waker(Waker::noop()), attempt);
        assert_eq!(answer, Poll::Ready(Ok(())));
        assert_eq!(attempts.get(), 1 + TRIES);
    }
}
