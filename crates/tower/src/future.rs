//! The answer to come.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bursar::Group;
use bursar_alloc::{InGroup, InGroupExt};
use bursar_arbiter::Grant;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::asked::Asked;
use crate::body::TenantBody;
use crate::layer::serve;

pin_project! {
    /// A service's future in the group of its request, or the answer that was given in its place.
    #[must_use = "futures do nothing unless polled"]
    pub struct TenantFuture<S, Q, B>
    where
        S: Service<Request<Q>>,
    {
        #[pin]
        state: State<S, Q, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, Q, B>
    where
        S: Service<Request<Q>>,
    {
        // Waits for memory, and then for the service.
        Waiting {
            // Both until they are used.
            asked: Option<Asked<B>>,
            request: Option<Request<Q>>,
            grant: Option<Grant>,
            // Bytes of the grant when it began to wait for the service.
            granted: Option<u64>,
            service: S,
        },
        Served {
            #[pin]
            future: InGroup<S::Future>,
            // Until the body has it.
            grant: Option<Grant>,
        },
        Answered {
            // Until it is given.
            response: Option<Response<B>>,
        },
    }
}

impl<S: Service<Request<Q>>, Q, B> TenantFuture<S, Q, B> {
    pub(crate) fn asked(asked: Asked<B>, service: S, request: Request<Q>) -> Self {
        Self {
            state: State::Waiting {
                asked: Some(asked),
                request: Some(request),
                grant: None,
                granted: None,
                service,
            },
        }
    }

    pub(crate) fn served(future: InGroup<S::Future>) -> Self {
        Self {
            state: State::Served {
                future,
                grant: None,
            },
        }
    }

    pub(crate) fn answered(response: Response<B>) -> Self {
        Self {
            state: State::Answered {
                response: Some(response),
            },
        }
    }
}

impl<S: Service<Request<Q>>, Q, B> fmt::Debug for TenantFuture<S, Q, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group: Option<&Group> = match &self.state {
            State::Served { future, .. } => Some(future.group()),
            State::Waiting { grant, .. } => grant.as_ref().map(Grant::group),
            State::Answered { .. } => None,
        };
        f.debug_struct("TenantFuture")
            .field("group", &group)
            .finish_non_exhaustive()
    }
}

impl<S, Q, B> Future for TenantFuture<S, Q, B>
where
    S: Service<Request<Q>, Response = Response<B>>,
{
    type Output = Result<Response<TenantBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProjection::Waiting {
                    asked,
                    request,
                    grant,
                    granted: before,
                    service,
                } => {
                    if let Some(waiting) = asked {
                        let admitted = ready!(Pin::new(&mut waiting.admit).poll(context));
                        let asked = asked.take().expect("just seen");
                        match admitted {
                            Ok(admitted) => *grant = Some(admitted),
                            Err(error) => {
                                let response = (asked.answer)(&error);
                                return Poll::Ready(Ok(response.map(TenantBody::of_nobody)));
                            }
                        }
                    }
                    let ready = service.poll_ready(context)?;
                    if let (Poll::Pending, Some(granted)) = (ready, &*grant) {
                        // The service may wait for a request that waits for memory.
                        before.get_or_insert_with(|| {
                            granted.set_idle(true);
                            granted.bytes()
                        });
                        return Poll::Pending;
                    }
                    let granted = grant.take().expect("polled after it was ready");
                    granted.set_idle(false);
                    if let Some(bytes) = before.filter(|bytes| granted.bytes() < *bytes) {
                        // Without them it grows, as any other.
                        let _ = granted.resize(bytes);
                    }
                    let mut request = request.take().expect("it was not served yet");
                    request.extensions_mut().insert(granted.widener());
                    State::Served {
                        future: serve(service, request, granted.group()),
                        grant: Some(granted),
                    }
                }
                StateProjection::Served { mut future, grant } => {
                    let response = ready!(future.as_mut().poll(context))?;
                    let (group, grant) = (future.group(), grant.take());
                    return Poll::Ready(Ok(
                        response.map(|body| TenantBody::in_group(body.in_group(group), grant))
                    ));
                }
                StateProjection::Answered { response } => {
                    let response = response.take().expect("polled after it was ready");
                    return Poll::Ready(Ok(response.map(TenantBody::of_nobody)));
                }
            };
            this.state.set(next);
        }
    }
}
