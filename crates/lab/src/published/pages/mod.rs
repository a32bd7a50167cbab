//! The policies of the page-allocator thread of September 2025 ("batch page freeing"), on the substrate of their time.
//!
//! Each CPU has lists of free pages, and all CPUs one zone: a buddy allocator under one lock, with nothing in between.
//! Allocations take from the CPU's lists and refill them from the zone; frees put into the lists, and give back to the zone
//! what the lists have too much of. How many pages one hold of the zone's lock may free is what the thread is about: see
//! [`Release`].
//!
//! | part | file | kernel (`mm/page_alloc.c`) |
//! |---|---|---|
//! | the policies as values, and sizes | `policy.rs` | |
//! | allocations and frees | `pcp.rs` | `rmqueue_pcplist()`, `free_frozen_page_commit()`, `free_unref_folios()` |
//! | decay and drains | `drain.rs` | `decay_pcp_high()`, `drain_pages_zone()`, `drain_all_pages()` |
//! | the lists of one CPU | `lists.rs` | `struct per_cpu_pages` |
//! | the zone, its lock and its watermark | `zone.rs` | `rmqueue_bulk()`, `free_pcppages_bulk()`, `free_one_page()` |
//! | what its holds were like | `holds.rs` | |
//! | CPUs that stop while they hold it | `stops.rs` | |
//!
//! How many pages move is decided by [`bursar::pages::tuning`], from the size of the zone and the number of CPUs.
//!
//! # Where this differs
//! * One zone of one node, and one migrate type: 5 lists a CPU (orders 0 to 3 and 9) where the kernel has 14.
//! * The mark that a zone is below its high watermark follows its free pages exactly. The kernel sets it when an allocation
//!   finds it so, by a counter that is a little behind.
//! * Who found the zone's lock taken counts itself in a word beside it, since no lock of the seam says whether somebody waits;
//!   the kernel reads that off the lock. It is done under every policy, so that none has the cost alone.
//! * Decay takes the lock of a CPU's lists to lower what they may keep; the kernel takes it only where there are pages to give
//!   back.
//! * There is no reclaim: who models it says so ([`PageLists::set_reclaim`]). An allocation fails where the zone has nothing
//!   left; that other CPUs' lists are drained then is up to the load.

mod drain;
mod holds;
mod lists;
mod pcp;
mod policy;
mod stops;
mod zone;

pub use holds::{HoldFigures, LONG_PAGES};
pub use pcp::{Counts, PageLists};
pub use policy::{DrainHold, Measured, Release, Settings};
pub use stops::Stops;
pub use zone::Reclaim;

#[cfg(test)]
mod tests;
