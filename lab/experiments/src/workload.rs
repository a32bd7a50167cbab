//! The interface of an experiment's load.

use std::fmt;

use bursar_rig::timer::Timers;
use serde::de::DeserializeOwned;

use crate::document::{Metrics, VariantResult};
use crate::settings::{ParameterError, range_error};

/// Greatest number of tasks of a simulated run: each has a stack with a guard, and a process of two such runs may have
/// some 65,000 mappings (`vm.max_map_count`).
pub(crate) const SIMULATED_TASKS_MAX: u64 = 15_000;

/// Key, value, least and greatest value of a parameter.
pub type Ranged = (&'static str, u64, u64, u64);
/// Defect of parameters that do not fit each other: whether they have it, the key to blame, and a description.
pub type Misfit = (bool, &'static str, String);

/// Defines the parameters of an experiment as a table: name, type, and the range of a number. The first line names the
/// parameters for ranges that depend on others. The experiment's file has the defaults and the descriptions
/// ([`crate::describe`]).
macro_rules! parameters {
    ($it:ident; $($key:ident: $type:ty $([$least:tt to $most:expr])?;)*) => {
        /// Contents of `[parameters]` in the experiment's file; units are in the names, meanings in the file.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[allow(missing_docs, reason = "the experiment's file documents them for its users")]
        pub struct Parameters {
            pub seed: u64,
            $(pub $key: $type,)*
        }

        impl crate::workload::Table for Parameters {
            fn ranges(&self) -> Vec<crate::workload::Ranged> {
                let $it = self;
                vec![$($((stringify!($key), $it.$key, $least, $most),)?)*]
            }

            fn seed(&self) -> u64 {
                self.seed
            }
        }
    };
}
pub(crate) use parameters;

/// A table of parameters, made by `parameters!`.
pub trait Table {
    /// Returns the ranges of the numbers.
    fn ranges(&self) -> Vec<Ranged>;

    /// Returns the seed of everything random.
    fn seed(&self) -> u64;
}

/// Misfits of parameters, and the time that they take.
pub trait Sizing: Table {
    /// Lists the defects that several parameters can have together.
    fn misfits(&self) -> Vec<Misfit>;

    /// Returns the defect that parameters can have on a simulated machine, if any.
    fn simulated_misfit(&self) -> Option<Misfit> {
        None
    }

    /// Returns the least time that a run takes, milliseconds of the machine's time.
    fn run_ms(&self) -> u64;

    /// Estimates the time to simulate a run on a machine of so many CPUs, seconds of one CPU.
    fn simulated_seconds(&self, cpus: usize) -> f64;

    /// Refuses parameters that cannot be run or would measure nothing.
    ///
    /// # Errors
    /// The first parameter that is out of its range, and the range; else the first that does not fit the others.
    fn check(&self) -> Result<(), ParameterError> {
        let ranges = self.ranges().into_iter();
        let outside = ranges.map(|(key, value, least, most)| {
            let problem = format!("is {value}, and must be from {least} to {most}");
            (value < least || value > most, key, problem)
        });
        refuse(outside)?;
        refuse(self.misfits())
    }

    /// Refuses parameters that do not fit on a simulated machine.
    ///
    /// # Errors
    /// The parameter that is too large.
    fn check_simulated(&self) -> Result<(), ParameterError> {
        refuse(self.simulated_misfit())
    }

    /// Estimates the time that a run takes, seconds of one CPU, for a warning before a sweep of hours. `cpus` is the number of
    /// CPUs of a simulated machine, none on the host, which takes the time that it is given.
    fn estimated_seconds(&self, cpus: Option<usize>) -> f64 {
        cpus.map_or(self.run_ms() as f64 / 1e3, |cpus| {
            self.simulated_seconds(cpus)
        })
    }
}

/// The parameters of one experiment, and its runs. The experiment's file lists the variants.
pub trait Workload: Sizing + DeserializeOwned {
    /// Rule that is compared with others.
    type Variant: Copy;

    /// Lists the variants: name, description in one line, and rule.
    fn variants() -> Vec<(&'static str, &'static str, Self::Variant)>;

    /// Describes a variant in one line; empty if there is no such variant.
    fn summary(variant: &str) -> &'static str {
        let mut variants = Self::variants().into_iter();
        variants
            .find(|(name, ..)| *name == variant)
            .map_or("", |(_, about, _)| about)
    }

    /// Runs one variant, and returns its metrics.
    ///
    /// # Errors
    /// The error of its subject.
    fn measure<M: Timers>(&self, machine: &M, variant: Self::Variant) -> Result<Metrics, String>;

    /// Runs one variant.
    ///
    /// # Errors
    /// If there is no such variant, or its subject reports an error.
    fn run<M: Timers>(&self, machine: &M, variant: &str) -> Result<VariantResult, RunError> {
        let mut variants = Self::variants().into_iter();
        let known = variants.find(|(name, ..)| *name == variant);
        let metrics = match known {
            Some((_, _, rule)) => self.measure(machine, rule),
            None => Err("no such variant".to_owned()),
        };
        Ok(VariantResult {
            name: variant.to_owned(),
            summary: Self::summary(variant).to_owned(),
            ran_seeds: vec![self.seed()],
            metrics: metrics.map_err(|reason| RunError {
                variant: variant.to_owned(),
                reason,
            })?,
        })
    }
}

/// Refuses the first defect that there is.
fn refuse(misfits: impl IntoIterator<Item = Misfit>) -> Result<(), ParameterError> {
    let found = misfits.into_iter().find(|(is_there, ..)| *is_there);
    found.map_or(Ok(()), |(_, key, problem)| Err(range_error(key, problem)))
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
