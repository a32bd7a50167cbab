//! The group that pays for one body, and waits for its memory.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bursar::{Charge, ChargeError, Group};
use bursar_arbiter::{Grow, GrowError, Widener};
use tokio::time::{Sleep, sleep};

use crate::body_error::BodyError;
use crate::body_policy::{Ahead, BodyPolicy};

/// The payer of one body. The body and the future of its request share it.
pub(crate) struct Purse {
    pub(crate) group: Group,
    /// Makes the grant of the request larger, if it has one. The group is the grant's or below it.
    pub(crate) widener: Option<Widener>,
    pub(crate) policy: BodyPolicy,
    /// The body, if it waits for the memory of a chunk.
    pub(crate) waiting: Mutex<Option<Waiting>>,
    /// Set once the body was ended before its time.
    pub(crate) ended: OnceLock<BodyError>,
}

impl Purse {
    /// Whether others wait for a limit on the way of the group.
    pub(crate) fn others_wait(&self) -> bool {
        self.widener.as_ref().is_some_and(Widener::others_wait) || self.group.engine().has_waiters()
    }

    /// Waits for the memory of a chunk, as long as before if the body waits already.
    pub(crate) fn poll_chunk(
        &self,
        bytes: u64,
        context: &mut Context<'_>,
    ) -> Poll<Result<Charge, BodyError>> {
        // Out of its place meanwhile, because its poll and its drop run the runtime's code.
        let waiting = self.waiting().take();
        let mut waiting = waiting.unwrap_or_else(|| Waiting::new(self, bytes));
        let polled = waiting.poll(self, context);
        if polled.is_pending() {
            *self.waiting() = Some(waiting);
        }
        polled
    }

    /// Leaves the queue, if the body waits.
    pub(crate) fn stop_waiting(&self) {
        let waiting = self.waiting().take();
        drop(waiting);
    }

    /// Leaves the queue, if the body waits and its time is over. A handler that gave one read up, and does something else, keeps others
    /// waiting until then. Its next read gets the error.
    pub(crate) fn end_late_wait(&self) {
        let mut place = self.waiting();
        let charge = match &mut *place {
            Some(waiting) if waiting.is_late() => {
                std::mem::replace(&mut waiting.charge, Charging::GivenUp)
            }
            _ => return,
        };
        drop(place);
        drop(charge);
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timed_out(&self, bytes: u64) -> BodyError {
        // The group of a grant is below its tenant.
        let grant = self.widener.as_ref().map(Widener::group);
        let tenant = grant.and_then(Group::parent);
        let tenant = tenant.unwrap_or_else(|| self.group.clone());
        let lacks_room =
            |group: &Group| group.limits().max.saturating_sub(group.reserved()) < bytes;
        let mut chain = std::iter::successors(Some(tenant.clone()), Group::parent);
        let limited = chain.find(lacks_room);
        BodyError::TimedOut {
            is_own_limit: limited.as_ref().is_none_or(|group| *group == tenant),
            limited: limited.unwrap_or(tenant).path(),
            bytes,
            waited: self.policy.patience,
        }
    }
}

/// A body that waits for memory. Dropping it gives up.
pub(crate) struct Waiting {
    bytes: u64,
    charge: Charging,
    /// Made when it must wait.
    deadline: Option<Pin<Box<Sleep>>>,
}

enum Charging {
    Group(bursar::ChargeAsync),
    Grant(Grow),
    /// Its time was over before it was polled again.
    GivenUp,
}

impl Waiting {
    pub(crate) fn new(purse: &Purse, bytes: u64) -> Self {
        Self {
            bytes,
            charge: match &purse.widener {
                Some(widener) => Charging::Grant(widener.grow(bytes)),
                None => Charging::Group(purse.group.charge_async(bytes)),
            },
            deadline: None,
        }
    }

    pub(crate) fn poll(
        &mut self,
        purse: &Purse,
        context: &mut Context<'_>,
    ) -> Poll<Result<Charge, BodyError>> {
        let polled = match &mut self.charge {
            Charging::Group(charge) => Pin::new(charge).poll(context).map_err(of_charge),
            Charging::Grant(grow) => match Pin::new(grow).poll(context) {
                Poll::Ready(Ok(mut charge)) => match charge.move_to(&purse.group) {
                    Ok(()) => Poll::Ready(Ok(charge)),
                    // A limit between the grant and the request's group is in the way.
                    Err(_) => {
                        drop(charge);
                        let waits = purse.group.charge_async(self.bytes);
                        self.charge = Charging::Group(waits);
                        return self.poll(purse, context);
                    }
                },
                polled => polled.map_err(of_growth),
            },
            Charging::GivenUp => Poll::Ready(Err(purse.timed_out(self.bytes))),
        };
        if polled.is_ready() {
            return polled;
        }
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(sleep(purse.policy.patience)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(purse.timed_out(self.bytes)))
    }

    fn is_late(&self) -> bool {
        let deadline = self.deadline.as_ref();
        deadline.is_some_and(|deadline| deadline.is_elapsed())
    }
}

fn of_charge(error: ChargeError) -> BodyError {
    match error {
        ChargeError::LimitReached(reached) if reached.never_fits() => BodyError::TooLarge {
            limited: reached.limited.clone(),
            max: reached.max,
            bytes: reached.requested,
        },
        error => BodyError::Charge(error),
    }
}

fn of_growth(error: GrowError) -> BodyError {
    match error {
        GrowError::NeverFits {
            limited,
            max,
            needed: bytes,
        } => BodyError::TooLarge {
            limited,
            max,
            bytes,
        },
        GrowError::Charge(error) => of_charge(error),
        error => BodyError::Grow(error),
    }
}

/// Bytes that were charged before the body was read.
pub(crate) enum Reserve {
    Spent,
    /// Each chunk takes its part, and returns it to the group.
    Whole(Charge),
    /// Each chunk takes its part, and puts it back.
    Window(Arc<Window>),
}

impl Reserve {
    pub(crate) fn new(charge: Charge, policy: &BodyPolicy) -> Self {
        match policy.ahead {
            Ahead::Window(_) => Self::Window(Arc::new(Window {
                room: Mutex::new(Room {
                    bytes: charge.bytes(),
                    waker: None,
                }),
                _charge: charge,
            })),
            Ahead::Whole | Ahead::Nothing => Self::Whole(charge),
        }
    }

    /// Takes up to `most` bytes; `None` if there are none. Then a chunk that puts bytes back wakes the task.
    pub(crate) fn take(&mut self, most: u64, context: &Context<'_>) -> Option<(Paid, u64)> {
        match self {
            Self::Spent => None,
            Self::Whole(charge) => {
                let bytes = most.min(charge.bytes());
                let part = (bytes > 0).then(|| charge.split(bytes).ok())??;
                Some((Paid::Charge { _charge: part }, bytes))
            }
            Self::Window(window) => {
                let bytes = window.take(most, context)?;
                let window = window.clone();
                Some((Paid::Window { window, bytes }, bytes))
            }
        }
    }
}

/// The window of one body. It stays charged until the body and all its chunks are dropped.
pub(crate) struct Window {
    room: Mutex<Room>,
    _charge: Charge,
}

impl Window {
    /// Takes up to `most` bytes. `None`: there are none, and the next chunk that is dropped wakes the task.
    fn take(&self, most: u64, context: &Context<'_>) -> Option<u64> {
        let mut waker = None;
        loop {
            let mut room = self.room();
            let bytes = most.min(room.bytes);
            if bytes > 0 {
                room.bytes -= bytes;
                drop(room);
                return Some(bytes);
            }
            // Cloned and dropped without the lock: both run the runtime's code.
            let Some(cloned) = waker.take() else {
                drop(room);
                waker = Some(context.waker().clone());
                continue;
            };
            let before = room.waker.replace(cloned);
            drop(room);
            drop(before);
            return None;
        }
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of a window that no chunk has.
struct Room {
    bytes: u64,
    /// The body, if it waits for room.
    waker: Option<Waker>,
}

/// Bytes that pay for one chunk.
pub(crate) enum Paid {
    Charge { _charge: Charge },
    Window { window: Arc<Window>, bytes: u64 },
}

impl Drop for Paid {
    fn drop(&mut self) {
        if let Self::Window { window, bytes } = self {
            let mut room = window.room();
            room.bytes += *bytes;
            let waker = room.waker.take();
            drop(room);
            // The runtime's code, so after the lock.
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}
