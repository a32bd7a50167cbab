//! Reasons why a body is ended.

use std::fmt;
use std::time::Duration;

use bursar::{Bytes, ChargeError, printable};
use bursar_arbiter::GrowError;
use http::{Response, StatusCode};

use crate::asked::set_retry_after;

/// Reason why a request's body is not read, or not read further. The handler gets it as the error of the body, and the client gets
/// [`BodyError::status`] in place of the handler's answer.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// A limit is smaller than the bytes that the body needs at once.
    TooLarge {
        /// Path of the group whose limit that is.
        limited: String,
        /// Its `max`, bytes.
        max: u64,
        /// Bytes needed.
        bytes: u64,
    },
    /// The memory was not there in time ([`crate::BodyPolicy::patience`]).
    TimedOut {
        /// Path of the group whose limit was in the way when the wait ended.
        limited: String,
        /// Whether that is the tenant, and not a group above it.
        is_own_limit: bool,
        /// Bytes that the body waited for.
        bytes: u64,
        /// The patience.
        waited: Duration,
    },
    /// The client was slower than [`crate::BodyPolicy::min_rate`] while others waited.
    TooSlow {
        /// Bytes a second that the client sent.
        rate: u64,
        /// Bytes a second that it must send.
        min_rate: u64,
    },
    /// The group refuses the charge. Usually it was removed, or no group can have so many bytes.
    Charge(ChargeError),
    /// The grant of the request cannot grow.
    Grow(GrowError),
}

bursar::debug_as_message!(
    enum BodyError {
        TooLarge { limited, max, bytes },
        TimedOut { limited, is_own_limit, bytes, waited },
        TooSlow { rate, min_rate },
        Charge(error),
        Grow(error),
    }
);

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge {
                limited,
                max,
                bytes,
            } => write!(
                f,
                "the body needs {}, and {} may have at most {}",
                Bytes(*bytes),
                printable(limited),
                Bytes(*max)
            ),
            Self::TimedOut {
                limited,
                bytes,
                waited,
                ..
            } => write!(
                f,
                "no room for {} of the body in {waited:.1?}: the limit of {} is in the way",
                Bytes(*bytes),
                printable(limited)
            ),
            Self::TooSlow { rate, min_rate } => write!(
                f,
                "the client sent {} a second while others waited, and must send at least {}",
                Bytes(*rate),
                Bytes(*min_rate)
            ),
            Self::Charge(error) => error.fmt(f),
            Self::Grow(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Charge(error) => Some(error),
            Self::Grow(error) => Some(error),
            _ => None,
        }
    }
}

impl BodyError {
    /// The status of the answer: 413 if the body can never fit, 429 if the tenant's own limit was in the way for too long, 408 for a client that
    /// is too slow, and 503 for all else.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge { .. } | Self::Charge(ChargeError::TooLarge { .. }) => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            Self::TimedOut {
                is_own_limit: true, ..
            } => StatusCode::TOO_MANY_REQUESTS,
            Self::TooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::TimedOut { .. } | Self::Charge(_) | Self::Grow(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// The answer, with an empty body. After a wait, `Retry-After` says as many seconds as the body waited.
    pub(crate) fn response<B: Default>(&self) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = self.status();
        if let Self::TimedOut { waited, .. } = self {
            set_retry_after(&mut response, *waited);
        }
        response
    }
}
