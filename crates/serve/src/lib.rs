//! A Unix socket that shows the groups of a [`Memory`](bursar::Memory) to `curl`, scripts and the tool `bursar`.
//!
//! ```
//! use bursar::{Limits, Memory};
//!
//! let memory = Memory::builder().max(1 << 30).build()?;
//! let acme = memory.root().child("acme", Limits::max(64 << 20))?;
//! let server = bursar_serve::Server::start(&memory)?;     // kept as long as the program runs
//! println!("curl --unix-socket {} http://localhost/v1/tree", server.path().display());
//! # drop(acme);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Answers
//! | request | answer |
//! |---|---|
//! | `GET /` | a list of these requests, as text |
//! | `GET /v1/tree?freshness=exact&path=/acme&depth=2` | the groups as JSON; `freshness` is `cached` (the default), `exact`, or an age such as `500ms` |
//! | `GET /v1/refusals` | the last refusals as JSON, each with the tree of its moment |
//! | `GET /v1/leftovers` | groups that have ended with bytes charged as JSON, the biggest first |
//! | `GET /v1/admissions` | grants, waiters and counts of the arbiter as JSON; only if [the program gave one](Builder::arbiter) |
//! | `GET /v1/decisions` | the last decisions of that arbiter in shortages as JSON: who was asked for memory, stopped or refused, and for whom |
//! | `GET /metrics` | OpenMetrics text, as [`bursar_prometheus`] has it |
//! | `GET /v1/groups/acme/` | the files and the children of `/acme`, a line each |
//! | `GET /v1/groups/acme/memory.max` | a file, as in cgroup v2: `memory.current`, `memory.max`, `memory.high`, `memory.low`, `memory.min`, `memory.peak`, `memory.events`, `memory.events.local`, `memory.pressure`, `memory.stat` |
//!
//! `HEAD` works too. Any other method is refused: nothing can be changed through the socket. Names in paths are percent-encoded.
//! Each connection carries one request. An answer without `Content-Length` ends with the connection.
//! `docs/live-schema.md` describes the JSON.
//!
//! # Access
//! The socket has mode 0600, in a directory that belongs to the server's user and has mode 0700. So other users cannot connect. The
//! server also asks the system who connected, and answers only its own user and root.
//!
//! # Costs
//! One thread serves all connections, and sleeps while there is nothing to do. It has at most 64 connections, each with a head of
//! at most 8 KiB. A tree is written in pieces of 64 KiB, but its snapshot is in memory until the client has read it. While answers in
//! progress hold more than 64 MiB, further requests are answered 503. A request delays other requests, and charges no more than
//! [`Memory::snapshot`](bursar::Memory::snapshot) does.
//!
//! # Ends of groups
//! A request that names a group has a handle of it, as long as it looks at it. If the program drops its last handle meanwhile, the
//! group's name is free a moment later. [`Group::close`](bursar::Group::close) frees the name at once.
//!
//! # Fork
//! A forked child has no thread that serves. A [`Server`] that is dropped in the child leaves the parent's socket alone.
//!
//! # Systems
//! Unix only. Elsewhere the crate is empty.

#![cfg(unix)]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// The guide whose example needs this crate: it is compiled and run.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/live.md")]
    mod live {}
}

mod admissions;
mod clock;
mod connection;
mod decisions;
mod error;
mod files;
mod find;
mod pages;
mod peer;
mod poll;
mod request;
mod response;
mod route;
mod server;
mod socket;
mod tree;

pub use error::StartError;
pub use find::{DeadSocket, Found, default_paths, find};
pub use pages::Pages;
pub use response::Page;
pub use server::{Builder, Server};
pub use socket::default_path;
