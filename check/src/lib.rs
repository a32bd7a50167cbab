//! The proof: a reference model, Bursar's protocols as scenarios, the explorer that runs them, and the parsed source of the workspace.
//!
//! Each part is a feature: `model`, `explore`, `source`.

#![forbid(unsafe_code)]

#[cfg(feature = "explore")]
pub mod explore;
#[cfg(feature = "model")]
pub mod model;
#[cfg(feature = "explore")]
pub mod protocols;
#[cfg(feature = "source")]
pub mod source;

#[cfg(feature = "explore")]
use bursar_rig::random;
