//! What an experiment runs.

use std::fmt;

use bursar_machine::timer::Timers;
use serde::de::DeserializeOwned;
use toml::Table;

use crate::document::VariantResult;
use crate::settings::ParameterError;

/// Tasks of a simulated run: each has a stack of its own with a guard, and a process of two such runs may have some 65,000
/// mappings (`vm.max_map_count`).
pub(crate) const SIMULATED_TASKS_MAX: u64 = 15_000;

/// The parameters of one experiment, and what is done with them. The experiment's file says which variants there are.
pub trait Workload: DeserializeOwned + Clone {
    /// Reads the parameters.
    ///
    /// # Errors
    /// What is missing, unknown, or of the wrong type.
    fn read(table: &Table) -> Result<Self, String> {
        let typed: Result<_, toml::de::Error> = table.clone().try_into();
        typed.map_err(|error| error.to_string())
    }

    /// Refuses what cannot be run or would measure nothing.
    ///
    /// # Errors
    /// The first parameter that is out of its range, and the range.
    fn check(&self) -> Result<(), ParameterError>;

    /// The ranges of the parameters. Of each: key, value, least, most.
    fn ranges(&self) -> Vec<(&'static str, u64, u64, u64)>;

    /// Refuses what does not fit on a simulated machine.
    ///
    /// # Errors
    /// The parameter that is too large.
    fn check_simulated(&self) -> Result<(), ParameterError> {
        Ok(())
    }

    /// The seed of everything random.
    fn seed(&self) -> u64;

    /// The same with another seed.
    fn with_seed(self, seed: u64) -> Self;

    /// How long a run takes at least, milliseconds of the machine's time.
    fn run_ms(&self) -> u64;

    /// About how long a run takes, seconds of one CPU; `cpus` of a simulated machine, none on the host.
    fn estimated_seconds(&self, cpus: Option<usize>) -> f64;

    /// What a variant does, in one line; nothing if there is no such variant.
    fn summary(variant: &str) -> &'static str;

    /// Runs one variant.
    ///
    /// # Errors
    /// If there is no such variant, or what it measures reports an error.
    fn run<M: Timers>(&self, machine: &M, variant: &str) -> Result<VariantResult, RunError>;
}

/// Why a run ended without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError {
    /// The variant that failed.
    pub variant: String,
    /// Why.
    pub reason: String,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "variant `{}`: {}", self.variant, self.reason)
    }
}

impl std::error::Error for RunError {}
