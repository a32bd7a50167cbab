//! Faults of the system: allocations that fail, system calls that are refused, threads that stand still.
//!
//! Each case runs in a forked child. So a fault may end it, and the next one finds a process in which Bursar has not begun.
#![cfg(target_os = "linux")]

mod allocations;
mod allocator;
mod arbiter;
mod calls;
mod child;
mod library;
mod others;
