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
//! # What is charged, and to whom
//! What is allocated by the service's `call`, by its future whichever threads poll it, and by the response's body when it is
//! polled; also by the destructors of both. It stays charged to that group until it is freed, by whomever: what the server's
//! connection holds until it is written counts on. Not charged is what others allocate: the connection's own buffers, among
//! them those that a request's body arrives in, and tasks that a handler spawns, unless they are put in the group: requests carry
//! it as an extension, so a handler of axum's has it by `Extension(tenant): Extension<Group>`, and spawns `work.in_group(&tenant)`
//! ([`bursar_alloc::InGroupExt`]). What a request leaves for others, as in a cache, is best made
//! [outside](bursar_alloc::outside). A runtime may leave something too: tokio's workers keep a queue of tasks that yielded, 80
//! bytes or a few more, which is charged to whoever yields first on each. [`bursar_alloc::Charged`] lists what else is charged by
//! surprise. What a panic prints is not charged: [`TenantLayer::new`] sees to that.
//!
//! Without [`bursar_alloc::Charged`] as the global allocator nothing is counted, and requests are served as ever.
//!
//! # What limits do
//! An allocation never fails for a limit; the group is over it then. So the layer asks before it serves: what picks a request's
//! group sees [`bursar::Group::is_over_max`], and may answer in place of the service. Requests that are served already go on, so a
//! tenant oversteps its limit by what those take that were let in before.
//!
//! # Run a ticker
//! Allocating and freeing call nobody and wait for nobody, so what they have to tell and to take back is left to whoever comes next
//! and may wait: a reservation that is about to be refused, a limit that is set, or a tick. A server that only allocates has none of
//! these. Start [`bursar::Memory::start_ticker`] and keep what it returns as long as the server runs, or call
//! [`bursar::Memory::tick`] from a timer. Without it
//!
//! * those who watch pressure ([`bursar::Group::on_pressure`]) may never be told of what was allocated or freed, nor those be woken
//!   who wait for memory;
//! * `is_over_max` may say that a tenant is over its limit whose memory is freed: what it compares with the limit includes stock,
//!   which CPUs keep of what was freed, up to 256 KiB a CPU and group, less as a limit nears. Once a flush period (2 s) a tick
//!   takes back what is more than a quarter of what the limit has left. So give tenants limits that are large beside that.

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
