//! Tests that fork, move threads, handle signals, set limits of their process or look at its memory: one at a time.
#![cfg(unix)]

mod affinity;
mod cgroup;
#[path = "../common/mod.rs"]
mod common;
mod conservation;
mod drift;
mod fork;
mod fork_anywhere;
mod fork_pages;
mod fork_tasks;
mod fork_upkeep;
mod machine_limits;
mod pages_bad_input;
mod traced;
