//! Allocators that charge groups: a global allocator, futures that carry their group, collections on a group, and pages
//! as raw memory. `bursar` itself forbids `unsafe` code, so these are in a crate of their own.
//!
//! # The program's allocator
//! [`Charged`] wraps any global allocator. A thread's allocations while it is in a group are charged to that group, by
//! the bytes that they really take. A free returns them to the same group, on any thread.
//!
//! ```
//! use std::alloc::System;
//! use bursar::{Freshness, Limits, Memory};
//! use bursar_alloc::{Charged, GroupExt, InGroupExt};
//!
//! #[global_allocator]
//! static HEAP: Charged<System> = Charged::new(System);
//!
//! let memory = Memory::host()?;
//! let tenant = memory.root().child("tenant", Limits::max(256 << 20))?;
//! let table = tenant.scope(|| vec![7_u64; 10_000]);           // this thread, for a while
//! let task = async { String::from("any executor") }.in_group(&tenant);    // whoever polls it
//! assert!(tenant.read(Freshness::Exact)?.usage().value >= 80_000);
//! # drop((table, task));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Collections
//! Allocating through [`Charged`] never fails because of a limit. Collections that take an allocator of their own can
//! be refused: on a [`GroupAlloc`] `try_reserve` fails, and the program goes on. They do not need [`Charged`]; beside
//! it, their bytes are still charged once.
//!
//! # Pages as raw memory
//! A [`bursar::Page`] is a token, and returns itself. [`into_raw`] exchanges the token for an address, and [`from_raw`]
//! exchanges the address for the token, once. Meanwhile the pages stay charged to their group. The [`bursar::Memory`]
//! records them. So [`from_raw`] of a wrong address, or of one address twice, returns an error and touches no memory.
//!
//! ```
//! use bursar::pages::{Order, Zeroed};
//! use bursar::{Limits, Memory};
//!
//! let memory = Memory::host()?;
//! let group = memory.root().child("buffers", Limits::max(1 << 20))?;
//! let address = bursar_alloc::into_raw(group.alloc_pages(Order::new(4), Zeroed::No)?);
//! // SAFETY: 64 KiB that are ours.
//! unsafe { address.write_bytes(1, 64 << 10) };
//! // SAFETY: it came from `into_raw`, and nobody uses it any more.
//! let page = unsafe { bursar_alloc::from_raw(&memory, address) }?;
//! drop(page);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]
#![deny(clippy::undocumented_unsafe_blocks)]

/// Guides whose examples need this crate: they are compiled and run.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/allocator.md")]
    mod allocator {}
    #[doc = include_str!("../../../docs/guides/async-server.md")]
    mod async_server {}
}

mod collections;
mod heap;
mod raw;

pub use collections::GroupAlloc;
pub use heap::{
    ByLayout, Charged, Entered, GroupExt, HeapDrift, InGroup, InGroupExt, RealSize, Twin, Usable,
    UsableByClass, current, heap_drift, outside, panics_charge_nobody, with_current,
};
pub use raw::{FromRawError, from_raw, into_raw};
