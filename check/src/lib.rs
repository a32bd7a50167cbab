//! The proof: Bursar's protocols as scenarios, and the explorer of `bursar explore` that runs them.

#![forbid(unsafe_code)]

pub mod explore;
pub mod protocols;

use bursar_experiments::published;
use bursar_machine::random;
