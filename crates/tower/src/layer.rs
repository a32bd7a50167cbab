//! The layer, and the service that it makes.

use std::fmt;
use std::task::{Context, Poll};

use bursar::Group;
use bursar_alloc::{GroupExt, InGroup, InGroupExt, panics_charge_nobody};
use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use crate::admission::Admission;
use crate::body::TenantBody;
use crate::future::TenantFuture;

/// Serves each request in a group that `P` picks for it.
///
/// `P` is a function of the request that returns an [`Admission`], called once for each request before it is served, in no group
/// of its own. It runs on the thread that serves the connection, so it must not wait. A panic unwinds through `call`, as one of
/// a service does.
#[derive(Clone, Copy)]
pub struct TenantLayer<P> {
    pick: P,
}

impl<P> TenantLayer<P> {
    /// Makes a layer that asks `pick` for the group of each request, as in [the crate's example](crate).
    ///
    /// Makes the panic hook of the process run outside of all groups ([`bursar_alloc::panics_charge_nobody`]). Otherwise a
    /// handler's panic under `RUST_BACKTRACE=1` charges its tenant up to tens of megabytes until the process ends. Set a hook of
    /// your own before the first layer is made: a hook that is set later runs in the group of the request that panics.
    pub fn new<Q, B>(pick: P) -> Self
    where
        P: Fn(&Request<Q>) -> Admission<B>,
    {
        panics_charge_nobody();
        Self { pick }
    }
}

impl<P> fmt::Debug for TenantLayer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantLayer").finish_non_exhaustive()
    }
}

impl<S, P: Clone> Layer<S> for TenantLayer<P> {
    type Service = TenantService<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        TenantService {
            inner,
            pick: self.pick.clone(),
        }
    }
}

/// The service that [`TenantLayer`] makes of another.
///
/// Requests carry their [`bursar::Group`] as an extension, for handlers that spawn tasks into it or make children of it.
///
/// It is ready when the wrapped service is. A request that waits for an arbiter gives that readiness up. If `P` refuses a request, the wrapped
/// service stays ready: anything that it keeps for the next call, such as a permit, stays with it.
#[derive(Clone, Copy)]
pub struct TenantService<S, P> {
    inner: S,
    pick: P,
}

impl<S: fmt::Debug, P> fmt::Debug for TenantService<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, P, Q, B> Service<Request<Q>> for TenantService<S, P>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone,
    P: Fn(&Request<Q>) -> Admission<B>,
{
    type Response = Response<TenantBody<B>>;
    type Error = S::Error;
    type Future = TenantFuture<S, Q, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        match (self.pick)(&request) {
            Admission::Granted(group) => {
                TenantFuture::served(serve(&mut self.inner, request, &group))
            }
            Admission::Asked(asked) => {
                TenantFuture::asked(asked, give_up_readiness(&mut self.inner), request)
            }
            Admission::Refused(response) => TenantFuture::answered(response),
        }
    }
}

/// Drops what a ready service keeps for the next call, such as a permit: its caller may keep the service for long, and call it no more. Returns a
/// clone, which must be asked whether it is ready.
pub(crate) fn give_up_readiness<S: Clone>(service: &mut S) -> S {
    *service = service.clone();
    service.clone()
}

/// Calls a service that is ready, in a group that the request carries.
pub(crate) fn serve<S, Q>(
    service: &mut S,
    mut request: Request<Q>,
    group: &Group,
) -> InGroup<S::Future>
where
    S: Service<Request<Q>>,
{
    let future = group.scope(|| {
        request.extensions_mut().insert(group.clone());
        service.call(request)
    });
    future.in_group(group)
}
