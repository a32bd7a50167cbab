//! The policies of the page-allocator thread of September 2025 ("batch page freeing"), on the substrate of their time.
//!
//! Each CPU has lists of free pages, and all CPUs share one zone: a buddy allocator under one lock, with nothing in
//! between. Allocations take from the CPU's lists and refill them from the zone. Frees put into the lists, and give the
//! lists' surplus back to the zone. The thread is about how many pages one hold of the zone's lock may free: see
//! [`Release`].
//!
//! | part | file | kernel (`mm/page_alloc.c`) |
//! |---|---|---|
//! | the policies as values, and sizes | `policy.rs` | |
//! | allocations and frees | `pcp.rs` | `rmqueue_pcplist()`, `free_frozen_page_commit()`, `free_unref_folios()` |
//! | decay and drains | `drain.rs` | `decay_pcp_high()`, `drain_pages_zone()`, `drain_all_pages()` |
//! | the lists of one CPU | `lists.rs` | `struct per_cpu_pages` |
//! | the zone, its lock and its watermark | `zone.rs` | `rmqueue_bulk()`, `free_pcppages_bulk()`, `free_one_page()` |
//! | figures of its holds | `holds.rs` | |
//!
//! [`bursar::pages::parts`] decides how many pages move, from the size of the zone and the number of CPUs.
//!
//! # Differences from the kernel
//! * One zone of one node, and one migrate type: 5 lists a CPU (orders 0 to 3 and 9) where the kernel has 14.
//! * The mark that a zone is below its high watermark follows its free pages exactly. The kernel sets it when an allocation
//!   finds it so, by a counter that is a little behind.
//! * A page under the zone's lock takes [`ZONE_PAGE_NS`], whether it is taken or given back, and wherever its record is.
//! * `zone-break` knows at no cost whether a task waits for the zone's lock; the kernel reads that off the lock.
//! * Decay takes the lock of a CPU's lists to lower what they may keep; the kernel takes it only where there are pages to give
//!   back.
//! * There is no reclaim: a load that models reclaim announces it ([`PageLists::set_reclaim`]). An allocation fails if
//!   the zone has nothing left; the load must then drain other CPUs' lists if it wants to.

mod drain;
mod holds;
mod lists;
mod pcp;
mod policy;
mod zone;

pub use holds::{HoldFigures, HoldsOfCause, LONG_PAGES};
pub use pcp::{Counts, PageLists};
pub use policy::{Cause, DrainHold, Measured, Release, Settings, ZONE_PAGE_NS};
pub use zone::Reclaim;

#[cfg(test)]
mod tests;
