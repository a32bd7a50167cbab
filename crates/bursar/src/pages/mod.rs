//! Pages of real memory, charged to groups: options, requests, reports.
//!
//! [`Group::alloc_pages`](crate::Group::alloc_pages) and [`Memory::alloc_pages`](crate::Memory::alloc_pages) return a
//! [`Page`](crate::Page). Pages come from a zone for each NUMA node. [`PageOptions`] sets the sizes of zones and of per-CPU lists.
//! [`Memory::zone_info`](crate::Memory::zone_info) reports what they hold, and [`Memory::stuck`](crate::Memory::stuck) reports
//! locks that are held for too long. No lock is held for more than [`HoldBounds`] while its holder runs.

mod bytes;
pub(crate) mod error;
pub(crate) mod many;
mod memory;
pub(crate) mod page;
pub(crate) mod raw;
pub(crate) mod request;

pub use bursar_machine::pages::{
    HugePages, NodeBinding, Order, OrderError, PAGE_BYTES, Pfn, ReserveError,
};

pub use crate::zones::{
    Histogram, HoldBounds, Holder, ListOptions, ListReport, PageOptions, PageSet, Place, Placement,
    Stuck, Urgency, Watermarks, Work, Zeroed, ZoneCounts, ZoneInfo, ZoneReport,
};

/// Parts of zones and lists, for page allocators that are compared with this one. Not for programs.
#[doc(hidden)]
pub mod parts {
    pub use crate::zones::parts::*;
}
