//! Reports for people who ask why: the tree at the moment of a refusal.
//!
//! Each refusal has a [`TreeReport`] ([`LimitReached::report`](crate::LimitReached::report)). [`Memory::refusals`](crate::Memory::refusals) has the
//! last ones. [`Engine::peak_report`](crate::engine::Engine::peak_report) has the one at a group's highest peak.

pub use crate::react::{GroupState, TreeReport};
