//! Reports for people who ask why: the tree at the moment of a refusal, and bytes that were left behind.
//!
//! Each refusal has a [`TreeReport`] ([`LimitReached::report`](crate::LimitReached::report)). [`Memory::refusals`](crate::Memory::refusals) has the
//! last ones. [`crate::Group::peak_report`] has the one at a group's highest peak. [`Memory::leftovers`](crate::Memory::leftovers) has the
//! groups that have ended with bytes charged. [`GroupSnapshot::waiting`](crate::GroupSnapshot::waiting) has the charges that wait.

pub use crate::react::{CallSite, GroupState, Leftover, TreeReport, WaitingCharge};
