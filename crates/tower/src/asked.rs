//! Requests that wait for memory before they are served.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bursar::Group;
use bursar_arbiter::{Admit, AdmitError, Arbiter, Ask};
use http::header::{CONTENT_LENGTH, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode};

/// A request that waits until an arbiter admits it: see [`crate::Admission::Asked`].
pub struct Asked<B> {
    pub(crate) admit: Admit,
    pub(crate) answer: Answer<B>,
}

type Answer<B> = Box<dyn FnOnce(&AdmitError) -> Response<B> + Send>;

impl<B> fmt::Debug for Asked<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Asked").field(&self.admit).finish()
    }
}

impl<B> Asked<B> {
    /// Asks an arbiter, often with what [`ask_for`] makes of the request. If it is refused, `answer` makes the response; [`refusal`] has its
    /// head and text.
    pub fn new(
        arbiter: &Arbiter,
        ask: Ask,
        answer: impl FnOnce(&AdmitError) -> Response<B> + Send + 'static,
    ) -> Self {
        Self {
            admit: arbiter.admit(ask),
            answer: Box::new(answer),
        }
    }
}

/// Number of the next request, of all layers: they may have groups of one tenant.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// An ask for as many bytes as a request's `Content-Length` says, or `default_bytes` if it has none that is a number. The name of its group
/// is its own. It waits without end unless [`Ask::patience`] is set.
///
/// A client may say what it likes. One that says too much waits, or is refused. A request that takes more than it said is served, because no
/// allocation fails; its bytes count, so others wait for them.
pub fn ask_for<Q>(tenant: &Group, request: &Request<Q>, default_bytes: u64) -> Ask {
    let length = request.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    ask_bytes(tenant, length.unwrap_or(default_bytes).max(1))
}

/// An ask for bytes, with a name that no other ask has.
pub(crate) fn ask_bytes(tenant: &Group, bytes: u64) -> Ask {
    // Relaxed: only unique.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Ask::new(tenant, format!("request-{number}"))
        .least(bytes, 0)
        .wanted(bytes)
}

/// The answer to a request of `tenant` that was not admitted: 429 if the tenant's own limit was in the way, 503 if it was one above or the tenant
/// is removed, 413 if the request can never fit. The first two say after how long to ask again (`Retry-After`, whole seconds).
pub fn refusal(error: &AdmitError, tenant: &Group) -> Response<String> {
    let (status, after) = match error {
        AdmitError::TimedOut {
            limited,
            retry_after,
            ..
        } if *limited == tenant.path() => (StatusCode::TOO_MANY_REQUESTS, Some(*retry_after)),
        AdmitError::TimedOut { retry_after, .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, Some(*retry_after))
        }
        AdmitError::NeverFits { .. } => (StatusCode::PAYLOAD_TOO_LARGE, None),
        AdmitError::Removed { .. } | AdmitError::Nested { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, None)
        }
        // The program's own mistakes.
        _ => (StatusCode::INTERNAL_SERVER_ERROR, None),
    };
    let mut response = Response::new(error.to_string());
    *response.status_mut() = status;
    if let Some(after) = after {
        set_retry_after(&mut response, after);
    }
    response
}

/// Says after how long to ask again, in whole seconds and at least one.
pub(crate) fn set_retry_after<B>(response: &mut Response<B>, after: Duration) {
    let seconds = after.as_secs_f64().ceil().max(1.0) as u64;
    let headers = response.headers_mut();
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
}
