//! Running experiments by name.

use std::fmt;

use bursar_machine::Tasks;
use toml::Table;

use crate::document::{Document, ExpectationResult, Metrics, SCHEMA, VariantResult};
use crate::experiment::Experiment;
use crate::machine_info::{MachineInfo, MachineKind};
use crate::memcg_flush::{self, Parameters, RunError};
use crate::settings::{ParameterError, Point, Settings};
use crate::verdict::{Basis, Verdict};

/// All experiments: name and file.
const EXPERIMENTS: [(&str, &str); 1] = [("memcg-flush", memcg_flush::FILE)];

/// The names of all experiments.
pub fn names() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.into_iter().map(|(name, _)| name)
}

/// The experiment of this name.
///
/// # Errors
/// If there is none, or its file is wrong.
pub fn experiment_named(name: &str) -> Result<Experiment, Error> {
    let (_, file) = EXPERIMENTS
        .into_iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| Error::Unknown(name.to_owned()))?;
    Experiment::parse(file).map_err(|error| Error::File(error.to_string()))
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Where it is to run.
    pub machine: MachineKind,
    /// The keys of simulated machines, which can be set like parameters.
    pub machine_keys: &'a [&'a str],
    /// What is set, as `key=value` or `key=value,value`.
    pub assignments: &'a [String],
    /// How many seeds.
    pub seeds: u64,
    /// Which of them.
    pub shard: SeedShard,
}

/// The `index`-th of `of` parts of the seeds, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeedShard {
    /// Which part.
    pub index: u64,
    /// Of how many.
    pub of: u64,
}

impl SeedShard {
    /// All seeds.
    pub const WHOLE: Self = Self { index: 1, of: 1 };

    fn has(self, nth_seed: u64) -> bool {
        nth_seed % self.of == self.index - 1
    }
}

impl fmt::Display for SeedShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

/// An experiment with its parameters, checked and ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    experiment: Experiment,
    variants: Vec<String>,
    points: Vec<(Point, Parameters)>,
    seeds: Vec<u64>,
}

/// One run: of one variant, with one seed, at one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Number of the point.
    pub point: usize,
    /// The seed.
    pub seed: u64,
    /// Number of the variant.
    pub variant: usize,
}

/// Why an experiment cannot be run, or did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No experiment has this name.
    Unknown(String),
    /// A parameter makes no sense.
    Parameter(ParameterError),
    /// The shard has none of the seeds.
    EmptyShard {
        /// The shard.
        shard: SeedShard,
        /// How many seeds there are.
        seeds: u64,
    },
    /// The experiment's own file is wrong.
    File(String),
    /// A variant failed while it ran.
    Run(RunError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                let known: Vec<_> = names().collect();
                write!(
                    f,
                    "unknown experiment `{name}`; there are: {}",
                    known.join(", ")
                )
            }
            Self::Parameter(error) => write!(f, "{error}"),
            Self::EmptyShard { shard, seeds } => write!(
                f,
                "shard {shard} has none of the {seeds} seed(s); a run is split by its seeds"
            ),
            Self::File(error) => write!(f, "the experiment's file: {error}"),
            Self::Run(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {}

impl Plan {
    /// The experiment with the parameters of its file, changed as requested.
    ///
    /// # Errors
    /// If there is no such parameter, or a value makes no sense.
    pub fn new(experiment: Experiment, request: Request<'_>) -> Result<Self, Error> {
        let mut settings = Settings::new(&experiment, request.machine, request.machine_keys)
            .map_err(|error| Error::File(format!("[{}]: {error}", request.machine)))?;
        settings.offer(memcg_flush::variants());
        for assignment in request.assignments {
            settings.set(assignment).map_err(Error::Parameter)?;
        }
        let typed = |point: Point| {
            let parameters: Parameters = point
                .parameters
                .clone()
                .try_into()
                .map_err(|error: toml::de::Error| Error::File(error.to_string()))?;
            parameters.check().map_err(Error::Parameter)?;
            Ok((point, parameters))
        };
        let points = settings.points().map_err(Error::Parameter)?;
        let points: Vec<_> = points.into_iter().map(typed).collect::<Result<_, _>>()?;
        let first_seed = points.first().map_or(0, |(_, parameters)| parameters.seed);
        let seeds: Vec<u64> = (0..request.seeds)
            .filter(|nth| request.shard.has(*nth))
            .map(|nth| first_seed.wrapping_add(nth))
            .collect();
        if seeds.is_empty() {
            return Err(Error::EmptyShard {
                shard: request.shard,
                seeds: request.seeds,
            });
        }
        let variants = settings.variants;
        Ok(Self {
            experiment,
            variants,
            points,
            seeds,
        })
    }

    /// The experiment's file.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// The points of the sweep, in order.
    pub fn points(&self) -> impl ExactSizeIterator<Item = &Point> {
        self.points.iter().map(|(point, _)| point)
    }

    /// All runs: at each point all variants with one seed before any with the next, so that what disturbs a host for a
    /// while falls on all of them.
    pub fn jobs(&self) -> Vec<Job> {
        let variants = 0..self.variants.len();
        let of_seed = |point, seed| {
            variants.clone().map(move |variant| Job {
                point,
                seed,
                variant,
            })
        };
        (0..self.points.len())
            .flat_map(|point| self.seeds.iter().map(move |seed| (point, *seed)))
            .flat_map(|(point, seed)| of_seed(point, seed))
            .collect()
    }

    /// The name of a run's variant.
    pub fn variant(&self, job: Job) -> &str {
        &self.variants[job.variant]
    }

    /// How long a run takes at least, milliseconds of the machine's time.
    pub fn run_ms(&self, job: Job) -> u64 {
        self.points[job.point].1.duration_ms
    }

    /// Does one run.
    ///
    /// # Errors
    /// Why it gave no result.
    pub fn run<M: Tasks>(&self, machine: &M, job: Job) -> Result<VariantResult, Error> {
        let parameters = Parameters {
            seed: job.seed,
            ..self.points[job.point].1
        };
        let outcome =
            memcg_flush::run(machine, self.variant(job), &parameters).map_err(Error::Run)?;
        Ok(outcome.result())
    }

    /// The document of a point, of no runs yet.
    pub fn document(&self, point: usize, machine: MachineInfo, revision: &str) -> Document {
        let parameters = self.points[point].0.parameters.clone();
        let variant = |name: &String| VariantResult {
            name: name.clone(),
            summary: memcg_flush::summary(name).to_owned(),
            ran_seeds: Vec::new(),
            metrics: Metrics::default(),
        };
        let expectation = |expectation: &crate::experiment::Expectation| ExpectationResult {
            variant: expectation.variant.clone(),
            metric: expectation.metric.clone(),
            at_most: expectation.at_most,
            measured: 0.0,
            holds: true,
            reason: expectation.reason.clone(),
        };
        Document {
            schema: SCHEMA,
            experiment: self.experiment.name.clone(),
            title: self.experiment.title.clone(),
            experiment_hash: self.experiment.hash.clone(),
            revision: revision.to_owned(),
            verdicts: verdicts(&self.experiment, &machine, &parameters),
            machine,
            parameters,
            seed: 0,
            seeds: 0,
            interrupted: false,
            variants: self.variants.iter().map(variant).collect(),
            expectations: self
                .experiment
                .expectations
                .iter()
                .map(expectation)
                .collect(),
        }
    }
}

/// The published figures that hold for a machine and parameters, not judged yet.
fn verdicts(experiment: &Experiment, machine: &MachineInfo, parameters: &Table) -> Vec<Verdict> {
    let rows = experiment.published.iter();
    let basis = if experiment.is_own_load(machine, parameters) {
        Basis::OneModel
    } else {
        Basis::WhatIf
    };
    rows.filter(|row| row.holds_for(machine, parameters))
        .flat_map(|row| {
            row.shares.iter().map(|share| Verdict {
                variant: row.variant.clone(),
                metric: share.metric.clone(),
                row: row.row,
                basis,
                load: row.load.clone(),
                published: share.share,
                tolerance: share.tolerance,
                measured: 0.0,
                lo: 0.0,
                hi: 0.0,
                verdict: None,
                reason: String::new(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
