//! Caches that give memory back: entries charged to a group, and a target led by the process's resident memory.
//!
//! [`Held::charged`] charges an entry before it is cached. [`evict_from`] makes a cache evict entries when its group, or a group above it, needs memory.
//! The cache stays the program's own, with all its methods. Features `moka` and `quick_cache` implement [`Evict`] for these crates.
//!
//! ```
//! use bursar::{Limits, Memory};
//! # #[cfg(feature = "quick_cache")]
//! use bursar_cache::QuickCache;
//! use bursar_cache::{Held, evict_from};
//! use std::sync::Arc;
//!
//! # #[cfg(feature = "quick_cache")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let memory = Memory::host()?;
//! let group = memory.root().child("cache", Limits::max(64 << 20))?;
//! let cache = Arc::new(QuickCache::new(64));                          // about as many entries as fit
//! let _reclaimer = evict_from(&group, 0, cache.clone());              // keep it as long as the cache
//! for key in 0..200 {
//!     let entry = Held::charged(&group, 1 << 20, || vec![0u8; 1 << 20])?;   // 200 MiB into 64 MiB: others go
//!     cache.insert(key, entry);
//! }
//! assert!(cache.get(&199).is_some_and(|entry| entry.len() == 1 << 20));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "quick_cache"))]
//! # fn main() {}
//! ```
//!
//! # By resident memory
//! Charges are what code asks for. The process takes more: what the allocator keeps, what nobody charges. A [`CacheController`] looks at
//! [`bursar_arbiter::Real`] and moves the `high` of a group of caches, so that the process stays near a part of the root's limit.
//! [`CachePolicy`] has its gain, and says why it does not oscillate.
//!
//! # Which cache
//! `quick_cache` evicts by its own policy, because its capacity can be lowered. From its first eviction on, it no longer knows which keys it evicted. `moka` has no such method, so its entries go in the order of
//! its iterator, which does not know what was used last. Its entries need a [`Place`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod controller;
mod held;
#[cfg(feature = "moka")]
mod moka;
#[cfg(feature = "quick_cache")]
mod quick_cache;

pub use controller::{CacheController, CacheLook, CachePolicy};
pub use held::{Evict, Held, evict_from};
#[cfg(feature = "moka")]
pub use moka::Place;
#[cfg(feature = "quick_cache")]
#[cfg_attr(docsrs, doc(cfg(feature = "quick_cache")))]
pub use quick_cache::{ByCharge, QuickCache};

/// The README and the guide: their examples are compiled and run.
#[cfg(doctest)]
mod guides {
    #[cfg(all(feature = "moka", feature = "quick_cache"))]
    #[doc = include_str!("../../../docs/guides/cache.md")]
    mod cache {}
}
