//! The decision on a request.

use std::fmt;

use bursar::Group;
use http::Response;

/// The decision on a request, which [`crate::TenantLayer`] asks for each time.
#[must_use = "a request is served or answered by this"]
pub enum Admission<B> {
    /// Serves the request in this group: a tenant's, or a child made for this request. Such a child is gone with its
    /// last byte, and needs a name that no other request has at the time.
    ///
    /// Entering a group for the first time keeps some 40 bytes for the life of the process. The places of removed
    /// groups are used again, and so are these bytes.
    Granted(Group),
    /// Answers with this response, without the service. For unknown tenants, and for tenants over their limit
    /// ([`bursar::Group::is_over_max`], for which a ticker should run: see the crate's documentation).
    Refused(Response<B>),
}

impl<B> fmt::Debug for Admission<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(group) => f.debug_tuple("Granted").field(group).finish(),
            Self::Refused(response) => f.debug_tuple("Refused").field(&response.status()).finish(),
        }
    }
}
