//! The interface of an experiment's load.

use std::fmt;

use bursar_rig::timer::Timers;
use serde::de::DeserializeOwned;
use toml::Table;

use crate::document::VariantResult;
use crate::settings::ParameterError;

/// Greatest number of tasks of a simulated run: each has a stack with a guard, and a process of two such runs may have
/// some 65,000 mappings (`vm.max_map_count`).
pub(crate) const SIMULATED_TASKS_MAX: u64 = 15_000;

/// The parameters of one experiment, and its runs. The experiment's file lists the variants.
pub trait Workload: DeserializeOwned + Clone {
    /// Reads the parameters.
    ///
    /// # Errors
    /// The missing or unknown parameter, or the one of the wrong type.
    fn read(table: &Table) -> Result<Self, String> {
        let typed: Result<_, toml::de::Error> = table.clone().try_into();
        typed.map_err(|error| error.to_string())
    }

    /// Refuses parameters that cannot be run or would measure nothing.
    ///
    /// # Errors
    /// The first parameter that is out of its range, and the range.
    fn check(&self) -> Result<(), ParameterError>;

    /// Returns the ranges of the parameters. Each entry is key, value, least, most.
    fn ranges(&self) -> Vec<(&'static str, u64, u64, u64)>;

    /// Refuses parameters that do not fit on a simulated machine.
    ///
    /// # Errors
    /// The parameter that is too large.
    fn check_simulated(&self) -> Result<(), ParameterError> {
        Ok(())
    }

    /// Returns the seed of everything random.
    fn seed(&self) -> u64;

    /// Returns the same parameters with another seed.
    fn with_seed(self, seed: u64) -> Self;

    /// Returns the least time that a run takes, milliseconds of the machine's time.
    fn run_ms(&self) -> u64;

    /// Estimates the time that a run takes, seconds of one CPU. `cpus` is the number of CPUs of a simulated machine,
    /// none on the host.
    fn estimated_seconds(&self, cpus: Option<usize>) -> f64;

    /// Describes a variant in one line; empty if there is no such variant.
    fn summary(variant: &str) -> &'static str;

    /// Runs one variant.
    ///
    /// # Errors
    /// If there is no such variant, or its subject reports an error.
    fn run<M: Timers>(&self, machine: &M, variant: &str) -> Result<VariantResult, RunError>;
}

/// Reason why a run ended without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError {
    /// The variant that failed.
    pub variant: String,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "variant `{}`: {}", self.variant, self.reason)
    }
}

impl std::error::Error for RunError {}
