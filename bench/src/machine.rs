//! Under which conditions a run was made: machine, commit, command, and how long it measured.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::timing;

/// Conditions without which a figure means nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Conditions {
    /// Conditions that all measurements state.
    #[serde(flatten)]
    pub general: bursar_conditions::Conditions,
    /// Rounds.
    pub rounds: usize,
    /// Length of a turn, nanoseconds; 0 if a turn is over when its work is done.
    pub slice_ns: u64,
}

impl Conditions {
    /// Returns the conditions of this process.
    pub fn here(effort: timing::Effort) -> Self {
        Self {
            general: bursar_conditions::Conditions::here(),
            rounds: effort.rounds,
            slice_ns: effort.slice.ns,
        }
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.general)?;
        write!(f, "rounds: {}", self.rounds)?;
        if self.slice_ns == 0 {
            return Ok(());
        }
        let slice_ms = self.slice_ns as f64 / 1e6;
        write!(f, ", {slice_ms} ms a turn")
    }
}
