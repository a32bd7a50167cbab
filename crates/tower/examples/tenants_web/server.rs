//! The server: connections that are waited for, and tenants that are told by a header.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::IntoResponse;
use bursar::Group;
use bursar_tower::{Admission, TenantLayer};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The header that names a request's tenant.
pub const TENANT: &str = "x-tenant";

/// Groups by the names of their tenants.
pub type Tenants = Arc<BTreeMap<String, Group>>;

/// Serves `routes` in the groups of their requests' tenants: 403 if there is no such tenant, 503 if it is over its limit.
pub fn in_tenants(routes: Router, tenants: &Tenants) -> Router {
    let tenants = tenants.clone();
    routes.layer(TenantLayer::new(move |request: &Request<Body>| {
        let name = request.headers().get(TENANT);
        let name = name.and_then(|name| name.to_str().ok());
        let Some(group) = name.and_then(|name| tenants.get(name)) else {
            return Admission::Refused(StatusCode::FORBIDDEN.into_response());
        };
        if group.is_over_max() {
            return Admission::Refused(StatusCode::SERVICE_UNAVAILABLE.into_response());
        }
        Admission::Granted(group.clone())
    }))
}

/// Serves connections until `stop`, and those that are open until their clients close them. When it returns, all that they
/// held is freed.
pub async fn serve(listener: TcpListener, app: Router, stop: impl Future<Output = ()>) {
    let mut stop = pin!(stop);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    let service = TowerToHyperService::new(app.clone());
                    let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    connections.spawn(async {
                        // A client that is gone is no error of the server's.
                        drop(served.await);
                    });
                }
            }
        }
    }
    while connections.join_next().await.is_some() {}
}
