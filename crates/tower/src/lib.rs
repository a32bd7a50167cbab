//! HTTP requests charged to tenants: a [`tower_layer::Layer`] for axum, tonic and whatever else serves requests by way of
//! [`tower_service::Service`].
//!
//! ```
//! use std::alloc::System;
//!
//! use axum::body::Body;
//! use axum::http::{Request, StatusCode};
//! use axum::response::IntoResponse;
//! use axum::{Router, routing::get};
//! use bursar::{Limits, Memory};
//! use bursar_alloc::Charged;
//! use bursar_tower::{Admission, TenantLayer};
//!
//! #[global_allocator]
//! static HEAP: Charged<System> = Charged::new(System);
//!
//! let memory = Memory::host()?;
//! let gold = memory.root().child("gold", Limits::max(64 << 20))?;
//! let tenants = TenantLayer::new(move |request: &Request<Body>| {
//!     match request.headers().get("x-tenant") {
//!         Some(name) if name == "gold" && gold.is_over_max() => {
//!             Admission::Refused(StatusCode::SERVICE_UNAVAILABLE.into_response())
//!         }
//!         Some(name) if name == "gold" => Admission::Granted(gold.clone()),
//!         _ => Admission::Refused(StatusCode::FORBIDDEN.into_response()),
//!     }
//! });
//! let app: Router = Router::new()
//!     .route("/", get(async || vec![b'.'; 1 << 20]))      // is gold's until it is sent
//!     .layer(tenants);
//! # drop(app);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is charged, and to whom
//! What is allocated by the service's `call`, by its future whichever threads poll it, and by the response's body when it is
//! polled; also by the destructors of both. It stays charged to that group until it is freed, by whomever: what the server's
//! connection holds until it is written counts on. Not charged is what others allocate: the connection's own buffers, among
//! them those that a request's body arrives in, and tasks that a handler spawns, unless they are put in the group:
//! requests carry it as an extension ([`bursar_alloc::InGroupExt`]). What a request leaves for others, as in a cache, is best made
//! [outside](bursar_alloc::outside). A runtime may leave something too: tokio's workers keep a queue of tasks that yielded, 80
//! bytes or a few more, which is charged to whoever yields first on each.
//!
//! Without [`bursar_alloc::Charged`] as the global allocator nothing is counted, and requests are served as ever.
//!
//! # What limits do
//! An allocation never fails for a limit; the group is over it then. So the layer asks before it serves: what picks a request's
//! group sees [`bursar::Group::is_over_max`], and may answer in place of the service. Requests that are served already go on.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod admission;
mod body;
mod future;
mod layer;

pub use admission::Admission;
pub use body::TenantBody;
pub use future::TenantFuture;
pub use layer::{TenantLayer, TenantService};
