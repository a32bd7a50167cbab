//! The layer that charges the bodies of requests, its service, and the answer to come.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker, ready};

use bursar::{Charge, Group};
use bursar_arbiter::Widener;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::body_error::BodyError;
use crate::body_policy::BodyPolicy;
use crate::charged_body::{BoxError, ChargedBody};
use crate::layer::give_up_readiness;
use crate::purse::{Purse, Reserve, Waiting};

/// Charges the body of each request to the group that the request carries, which [`crate::TenantLayer`] puts there. Place it below that layer. A
/// request without a group passes uncharged.
///
/// `P` is a function of the request that returns a [`BodyPolicy`], called once for each request. The layer reserves the policy's bytes before
/// it calls the service, so before the first byte is read. The service gets the body as a [`ChargedBody`].
///
/// A request that carries a grant ([`crate::Admission::Asked`]) pays from it: the grant's promise covers the same bytes, and no limit counts
/// them twice. If the grant is too small, it grows ([`Widener::grow`]). A request that was moved to another group since pays from that group alone.
///
/// A body that is refused or ended ([`BodyError`]) is answered with the status of its error and an empty body, in place of the service's answer. A
/// service that answers before it has read the body has the last word. The service gets the error from the body, and must end by itself.
#[derive(Clone, Copy)]
pub struct BodyLayer<P> {
    pick: P,
}

impl<P> BodyLayer<P> {
    /// Makes a layer that asks `pick` for the policy of each request, as in [the crate's example](crate#bodies).
    pub fn new<Q>(pick: P) -> Self
    where
        P: Fn(&Request<Q>) -> BodyPolicy,
    {
        Self { pick }
    }
}

impl<P> fmt::Debug for BodyLayer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyLayer").finish_non_exhaustive()
    }
}

impl<S, P: Clone> Layer<S> for BodyLayer<P> {
    type Service = BodyService<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        BodyService {
            inner,
            pick: self.pick.clone(),
        }
    }
}

/// The service that [`BodyLayer`] makes of another.
///
/// It is ready when the wrapped service is. A request that must wait for memory gives that readiness up. It is served by a clone, which is asked
/// whether it is ready after the wait.
#[derive(Clone, Copy)]
pub struct BodyService<S, P> {
    inner: S,
    pick: P,
}

impl<S: fmt::Debug, P> fmt::Debug for BodyService<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, P, Q, B> Service<Request<Q>> for BodyService<S, P>
where
    S: Service<Request<ChargedBody<Q>>, Response = Response<B>> + Clone,
    P: Fn(&Request<Q>) -> BodyPolicy,
    Q: Body<Data = Bytes>,
    Q::Error: Into<BoxError>,
    B: Default,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = BodyFuture<S, Q>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let policy = (self.pick)(&request);
        let group = request.extensions().get::<Group>();
        let state = match (group, policy.reserve_bytes(request.body())) {
            (Some(group), Some(bytes)) => {
                let widener = request.extensions().get::<Widener>();
                let purse = Arc::new(Purse {
                    group: group.clone(),
                    widener: widener.filter(|it| is_within(group, it.group())).cloned(),
                    policy,
                    waiting: Mutex::new(None),
                    ended: OnceLock::new(),
                });
                let mut waiting = Waiting::new(&purse, bytes);
                // Polled again with the task's own waker if it must wait.
                match waiting.poll(&purse, &mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(Ok(charge)) => serve(&mut self.inner, request, purse, charge),
                    Poll::Ready(Err(error)) => State::Refused { error },
                    Poll::Pending => State::Waiting {
                        waiting,
                        charge: None,
                        purse,
                        request: Some(request),
                        service: give_up_readiness(&mut self.inner),
                    },
                }
            }
            _ => State::Served {
                future: self.inner.call(request.map(ChargedBody::uncharged)),
                purse: None,
            },
        };
        BodyFuture { state }
    }
}

/// Whether a group is another one or below it.
fn is_within(group: &Group, other: &Group) -> bool {
    std::iter::successors(Some(group.clone()), Group::parent).any(|at| at == *other)
}

/// Calls a service that is ready, with a body that is paid for.
fn serve<S, Q>(
    service: &mut S,
    request: Request<Q>,
    purse: Arc<Purse>,
    charge: Charge,
) -> State<S, Q>
where
    S: Service<Request<ChargedBody<Q>>>,
    Q: Body,
{
    let reserve = Reserve::new(charge, &purse.policy);
    let body = purse.clone();
    let request = request.map(|inner| ChargedBody::charged(inner, body, reserve));
    State::Served {
        future: service.call(request),
        purse: Some(purse),
    }
}

pin_project! {
    /// A service's future, after the bytes of its request's body were reserved.
    #[must_use = "futures do nothing unless polled"]
    pub struct BodyFuture<S, Q>
    where
        S: Service<Request<ChargedBody<Q>>>,
    {
        #[pin]
        state: State<S, Q>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, Q>
    where
        S: Service<Request<ChargedBody<Q>>>,
    {
        // Waits for memory, and then for the service.
        Waiting {
            waiting: Waiting,
            charge: Option<Charge>,
            purse: Arc<Purse>,
            // Until it is served.
            request: Option<Request<Q>>,
            service: S,
        },
        Served {
            #[pin]
            future: S::Future,
            // None for a body that is not charged.
            purse: Option<Arc<Purse>>,
        },
        Refused {
            error: BodyError,
        },
    }
}

impl<S: Service<Request<ChargedBody<Q>>>, Q> fmt::Debug for BodyFuture<S, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyFuture").finish_non_exhaustive()
    }
}

impl<S, Q, B> Future for BodyFuture<S, Q>
where
    S: Service<Request<ChargedBody<Q>>, Response = Response<B>>,
    B: Default,
    Q: Body,
{
    type Output = Result<Response<B>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProjection::Waiting {
                    waiting,
                    charge,
                    purse,
                    request,
                    service,
                } => {
                    if charge.is_none() {
                        match ready!(waiting.poll(purse, context)) {
                            Ok(charged) => *charge = Some(charged),
                            Err(error) => return Poll::Ready(Ok(error.response())),
                        }
                    }
                    ready!(service.poll_ready(context))?;
                    let charge = charge.take().expect("polled after it was ready");
                    let request = request.take().expect("it was not served yet");
                    serve(service, request, purse.clone(), charge)
                }
                StateProjection::Served { future, purse } => {
                    let polled = future.poll(context);
                    if let Some(purse) = purse {
                        purse.end_late_wait();
                    }
                    let answer = ready!(polled);
                    let ended = purse.as_ref().and_then(|purse| purse.ended.get());
                    return Poll::Ready(match ended {
                        Some(error) => Ok(error.response()),
                        None => answer,
                    });
                }
                StateProjection::Refused { error } => {
                    return Poll::Ready(Ok(error.response()));
                }
            };
            this.state.set(next);
        }
    }
}
