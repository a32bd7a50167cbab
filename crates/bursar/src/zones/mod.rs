//! Zones of pages: from the buddy through a depot of batches to per-CPU lists.
//!
//! | file | subject |
//! |---|---|
//! | `alloc.rs` | choice of the zone for an allocation, and the steps when it is empty |
//! | `zone/` | the pages of one node: tiers, watermarks, the zone lock |
//! | `refill.rs` | a CPU's list that is empty or full |
//! | `lists.rs`, `tuned.rs`, `tuning/` | per-CPU lists, and how many pages they may hold |
//! | `depot.rs` | batches between the lists and the buddy |
//! | `buddy/` | free blocks by order |
//! | `quiesce.rs` | taking blocks off other CPUs' lists |
//! | `upkeep.rs`, `last_upkeep.rs` | periodic work, and its state from one time to the next |
//! | `table.rs` | pages that are held as raw memory |
//! | `hold/`, `histogram.rs` | holders of locks, and times of holds and waits |
//! | `report.rs` | reports, and locks held for too long |
//! | `sizes.rs`, `options.rs` | sizes that follow from a zone's, and those that are set |
//!
//! Nothing here knows of groups except the number that tells one owner's bytes from another's.
//!
//! # Rules
//! * A block is in one place: a list, a batch, the buddy, or a caller's hands. Its token is moved, never copied.
//! * No lock is held while memory is zeroed or given back to the system, and none for more than [`HoldBounds`].
//! * A caller that finds a list frozen, or a shelf's lock taken, goes on to the next tier; no caller waits for a drain.
//! * A free never fails, and waits for nothing but short locks.

mod alloc;
mod buddy;
mod depot;
#[cfg(test)]
mod fixture;
mod histogram;
mod hold;
mod last_upkeep;
mod lists;
mod options;
mod pool;
mod quiesce;
mod refill;
#[cfg(test)]
mod refusing;
mod report;
mod sizes;
mod table;
mod tuned;
mod tuning;
mod upkeep;
mod zone;

pub(crate) use alloc::{NoBlock, Zones};
pub use alloc::{Placement, Urgency};
pub use histogram::Histogram;
pub use hold::{Holder, Work};
pub use options::{HoldBounds, ListOptions, PageOptions, Zeroed};
pub(crate) use pool::Pool;
pub use report::{ListReport, PageSet, Place, Stuck, ZoneCounts, ZoneInfo, ZoneReport};
pub use sizes::Watermarks;
pub(crate) use table::NotRaw;
pub(crate) use zone::Zone;

/// Parts that `pages::parts` shows.
pub mod parts {
    pub use super::buddy::{Buddy, SpareTable};
    pub use super::sizes::{batch, high_max, high_min};
    pub use super::tuning::{Limits, Shortage, Tuning};
}
