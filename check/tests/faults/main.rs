//! Faults of the system: allocations that fail, system calls that are refused or interrupted, threads that stand still.
//!
//! Each case runs in a forked child. So a fault may end it, and the next one finds a process in which Bursar has not begun.
#![cfg(target_os = "linux")]

mod allocations;
mod allocator;
mod arbiter;
mod calls;
mod child;
#[path = "../../../crates/bursar/tests/common/cpus.rs"]
mod cpus;
#[path = "../../../crates/machine/tests/common/filter.rs"]
mod filter;
#[path = "../../../crates/bursar/tests/common/fork.rs"]
#[allow(dead_code, reason = "a part is used here")]
mod fork;
mod interrupted;
mod library;
mod others;
#[path = "../../../crates/bursar/tests/common/signals.rs"]
#[allow(dead_code, reason = "a part is used here")]
mod signals;
mod stopped;
