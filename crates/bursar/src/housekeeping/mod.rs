//! Periodic upkeep of per-CPU state: small counters are folded and page lists decay, at different times on different
//! CPUs.
//!
//! | file | subject | in the kernel |
//! |---|---|---|
//! | `firing.rs`, `period.rs` | times at which a CPU's upkeep fires | `round_jiffies_common` |
//! | `counters.rs`, `thresholds.rs` | counters that each CPU adds to on its own | `vm_stat_diff`, `stat_threshold` |
//! | `upkeep.rs` | the work of upkeep, and its settings | `refresh_cpu_vm_stats` |
//! | `shepherd.rs`, `state.rs` | finding CPUs that need upkeep, and one call at a time for each | `vmstat_shepherd`, `vmstat_update` |
//! | `upkeeper.rs` | calls on a host: from the user's thread, or from threads of our own | workqueues |
//!
//! A *shepherd* looks at all CPUs once an interval. Where there is work, and upkeep is neither queued nor running, it
//! queues upkeep. A CPU's upkeep repeats by itself as long as it finds work, and then ends until the shepherd finds
//! some. Isolated CPUs are left alone.
//!
//! Nothing here runs by itself unless asked. [`Housekeeping`] returns the timers to queue, and is called when they
//! expire. So it runs on a workqueue, on threads, or on a simulated machine alike. [`Upkeeper`] calls it where there is
//! no workqueue: from its user's thread, or on a few threads.
//!
//! ```
//! use bursar::Host;
//! use bursar::housekeeping::{Options, Period, SmallCounters, Upkeep, Upkeeper, threshold};
//! use bursar::machine::{Machine, Shard};
//!
//! /// Counts requests.
//! struct Requests(SmallCounters<Host>);
//!
//! impl Upkeep for Requests {
//!     fn needs(&self, shard: Shard) -> bool {
//!         self.0.needs_fold(shard)
//!     }
//!     fn fold(&self, shard: Shard) -> bool {
//!         self.0.fold(shard) > 0
//!     }
//!     fn pages(&self, _: Shard) -> bool {
//!         false
//!     }
//! }
//!
//! let machine = Host::start()?;
//! let threshold = threshold(machine.cpus(), 1 << 18);
//! let requests = Requests(SmallCounters::new(&machine, 1, threshold)?);
//! let options = Options::new(Period::new(1_000_000_000, 1_000)?);
//! let upkeeper = Upkeeper::new(&machine, requests, options)?;
//!
//! let counters = &upkeeper.upkeep().0;
//! (0..1_000).for_each(|_| counters.inc(0));
//! let held_back = 1_000 - counters.read(0);
//! assert!(held_back <= threshold * machine.cpus() as i64);
//! assert_eq!(counters.precise(0), 1_000);
//!
//! // On a thread of the library, until the returned value is dropped:
//! let threads = upkeeper.start(1)?;
//! // Or on a thread of your own: `upkeeper.tick()` does the due work, and returns the time of its next call.
//! drop(threads);
//! let next_ns = upkeeper.tick();
//! assert!(next_ns > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod counters;
mod firing;
mod period;
mod shepherd;
mod state;
mod thresholds;
mod upkeep;
mod upkeeper;

pub use counters::{COUNTERS_MAX, SmallCounters};
pub use firing::{Firing, KERNEL_SKEW, round_jiffies};
pub use period::{Period, PeriodError, Place, Sharing};
pub use shepherd::Housekeeping;
pub use thresholds::{drift_mark, pressure_threshold, threshold};
pub use upkeep::{HousekeepingError, Options, Upkeep};
pub use upkeeper::{UpkeepThreads, Upkeeper};

use std::ops::Deref;

/// Value on cache lines of its own. Two lines, because processors fetch them in pairs.
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
