//! The decision on a request.

use std::fmt;

use bursar::Group;
use http::Response;

use crate::asked::Asked;

/// The decision on a request, which [`crate::TenantLayer`] asks for each time.
#[must_use = "a request is served or answered by this"]
pub enum Admission<B> {
    /// Serves the request in this group: a tenant's, or a child made for this request. Such a child is gone with its
    /// last byte, and needs a name that no other request has at the time.
    ///
    /// Entering a group for the first time keeps some 40 bytes for the life of the process. The places of removed
    /// groups are used again, and so are these bytes.
    Granted(Group),
    /// Waits until an arbiter admits the request, and serves it in the group of its grant. The grant ends with the response's body. If the
    /// arbiter refuses, or the client goes away, the service never sees the request.
    ///
    /// The service is cloned, and asked whether it is ready only after the grant. So a request that waits for memory holds nothing that
    /// the service gives to those that are ready, such as a permit of a `ConcurrencyLimit`. Put such a layer below this one.
    /// A request that was admitted and waits for the service counts as idle ([`bursar_arbiter::Grant::set_idle`]): the request that has the permit may need its memory.
    Asked(Asked<B>),
    /// Answers with this response, without the service. For unknown tenants, and for tenants over their limit
    /// ([`bursar::Group::is_over_max`], for which a ticker should run: see the crate's documentation).
    Refused(Response<B>),
}

impl<B> fmt::Debug for Admission<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(group) => f.debug_tuple("Granted").field(group).finish(),
            Self::Asked(asked) => asked.fmt(f),
            Self::Refused(response) => f.debug_tuple("Refused").field(&response.status()).finish(),
        }
    }
}
