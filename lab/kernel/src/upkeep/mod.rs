//! The kernel's periodic upkeep of per-CPU state, with the times that the thread of April 2026 proposed for it.
//!
//! | file | subject | in the kernel |
//! |---|---|---|
//! | `firing.rs`, `period.rs` | times at which a CPU's upkeep fires, and the clock for them | `round_jiffies_common` |
//! | `counters.rs`, `thresholds.rs` | counters that each CPU adds to on its own | `vm_stat_diff`, `stat_threshold` |
//! | `work.rs` | the work of upkeep, on the shepherd of [`bursar::housekeeping`] | `vmstat_update` |

mod counters;
mod firing;
mod period;
mod thresholds;
mod work;

pub use bursar::housekeeping::{HousekeepingError, Options, Place};
pub use counters::{COUNTERS_MAX, SmallCounters};
pub use firing::{Clocked, Firing, KERNEL_SKEW, ShepherdDelay, round_jiffies};
pub use period::{Period, PeriodError, Sharing};
pub use thresholds::threshold;
pub use work::{Housekeeping, Shepherd, Upkeep};
