//! What is to become of a request.

use std::fmt;

use bursar::Group;
use http::Response;

/// What is to become of a request: [`crate::TenantLayer`] asks for each.
#[must_use = "a request is served or answered by this"]
pub enum Admission<B> {
    /// It is served, in this group: a tenant's, or a child made for this request, which is gone with its last byte and needs a
    /// name that no other request has at the time.
    ///
    /// Entering a group for the first time keeps some 40 bytes for the life of the process; the places of groups that are gone
    /// are used again, and so are those.
    Granted(Group),
    /// This is the answer, and the service is not called: for tenants that nobody knows, and for those that are over their
    /// limit ([`Group::is_over_max`], for which a ticker should run: see the crate's documentation).
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
