//! Running experiments by name.

use std::fmt;

use bursar_machine::Fnv1a64;
use bursar_rig::timer::Timers;

use crate::all_experiments::{ALL, Parameters};
use crate::document::{Document, ExpectationResult, Metrics, SCHEMA, VariantResult};
use crate::experiment::{Draw, Values};
use crate::experiment::{Experiment, SEEDS_BESIDE};
use crate::machine_info::{MachineInfo, MachineKind};
use crate::name_list::list;
use crate::settings::{DrawsKind, LOAD, ParameterError, Point, SEED, Settings, nearest};
use crate::verdict::{Basis, Verdict};
use crate::workload::RunError;

/// Returns the names of all experiments.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|entry| entry.name)
}

/// Returns the experiment of that name.
///
/// # Errors
/// If there is none, or its file is invalid.
pub fn experiment_named(name: &str) -> Result<Experiment, Error> {
    let entry = ALL
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| Error::Unknown(name.to_owned()))?;
    Experiment::parse(entry.file, entry.draws).map_err(|error| Error::File(error.to_string()))
}

/// A requested run.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Machine that it runs on.
    pub machine: MachineKind,
    /// The keys of simulated machines, which can be set like parameters.
    pub machine_keys: &'a [&'a str],
    /// Settings, as `key=value` or `key=value,value`.
    pub assignments: &'a [String],
    /// Whether it is the quick form.
    pub is_quick: bool,
    /// Number of seeds.
    pub seeds: u64,
}

/// An experiment with its parameters, checked and ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    experiment: Experiment,
    points: Vec<(Point, Parameters)>,
    draws: DrawsKind,
    first_seed: u64,
    seeds: Vec<u64>,
}

/// One run, of one variant, with one seed, at one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Number of the point.
    pub point: usize,
    /// The seed.
    pub seed: u64,
    /// Number of the variant among those of the point.
    pub variant: usize,
}

/// Reason why an experiment cannot be run, or did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No experiment has this name.
    Unknown(String),
    /// A parameter is invalid.
    Parameter(ParameterError),
    /// The experiment's own file is invalid.
    File(String),
    /// A variant failed while it ran.
    Run(RunError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                let hint = nearest(name, names());
                let hint =
                    hint.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                let known = list(names());
                write!(f, "unknown experiment `{name}`{hint}\n  there are:{known}")
            }
            Self::Parameter(error) => write!(f, "{error}"),
            Self::File(error) => write!(f, "the experiment's file: {error}"),
            Self::Run(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {}

impl Plan {
    /// Makes a plan of the experiment with the parameters of its file, changed as requested.
    ///
    /// # Errors
    /// If there is no such parameter, or a value is invalid.
    pub fn new(experiment: Experiment, request: Request<'_>) -> Result<Self, Error> {
        let kind = request.machine;
        let mut settings = Settings::new(&experiment, kind, request.machine_keys, request.is_quick)
            .map_err(|error| Error::File(format!("on {kind}: {error}")))?;
        for (place, assignment) in request.assignments.iter().enumerate() {
            let key = |assignment: &'_ String| {
                let key = assignment.split_once('=').map(|(key, _)| key.trim());
                key.map(str::to_owned)
            };
            if let Some(again) = key(assignment)
                && request.assignments[..place]
                    .iter()
                    .any(|before| key(before).as_ref() == Some(&again))
            {
                return Err(Error::Parameter(ParameterError::Repeated(again)));
            }
            settings.set(assignment).map_err(Error::Parameter)?;
        }
        settings.check_set().map_err(Error::Parameter)?;
        let typed = |point: Point| {
            let parameters =
                Parameters::read(&experiment.name, &point.parameters).map_err(Error::File)?;
            parameters.check().map_err(Error::Parameter)?;
            if kind == MachineKind::Sim {
                parameters.check_simulated().map_err(Error::Parameter)?;
            }
            Ok((point, parameters))
        };
        let points = settings.points().map_err(Error::Parameter)?;
        let points: Vec<_> = points.into_iter().map(typed).collect::<Result<_, _>>()?;
        let first_seed = points
            .first()
            .map_or(0, |(_, parameters)| parameters.seed());
        // Documents and parameters have signed numbers.
        let end = first_seed.checked_add(request.seeds);
        if end.is_none_or(|end| end > i64::MAX as u64) {
            return Err(Error::Parameter(ParameterError::Range {
                key: SEED.to_owned(),
                problem: "is so large that a later seed would not fit; the last may be 2^63 - 2"
                    .to_owned(),
            }));
        }
        let seeds = (0..request.seeds).map(|nth| first_seed + nth);
        let draws = settings.draws;
        Ok(Self {
            experiment,
            points,
            draws,
            first_seed,
            seeds: seeds.collect(),
        })
    }

    /// Returns the experiment.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// Returns the points of the sweep, in order.
    pub fn points(&self) -> impl ExactSizeIterator<Item = &Point> {
        self.points.iter().map(|(point, _)| point)
    }

    /// Returns all runs: at each point all variants with one seed before any with the next, so that a disturbance of
    /// the host affects all variants.
    pub fn jobs(&self) -> Vec<Job> {
        let of_seed = |point: usize, seed: u64| {
            let Point {
                variants, beside, ..
            } = &self.points[point].0;
            let is_early = seed.wrapping_sub(self.first_seed) < SEEDS_BESIDE;
            let runs = move |variant: &usize| is_early || !beside.contains(&variants[*variant]);
            (0..variants.len()).filter(runs).map(move |variant| Job {
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

    /// Returns the name of a run's variant.
    pub fn variant(&self, job: Job) -> &str {
        &self.points[job.point].0.variants[job.variant]
    }

    /// Estimates the time that all runs take, seconds of one CPU.
    pub fn estimated_seconds(&self, cpus: impl Fn(usize) -> Option<usize>) -> f64 {
        let seconds = |job: Job| match (self.parameters(job, self.draw(job.seed)), cpus(job.point))
        {
            (Ok(parameters), cpus) => parameters.estimated_seconds(cpus),
            (Err(_), _) => 0.0,
        };
        self.jobs().into_iter().map(seconds).sum()
    }

    /// Returns the name of a run's load.
    pub fn load(&self, job: Job) -> &str {
        &self.points[job.point].0.load
    }

    /// Returns the constants of a run that differ from the cost model's own.
    pub fn costs(&self, job: Job) -> Option<&Values> {
        self.draw(job.seed).map(|draw| &draw.costs)
    }

    /// Describes the accepted draws that runs use, with a hash of all of them and of their model; `None` if runs use none.
    pub fn ensemble(&self) -> Option<String> {
        match self.draws {
            DrawsKind::None => None,
            DrawsKind::Accepted => {
                let draws = &self.experiment.draws;
                let model = Fnv1a64::new().write(draws.model.as_bytes());
                let hash = draws.accepted.iter().fold(model, |hash, draw| {
                    hash.write(format!("{:?}{:?}", draw.costs, draw.parameters).as_bytes())
                });
                Some(format!("ensemble of {} draws {hash}", draws.accepted.len()))
            }
        }
    }

    /// Returns the identity of the cost model that the draws come from, if runs use any.
    pub fn drawn_from(&self) -> Option<&str> {
        match self.draws {
            DrawsKind::None => None,
            DrawsKind::Accepted => Some(&self.experiment.draws.model),
        }
    }

    fn draw(&self, seed: u64) -> Option<&Draw> {
        match self.draws {
            DrawsKind::None => None,
            DrawsKind::Accepted => self.experiment.draws.of_seed(seed),
        }
    }

    /// Returns the parameters of a run: the point's, and the seed's draw for those that neither the load nor the user
    /// fixed.
    fn parameters(&self, job: Job, draw: Option<&Draw>) -> Result<Parameters, Error> {
        let (point, parameters) = &self.points[job.point];
        let Some(draw) = draw else {
            return Ok(parameters.with_seed(job.seed));
        };
        let mut table = point.parameters.clone();
        for (name, value) in &draw.parameters {
            if !point.fixed.contains(name) {
                table.insert(name.clone(), toml::Value::Integer(*value as i64));
            }
        }
        table.insert(SEED.to_owned(), toml::Value::Integer(job.seed as i64));
        let parameters = Parameters::read(&self.experiment.name, &table).map_err(Error::File)?;
        parameters.check().map_err(Error::Parameter)?;
        Ok(parameters)
    }

    /// Returns the least time that a run takes, milliseconds of the machine's time.
    pub fn run_ms(&self, job: Job) -> u64 {
        self.points[job.point].1.run_ms()
    }

    /// Executes one run.
    ///
    /// # Errors
    /// The reason why it gave no result.
    pub fn run<M: Timers>(&self, machine: &M, job: Job) -> Result<VariantResult, Error> {
        self.run_with(machine, job, self.draw(job.seed))
    }

    /// Executes one run with a given draw, for calibration. The caller applies the draw's costs to the machine.
    ///
    /// # Errors
    /// The reason why it gave no result.
    pub fn run_with<M: Timers>(
        &self,
        machine: &M,
        job: Job,
        draw: Option<&Draw>,
    ) -> Result<VariantResult, Error> {
        let parameters = self.parameters(job, draw)?;
        parameters
            .run(machine, self.variant(job))
            .map_err(Error::Run)
    }

    /// Makes the document of a point, without any runs.
    pub fn document(&self, point: usize, machine: MachineInfo, revision: &str) -> Document {
        let (planned, loaded) = &self.points[point];
        let mut parameters = planned.parameters.clone();
        if self.draws == DrawsKind::Accepted {
            // Each seed has a value of its own for these.
            let drawn = self.experiment.uncertain.keys();
            for key in drawn.filter(|key| !planned.fixed.contains(key)) {
                parameters.insert(key.clone(), "drawn".into());
            }
        }
        if !planned.load.is_empty() {
            parameters.insert(LOAD.to_owned(), planned.load.clone().into());
        }
        let variant = |name: &String| VariantResult {
            name: name.clone(),
            summary: loaded.summary(name).to_owned(),
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
            verdicts: self.verdicts(planned, &machine),
            draws: match self.draws {
                DrawsKind::None => 0,
                DrawsKind::Accepted => self.experiment.draws.accepted.len() as u64,
            },
            machine,
            parameters,
            seed: 0,
            seeds: 0,
            interrupted: false,
            variants: planned.variants.iter().map(variant).collect(),
            expectations: self
                .experiment
                .expectations
                .iter()
                .filter(|expectation| {
                    let mut only = expectation.only_if.iter();
                    only.all(|(key, value)| planned.parameters.get(key) == Some(value))
                })
                .map(expectation)
                .collect(),
        }
    }

    /// Returns the published figures that hold for a point and a machine, not judged yet.
    fn verdicts(&self, point: &Point, machine: &MachineInfo) -> Vec<Verdict> {
        let is_own = point.is_own && self.experiment.is_own_machine(machine);
        let basis = match (is_own, self.draws) {
            (false, _) => Basis::WhatIf,
            (true, DrawsKind::None) => Basis::OneModel,
            (true, DrawsKind::Accepted) => Basis::Ensemble,
        };
        let rows = self.experiment.published.iter();
        rows.filter(|row| row.holds_for(machine, &point.load, &point.parameters))
            .flat_map(|row| {
                let figures = row.figures.iter();
                figures.map(move |figure| row.unjudged(figure, basis))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
