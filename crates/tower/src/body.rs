//! Bodies that are polled in their tenant's group.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bursar::Group;
use bursar_alloc::InGroup;
use bursar_arbiter::Grant;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// A response's body. Its allocations while it is polled, and when it is dropped, are charged to the group that
    /// served the request. The body of an answer in the service's place is charged to no group.
    ///
    /// It keeps a handle of the group, so a group made for one request lives until its response is sent or dropped. So does the grant of
    /// a request that asked for one.
    pub struct TenantBody<B> {
        #[pin]
        payer: Payer<B>,
    }
}

pin_project! {
    #[project = PayerProjection]
    enum Payer<B> {
        Tenant {
            #[pin]
            body: InGroup<B>,
            // It goes after the body.
            grant: Option<Grant>,
        },
        Nobody {
            #[pin]
            body: B,
        },
    }
}

impl<B> TenantBody<B> {
    pub(crate) fn in_group(body: InGroup<B>, grant: Option<Grant>) -> Self {
        Self {
            payer: Payer::Tenant { body, grant },
        }
    }

    pub(crate) fn of_nobody(body: B) -> Self {
        Self {
            payer: Payer::Nobody { body },
        }
    }

    /// Returns the group that served the request; `None` for an answer in the service's place.
    pub fn group(&self) -> Option<&Group> {
        match &self.payer {
            Payer::Tenant { body, .. } => Some(body.group()),
            Payer::Nobody { .. } => None,
        }
    }

    fn body(&self) -> &B {
        match &self.payer {
            Payer::Tenant { body, .. } => body.get_ref(),
            Payer::Nobody { body } => body,
        }
    }
}

impl<B> fmt::Debug for TenantBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantBody")
            .field("group", &self.group())
            .finish_non_exhaustive()
    }
}

impl<B: Body> Body for TenantBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().payer.project() {
            PayerProjection::Tenant { body, .. } => body.poll_with(|body| body.poll_frame(context)),
            PayerProjection::Nobody { body } => body.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body().size_hint()
    }
}
