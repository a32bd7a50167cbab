//! HTTP requests charged to tenants: a [`tower_layer::Layer`] for axum, tonic and any other [`tower_service::Service`]
//! of requests.
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
//! let ticker = memory.start_ticker()?;                    // kept as long as the server runs
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
//! # drop((app, ticker));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Charged allocations
//! The request's group is charged for allocations in the service's `call`, in its future, and in the polls of the response's body.
//! It is also charged for allocations in the destructors of the future and the body. An allocation stays charged to that group
//! until a thread frees it. So bytes that the server's connection holds until they are written still count.
//!
//! The group is not charged for these allocations:
//!
//! * The connection's own buffers. The bytes of a request's body arrive in them: see [bodies](#bodies).
//! * Tasks that a handler spawns, unless it puts them in the group. Requests carry the group as an extension, so a handler of
//!   axum's takes it by `Extension(tenant): Extension<Group>`, and spawns `work.in_group(&tenant)` ([`bursar_alloc::InGroupExt`]).
//! * The output of a panic: [`TenantLayer::new`] calls [`bursar_alloc::panics_charge_nobody`].
//!
//! Allocate values that outlive the request, as in a cache, within [`bursar_alloc::outside`]. A runtime may keep a block too. Each
//! worker of tokio keeps a queue of tasks that yielded, of 80 bytes or a few more, and the first task that yields there pays
//! for it. [`bursar_alloc::Charged`] lists other charges that may surprise.
//!
//! Without [`bursar_alloc::Charged`] as the global allocator nothing is counted, and requests are served as before.
//!
//! # Limits
//! No allocation fails because of a limit; the group then exceeds the limit. So the layer asks before it serves: the
//! function that picks a request's group can read [`bursar::Group::is_over_max`], and can answer in place of the service.
//! Requests in progress go on, so a tenant exceeds its limit by the memory that these take.
//!
//! # Admission
//! With an arbiter, a request waits for memory in place of being refused ([`Admission::Asked`]): [`ask_for`] asks for the bytes of its
//! `Content-Length`, and [`refusal`] makes an answer with `Retry-After` for one that waited too long. The ticker of the arbiter
//! ([`bursar_arbiter::Arbiter::start_ticker`]) notices that. A function that picks `Admission::Granted` for a path, such as that of health
//! checks, lets these requests through.
//!
//! # Bodies
//! [`BodyLayer`], placed below [`TenantLayer`], charges each chunk of a request's body before it is handed on. It reserves the body's length, or
//! a window, before the first byte is read ([`BodyPolicy`]). While the memory is not there, the body is not read, so its client is held back.
//!
//! ```
//! use axum::body::Body;
//! use axum::http::Request;
//! use axum::{Router, routing::post};
//! use bursar::{Limits, Memory};
//! use bursar_tower::{Admission, BodyLayer, BodyPolicy, TenantLayer};
//!
//! let memory = Memory::builder().ticker(true).build()?;
//! let gold = memory.root().child("gold", Limits::max(64 << 20))?;
//! let tenants = TenantLayer::new(move |_: &Request<Body>| Admission::<Body>::Granted(gold.clone()));
//! let bodies = BodyLayer::new(|_: &Request<Body>| BodyPolicy::streamed(128 << 10));
//! let app: Router = Router::new()
//!     .route("/", post(async |body: Body| drop(body)))
//!     .layer(bodies)
//!     .layer(tenants);                                    // runs first
//! # drop(app);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Run a ticker
//! An allocation or a free calls no callback and does not wait. So it leaves callbacks, and stock that must be taken back,
//! to the next call that may wait: a reservation that is about to be refused, a limit that is set, or a tick. A server that
//! only allocates has none of these. Start [`bursar::Memory::start_ticker`] and keep what it returns as long as the
//! server runs, or call [`bursar::Memory::tick`] from a timer. Without a tick
//!
//! * callbacks of pressure ([`bursar::Group::on_pressure`]) may never be called, and tasks that wait for memory may never
//!   be woken;
//! * `is_over_max` may report a tenant over its limit although its memory is freed: the usage that it compares with the
//!   limit includes stock. CPUs keep up to 256 KiB of freed bytes each for a group, less near a limit. Once in a flush
//!   period (2 s) a tick takes back the stock above a quarter of the limit's remaining room. So give tenants limits
//!   that are much larger.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// The guides whose examples need this crate: they are compiled and run.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/tower.md")]
    mod tower {}
    #[doc = include_str!("../../../docs/guides/bodies.md")]
    mod bodies {}
}

mod admission;
mod asked;
mod body;
mod body_error;
mod body_layer;
mod body_policy;
mod charged_body;
mod future;
mod layer;
mod pace;
mod purse;

pub use admission::Admission;
pub use asked::{Asked, ask_for, refusal};
pub use body::TenantBody;
pub use body_error::BodyError;
pub use body_layer::{BodyFuture, BodyLayer, BodyService};
pub use body_policy::BodyPolicy;
pub use charged_body::ChargedBody;
pub use future::TenantFuture;
pub use layer::{TenantLayer, TenantService};
