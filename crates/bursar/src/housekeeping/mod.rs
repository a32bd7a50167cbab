//! Periodic upkeep of per-CPU state, at different times on different CPUs. [`Memory::housekeeping`] gives page lists such
//! an upkeep.
//!
//! | file | subject | in the kernel |
//! |---|---|---|
//! | `grid.rs` | times at which a CPU's upkeep fires | `round_jiffies_common` |
//! | `upkeep.rs` | the work of upkeep, and its settings | `refresh_cpu_vm_stats` |
//! | `shepherd/`, `state.rs` | finding CPUs that need upkeep, and one call at a time for each | `vmstat_shepherd`, `vmstat_update` |
//! | `upkeeper/` | calls on a host: from the user's thread, or from threads of our own | workqueues |
//!
//! A *shepherd* looks at all CPUs once an interval. Where there is work, and upkeep is neither queued nor running, it
//! queues upkeep. A CPU's upkeep repeats by itself as long as it finds work, and then ends until the shepherd finds
//! some. Isolated CPUs are left alone.
//!
//! Nothing here runs by itself unless asked. [`Housekeeping`] returns the times to wait for, and is called when they
//! have come. So it runs on a workqueue, on threads, or on a simulated machine alike. [`Upkeeper`] calls it where there is
//! no workqueue: from its user's thread, or on a few threads.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::time::Duration;
//!
//! use bursar::Host;
//! use bursar::housekeeping::{Options, Upkeep, Upkeeper};
//! use bursar_machine::{Machine, Shard};
//!
//! /// Entries that each CPU has put into a log of its own, to be written later.
//! struct Logs(Vec<AtomicU64>);
//!
//! impl Upkeep for Logs {
//!     fn needs(&self, shard: Shard) -> bool {
//!         self.0[shard.index()].load(Ordering::Relaxed) > 0
//!     }
//!     fn run(&self, shard: Shard) -> bool {
//!         self.0[shard.index()].swap(0, Ordering::Relaxed) > 0
//!     }
//! }
//!
//! let machine = Host::start()?;
//! let logs = Logs((0..=machine.cpus()).map(|_| AtomicU64::new(0)).collect());
//! let upkeeper = Upkeeper::new(&machine, logs, Options::every(Duration::from_secs(1)))?;
//!
//! // On a thread of the library, until the returned value is dropped:
//! let threads = upkeeper.start(1)?;
//! // Or on a thread of your own: `upkeeper.tick()` does the due work, and returns the time of its next call.
//! drop(threads);
//! let next_ns = upkeeper.tick();
//! assert!(next_ns > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Memory::housekeeping`]: crate::Memory::housekeeping

mod grid;
mod shepherd;
mod state;
mod upkeep;
mod upkeeper;

pub use grid::{Grid, Place, Timetable};
pub use shepherd::Housekeeping;
pub use upkeep::{HousekeepingError, Options, Upkeep};
pub use upkeeper::{UpkeepThreads, Upkeeper};
