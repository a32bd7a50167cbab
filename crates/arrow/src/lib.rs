//! Arrow, Parquet and object stores in groups of Bursar: bytes that their engines hold without asking.
//!
//! | bytes of | type | feature |
//! |---|---|---|
//! | row groups that wait in a writer of Parquet | [`ChargedWriter`] | `parquet`, `async` |
//! | ranges that an object store fetches or sends | [`ChargedStore`] | `object_store` |
//! | arrays that were imported, read from Arrow IPC, or mapped | [`Claim`], [`ClaimedReader`], [`ArrowPool`] | `claim` |
//!
//! No feature is on by default, and each type has an example. The major version is that of Arrow.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "async")]
mod async_writer;
#[cfg(feature = "claim")]
mod claim;
#[cfg(feature = "object_store")]
mod meter;
#[cfg(feature = "object_store")]
mod store;
#[cfg(feature = "object_store")]
mod upload;
#[cfg(feature = "parquet")]
mod writer;

#[cfg(feature = "claim")]
pub use claim::{ArrowPool, Claim, ClaimedReader};
#[cfg(feature = "object_store")]
pub use meter::OnRefusal;
#[cfg(feature = "object_store")]
pub use store::ChargedStore;
#[cfg(feature = "parquet")]
pub use writer::{
    ChargedWriter, Opening, ROW_GROUP_MIN, WriteError, batch_bytes, flush_largest, flushes_early,
};

/// The guide: its examples are compiled and run.
#[cfg(doctest)]
mod guides {
    #[cfg(all(feature = "async", feature = "claim", feature = "object_store"))]
    #[doc = include_str!("../../../docs/guides/arrow.md")]
    mod arrow {}
}
