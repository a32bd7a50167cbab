//! The rules for the body of a request.

use std::time::Duration;

use bursar::Group;
use bursar_arbiter::Ask;
use http::Request;
use http_body::Body;

use crate::asked::ask_bytes;

/// Longest wait for memory unless a policy says otherwise. Judgement.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that a body of unknown length is charged at once. Judgement: eight reads of a new HTTP/1 connection of hyper.
pub(crate) const STEP_BYTES: u64 = 64 << 10;
/// Bytes beside the body that [`BodyPolicy::ask`] asks for: the futures of a handler and of its router. Judgement.
const HANDLER_BYTES: u64 = 64 << 10;

/// Rules for the body of a request: the bytes that are reserved before the body is read, and the longest wait.
///
/// A policy with a patience or a rate uses tokio's timer, so the service must run in a runtime of tokio with time enabled.
#[derive(Clone, Copy, Debug)]
#[must_use = "a policy does nothing by itself"]
pub struct BodyPolicy {
    pub(crate) ahead: Ahead,
    pub(crate) patience: Duration,
    /// Bytes a second; 0 for none.
    pub(crate) min_rate: u64,
}

/// Bytes that are reserved before the first byte is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    Nothing,
    Whole,
    Window(u64),
}

impl BodyPolicy {
    /// For handlers that read the whole body before they act. Reserves the body's length before the first byte is read. So a body that has
    /// begun never waits for memory. A body of unknown length grows by steps of 64 KiB, and each step may wait.
    pub const fn buffered() -> Self {
        Self::new(Ahead::Whole)
    }

    /// For handlers that drop each chunk before they read many more. Reserves `window_bytes`, or the length of a shorter body, until the
    /// body ends. A handler that holds more chunks than the window has bytes is charged for each further chunk, and may wait.
    pub const fn streamed(window_bytes: u64) -> Self {
        Self::new(Ahead::Window(window_bytes))
    }

    /// For paths whose bodies are charged to no group and never wait.
    pub const fn uncharged() -> Self {
        Self::new(Ahead::Nothing)
    }

    const fn new(ahead: Ahead) -> Self {
        Self {
            ahead,
            patience: PATIENCE,
            min_rate: 0,
        }
    }

    /// Sets the longest wait for memory, before the body is read and at each chunk; 30 s unless set. A body that waits longer is answered with
    /// 429 or 503: see [`crate::BodyError::TimedOut`].
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the slowest client that may keep others waiting, in bytes a second. Every 5 s in which the body waited for its client, a client
    /// that was slower is answered with 408 if a charge or an ask waits for a limit on the way of its group. Unless set, or with 0, no
    /// client is too slow. The time in which the handler does not read, or the body waits for memory, does not count.
    pub const fn min_rate(mut self, bytes_per_second: u64) -> Self {
        self.min_rate = bytes_per_second;
        self
    }

    /// An ask for the bytes that this policy reserves for the request, and 64 KiB for its handler's futures. It waits as long as the body
    /// may. For [`crate::Admission::Asked`]; [`Ask::least`] and [`Ask::wanted`] set other numbers.
    ///
    /// With [`crate::ask_for`] in its place the grant may be a little too small, because the handler's futures are charged to it, too.
    /// Then the body makes the grant larger, and may wait for that.
    pub fn ask<Q: Body>(&self, tenant: &Group, request: &Request<Q>) -> Ask {
        let bytes = self.reserve_bytes(request.body()).unwrap_or(0);
        ask_bytes(tenant, bytes.saturating_add(HANDLER_BYTES)).patience(self.patience)
    }

    /// Bytes to reserve; `None` for a body that is not charged.
    pub(crate) fn reserve_bytes<Q: Body>(&self, body: &Q) -> Option<u64> {
        let hint = body.size_hint();
        let most = hint.upper().unwrap_or(u64::MAX);
        let bytes = match self.ahead {
            Ahead::Nothing => 0,
            // A bound that is no length may be that of a layer above, and much larger than the body.
            Ahead::Whole => hint.exact().unwrap_or(most.min(STEP_BYTES)),
            Ahead::Window(window) => window.min(most),
        };
        let is_charged = self.ahead != Ahead::Nothing && !body.is_end_stream();
        is_charged.then_some(bytes)
    }
}
