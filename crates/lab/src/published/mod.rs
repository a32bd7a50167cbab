//! The flush policies of the memcg thread of September 2023, on the substrate of their time: those that were published,
//! and those that the thread asks about.
//!
//! A published policy is judged with the machinery it had, not on Bursar's: one global flush lock, a locked list of
//! updated groups per CPU, a flush that loops over all possible CPUs, an update path that counts towards a threshold.
//! The mechanisms are shared and live one to a file; a [`Policy`] is a value that chooses among them.
//!
//! | part | file | kernel |
//! |---|---|---|
//! | the policies as values | `policy.rs` | `mm/memcontrol.c` |
//! | what else can be set | `substrate.rs` | |
//! | a tree under a policy, and its call sites | `tree.rs` | `mem_cgroup_flush_stats()` and its kin |
//! | who flushes, waits or skips | `flush.rs` | `do_flush_stats()` |
//! | one flush for all who want one | `coalesced.rs` | |
//! | a lock that one can give up waiting for | `timed.rs` | |
//! | where many small flushes cost more than one | `adaptive.rs` | |
//! | when a flush is worth it | `threshold.rs` | `memcg_rstat_updated()` |
//! | totals and the flush itself | `rstat.rs` | `cgroup_rstat_flush_locked()`, `mem_cgroup_css_rstat_flush()` |
//! | which groups were updated on a CPU | `updated.rs` | `cgroup_rstat_updated()` of 6.1-6.16 |
//! | what CPUs hold | `states.rs` | `memcg_vmstats_percpu` |
//! | without rstat | `tree_walk.rs`, `eager.rs` | |
//! | what happened | `tally.rs` | |
//!
//! The policies of the thread on page lists are in [`pages`]: of other machinery, so of another substrate.
//!
//! Versions: the per-CPU list lock is held only while the list is built, as in 6.8, and the global lock is dropped
//! between two CPUs where somebody waits for it, as before 6.15.
//!
//! # The race it accepts
//! An update first adds and then looks, without a lock or a barrier, whether its group is listed. If it sees "listed"
//! while a flusher that has already passed takes the group off the list, the update stays invisible until the group is
//! updated on that CPU again. The kernel's comments say so; it is kept here, because it is part of what is judged. Nothing
//! is lost: the states are never reset, so the next flush that comes by folds the difference. It takes a weak memory: on a
//! simulated machine, where memory is sequentially consistent, it never happens.

mod adaptive;
mod coalesced;
mod eager;
mod flush;
pub mod pages;
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

pub use policy::{Policy, Scope, Tunables, UNBOUNDED};
pub use substrate::{Gate, Substrate};
pub use tally::Counts;
pub use tree::Published;

/// A value on cache lines of its own (two, because x86 fetches them in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// Index of a group in its tree; parents have smaller indices than their children.
pub type GroupIndex = usize;

const ROOT: GroupIndex = 0;

#[cfg(test)]
mod tests;
