//! The answer to come.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bursar_alloc::{InGroup, InGroupExt};
use http::Response;
use pin_project_lite::pin_project;

use crate::body::TenantBody;

pin_project! {
    /// A service's future in the group of its request, or the answer that was given in its place.
    #[must_use = "futures do nothing unless polled"]
    pub struct TenantFuture<F, B> {
        #[pin]
        state: State<F, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, B> {
        Served {
            #[pin]
            future: InGroup<F>,
        },
        Answered {
            // Until it is given.
            response: Option<Response<B>>,
        },
    }
}

impl<F, B> TenantFuture<F, B> {
    pub(crate) fn served(future: InGroup<F>) -> Self {
        Self {
            state: State::Served { future },
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

impl<F, B> fmt::Debug for TenantFuture<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = match &self.state {
            State::Served { future } => Some(future.group()),
            State::Answered { .. } => None,
        };
        f.debug_struct("TenantFuture")
            .field("group", &group)
            .finish_non_exhaustive()
    }
}

impl<F, B, E> Future for TenantFuture<F, B>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<TenantBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Served { mut future } => {
                let polled = future.as_mut().poll(context);
                let group = future.group();
                polled.map_ok(|response| {
                    response.map(|body| TenantBody::in_group(body.in_group(group)))
                })
            }
            StateProjection::Answered { response } => {
                let response = response.take().expect("polled after it was ready");
                Poll::Ready(Ok(response.map(TenantBody::of_nobody)))
            }
        }
    }
}
