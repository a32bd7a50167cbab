//! Periodic upkeep of what each CPU keeps for itself: small counters are folded, page lists decay, and not all CPUs at once.
//!
//! | file | what it is about | in the kernel |
//! |---|---|---|
//! | `firing.rs`, `period.rs` | when a CPU's upkeep fires | `round_jiffies_common` |
//! | `counters.rs`, `thresholds.rs` | counters that each CPU adds to on its own | `vm_stat_diff`, `stat_threshold` |
//! | `upkeep.rs` | what upkeep does, and its settings | `refresh_cpu_vm_stats` |
//! | `shepherd.rs`, `state.rs` | who needs upkeep, and that nobody has it twice at once | `vmstat_shepherd`, `vmstat_update` |
//!
//! A *shepherd* looks at all CPUs once an interval. Where there is work, and upkeep is neither queued nor running, it queues it.
//! A CPU's upkeep comes again by itself as long as it finds work, and then ends until the shepherd finds some. Isolated CPUs
//! are left alone.
//!
//! Nothing here runs by itself or sleeps: [`Housekeeping`] says what is to be queued for when, and is called. So it runs on
//! a workqueue, on threads, or on a simulated machine alike.

mod counters;
mod firing;
mod period;
mod shepherd;
mod state;
mod thresholds;
mod upkeep;

pub use counters::{COUNTERS_MAX, SmallCounters};
pub use firing::{Firing, KERNEL_SKEW, round_jiffies};
pub use period::{Period, PeriodError, Place, Sharing};
pub use shepherd::Housekeeping;
pub use thresholds::{drift_mark, pressure_threshold, threshold};
pub use upkeep::{HousekeepingError, Options, Upkeep};

use std::ops::Deref;

/// On lines of its own. Two lines, since processors fetch them in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Apart<T>(T);

impl<T> Deref for Apart<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}
