//! Bursar's pages as raw memory, for those who need an address: allocators, C, hardware.
//!
//! A [`bursar::Page`] is a token, and returns itself. [`into_raw`] gives the token up for an address, and [`from_raw`] has it
//! back once. Meanwhile the pages stay charged to their group, and the memory keeps note of them, so that freeing an address
//! twice, or a wrong one, is noticed before anything is touched.
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

mod collections;
mod raw;

pub use collections::GroupAlloc;
pub use raw::{FromRawError, from_raw, into_raw};
