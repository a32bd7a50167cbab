//! The group that pays for one body, and waits for its memory.

use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bursar::{Charge, ChargeError, Group};
use bursar_arbiter::{Grow, GrowError, Widener};
use tokio::time::{Sleep, sleep};

use crate::body_error::BodyError;
use crate::body_policy::{Ahead, BodyPolicy};

/// The payer of one body. The body and the future of its request share it.
pub(crate) struct Purse {
    pub(crate) group: Group,
    /// Makes the grant of the request larger, if it has one.
    pub(crate) widener: Option<Widener>,
    pub(crate) policy: BodyPolicy,
    /// Set once the body was ended before its time.
    pub(crate) ended: OnceLock<BodyError>,
}

impl Purse {
    /// Whether others wait for a limit on the way of the group.
    pub(crate) fn others_wait(&self) -> bool {
        self.widener.as_ref().is_some_and(Widener::others_wait) || self.group.engine().has_waiters()
    }

    fn timed_out(&self, bytes: u64) -> BodyError {
        // The group of a grant is below its tenant.
        let tenant = self.widener.as_ref().and_then(|_| self.group.parent());
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
            Charging::Grant(grow) => Pin::new(grow).poll(context).map_err(of_growth),
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
                let mut room = window.room.lock().unwrap_or_else(PoisonError::into_inner);
                let bytes = most.min(room.bytes);
                if bytes == 0 {
                    room.waker = Some(context.waker().clone());
                    return None;
                }
                room.bytes -= bytes;
                drop(room);
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
            let mut room = window.room.lock().unwrap_or_else(PoisonError::into_inner);
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
