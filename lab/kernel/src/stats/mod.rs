//! The flush policies of the memcg thread of September 2023, on the substrate of their time: the published ones, and
//! those that the thread asks about.
//!
//! A published policy is judged on its own machinery, not on Bursar's: one global flush lock, a locked list of updated
//! groups for each CPU, a flush that loops over all possible CPUs, an update path that counts towards a threshold. The
//! mechanisms are shared, one to a file. A [`Policy`] is a value that chooses among them.
//!
//! | part | file | kernel |
//! |---|---|---|
//! | the policies as values | `policy.rs` | `mm/memcontrol.c` |
//! | other settings | `substrate.rs` | |
//! | a tree under a policy, and its call sites | `tree.rs` | `mem_cgroup_flush_stats()` and its kin |
//! | the choice to flush, wait or skip | `flush.rs` | `do_flush_stats()` |
//! | one flush for all readers that want one | `coalesced.rs` | |
//! | the completion that they wait for | `completion.rs` | `struct completion` |
//! | a lock with a bounded wait | `timed.rs` | |
//! | the choice between many small flushes and one | `adaptive.rs` | |
//! | the threshold for a flush | `threshold.rs` | `memcg_rstat_updated()` |
//! | totals and the flush itself | `rstat.rs` | `cgroup_rstat_flush_locked()`, `mem_cgroup_css_rstat_flush()` |
//! | groups that were updated on a CPU | `updated.rs` | `cgroup_rstat_updated()` of 6.1-6.16, `css_rstat_updated()` of 6.17 |
//! | per-CPU states | `states.rs` | `memcg_vmstats_percpu` |
//! | without rstat | `tree_walk.rs`, `eager.rs` | |
//! | counts of events | `tally.rs` | |
//!
//! Versions: the per-CPU list lock is held only while the list is built, as in 6.8. The global lock is dropped between
//! two CPUs if another task waits for it, as preemptible kernels before 6.15 do. Others dropped it only to reschedule.
//! [`Policy::Kernel617`] releases it after each CPU. Its flushes still take the lock of a CPU's tree, which 6.17 has not.
//!
//! # An accepted race
//! An update first adds and then looks, without a lock or a barrier, whether its group is listed. It may see "listed"
//! while a flusher that has already passed takes the group off the list. Then the update stays invisible until the
//! group is updated on that CPU again. The kernel's comments say so; the race is kept here because it is part of the
//! judged policy. Nothing is lost: the states are never reset, so the next flush folds the difference. The race needs
//! weak memory, so it never happens on a simulated machine, where memory is sequentially consistent.

mod adaptive;
mod coalesced;
mod completion;
mod eager;
mod flush;
mod policy;
mod rstat;
mod states;
mod substrate;
mod tally;
mod threshold;
mod timed;
mod tree;
mod tree_walk;
mod updated;

use crate::Padded;

pub use policy::{Policy, Scope, Tunables, UNBOUNDED};
pub use substrate::{Gate, Substrate};
pub use tally::Counts;
pub use tree::Published;

/// Index of a group in its tree; parents have smaller indices than their children.
pub type GroupIndex = usize;

const ROOT: GroupIndex = 0;

#[cfg(test)]
mod tests;
