//! The flush policies of the memcg thread of September 2023, on the substrate of their time.
//!
//! A published policy is judged with the machinery it had, not on Bursar's: one global flush lock, a locked list of
//! updated groups per CPU, a flush that loops over all possible CPUs, an update path that counts towards a threshold.
//! The mechanisms are shared and live one to a file; a [`Policy`] is a value that chooses among them.
//!
//! | part | file | kernel |
//! |---|---|---|
//! | what differs between the policies | `policy.rs` | `mm/memcontrol.c` |
//! | which groups were updated on a CPU | `updated.rs` | `cgroup_rstat_updated()` of 6.1-6.16 |
//! | when a flush is worth it | `threshold.rs` | `memcg_rstat_updated()` |
//! | states, totals and the flush itself | `rstat.rs` | `cgroup_rstat_flush_locked()`, `mem_cgroup_css_rstat_flush()` |
//! | the call sites: who flushes, waits or skips | `flush.rs` | `mem_cgroup_flush_stats()` |
//!
//! Versions: the per-CPU list lock is held only while the list is built, as in 6.8, and the global lock is dropped
//! between two CPUs where somebody waits for it, as before 6.15.
//!
//! # The race it accepts
//! An update first adds and then looks, without a lock or a barrier, whether its group is listed. If it sees "listed"
//! while a flusher that has already passed takes the group off the list, the update stays invisible until the group is
//! updated on that CPU again. The kernel's comments say so; it is kept here, because it is part of what is judged. Nothing
//! is lost: the states are never reset, so the next flush that comes by folds the difference.

mod flush;
mod policy;
mod rstat;
mod threshold;
mod updated;

pub use flush::{Counts, Published};
pub use policy::{Policy, Scope, Threshold};

/// A value on cache lines of its own (two, because x86 fetches them in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// Index of a group in its tree; parents have smaller indices than their children.
pub type GroupIndex = usize;
