//! Replay of a recording of a running kernel: the same load on a simulated machine, under the recorded policy and under others.
//!
//! | part | file |
//! |---|---|
//! | the load that a recording shows | `load.rs`; its clock: `clock.rs` |
//! | the policies, and the one that the recorded kernel had | `policy.rs` |
//! | the measures, and their figures as seen | `measure.rs`, `seen.rs` |
//! | a run: upkeep and page bursts | `run.rs`, `books.rs`, `stash.rs` |
//! | a run: flushes | `flushes.rs` |
//! | figures of a run | `outcome.rs` |
//! | the rule for agreement | `agreement.rs` |
//!
//! # The load
//! * **When a CPU has something to do.** A CPU has counters to fold in the time before a call that queued itself again. A
//!   call that did not do so had found nothing.
//! * **The phase of the ticks.** The simulated ticks are those of the recorded kernel, modulo the second and the
//!   wheel's buckets. So an upkeep falls on the tick on which it fell there.
//! * **When a CPU slept.** A deferrable timer that expired late had waited for its CPU to wake up. A timer of the
//!   replay that expires in the same gap waits for the same moment.
//! * **Pages.** A burst moves as many pages at the same moment on the same CPU. Pages of upkeep become due between two
//!   recorded calls, and the next call of the replay gives them back, at most 2,016 at a time.
//! * **The time of a call without pages, and the mean time of a page**, because these depend on the hardware and the
//!   tracing.
//!
//! # Limits
//! Tasks that hold the zone's lock for single pages, the memory's state, idle times that no late timer shows, the CPUs on
//! which updates of statistics were pending. [`Load::unknown`] lists what applies to a recording.

#![forbid(unsafe_code)]

mod agreement;
mod books;
mod clock;
mod flushes;
mod load;
mod measure;
mod outcome;
mod policy;
mod run;
mod seen;
mod stash;
mod what_if;

#[cfg(test)]
mod tests;

pub use agreement::{Agreement, CRITERION, agreement};
pub use load::{Load, LoadError};
pub use measure::{Figures, MEASURES, Measure, Part};
pub use policy::{Policies, Stock};
pub use run::run;
pub use seen::seen;
pub use what_if::what_ifs;
