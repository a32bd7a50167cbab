//! The proof: Bursar's protocols as scenarios, and the explorer of `bursar explore` that runs them.

#![forbid(unsafe_code)]

#[cfg(feature = "explore")]
pub mod explore;
#[cfg(feature = "explore")]
pub mod protocols;
#[cfg(feature = "source")]
pub mod source;

#[cfg(feature = "explore")]
use bursar_rig::random;
