//! Running experiments by name.

use std::fmt;

use bursar_machine::Tasks;

use crate::document::{Document, ExpectationResult, MachineInfo, SCHEMA, VariantResult};
use crate::experiment::{Expectation, Experiment, ParameterError};
use crate::measure::Metric;
use crate::memcg_flush::{self, Outcome, Parameters, RunError};

/// All experiments: name and file.
const EXPERIMENTS: [(&str, &str); 1] = [("memcg-flush", memcg_flush::FILE)];

/// The names of all experiments.
pub fn names() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.into_iter().map(|(name, _)| name)
}

/// An experiment with its parameters, checked and ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    experiment: Experiment,
    parameters: Parameters,
    seeds: u64,
}

/// Why an experiment cannot be run, or did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No experiment has this name.
    Unknown(String),
    /// A parameter makes no sense.
    Parameter(ParameterError),
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
            Self::File(error) => write!(f, "the experiment's file: {error}"),
            Self::Run(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {}

impl Plan {
    /// The experiment `name` with the parameters of its file, changed by `assignments` (`key=value`), over `seeds` seeds.
    ///
    /// # Errors
    /// If there is no such experiment or parameter, or a value makes no sense.
    pub fn new(name: &str, assignments: &[String], seeds: u64) -> Result<Self, Error> {
        let (_, file) = EXPERIMENTS
            .into_iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| Error::Unknown(name.to_owned()))?;
        let file_error = |error: toml::de::Error| Error::File(error.to_string());
        let mut experiment = Experiment::parse(file).map_err(file_error)?;
        for assignment in assignments {
            experiment.set(assignment).map_err(Error::Parameter)?;
        }
        let parameters: Parameters = experiment.parameters().map_err(file_error)?;
        parameters.check().map_err(Error::Parameter)?;
        Ok(Self {
            experiment,
            parameters,
            seeds: seeds.max(1),
        })
    }

    /// The experiment's file.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// How many single runs there are: one for each variant and seed.
    pub fn runs(&self) -> u64 {
        self.seeds
            .saturating_mul(self.experiment.variants.len() as u64)
    }

    /// How long each of them takes at least, milliseconds of the machine's time.
    pub fn run_ms(&self) -> u64 {
        self.parameters.duration_ms
    }

    /// Runs all variants with one seed after the other. `begin` is told which variant and seed are next.
    ///
    /// # Errors
    /// The first failure.
    pub fn run<M: Tasks>(
        &self,
        machine: &M,
        mut begin: impl FnMut(&str, u64),
    ) -> Result<Vec<VariantResult>, Error> {
        let mut outcomes: Vec<Outcome> = Vec::new();
        for seed in (0..self.seeds).map(|nth| self.parameters.seed.wrapping_add(nth)) {
            let parameters = Parameters {
                seed,
                ..self.parameters
            };
            for (place, name) in self.experiment.variants.iter().enumerate() {
                begin(name, seed);
                let outcome = memcg_flush::run(machine, name, &parameters).map_err(Error::Run)?;
                match outcomes.get_mut(place) {
                    Some(sum) => sum.merge(&outcome),
                    None => outcomes.push(outcome),
                }
            }
        }
        Ok(outcomes.iter().map(Outcome::result).collect())
    }

    /// The document of a run that gave `variants`.
    pub fn document(
        &self,
        machine: MachineInfo,
        revision: &str,
        variants: Vec<VariantResult>,
    ) -> Document {
        let judged = |expectation| judge(expectation, &variants);
        Document {
            schema: SCHEMA,
            experiment: self.experiment.name.clone(),
            title: self.experiment.title.clone(),
            experiment_hash: self.experiment.hash.clone(),
            revision: revision.to_owned(),
            machine,
            parameters: self.experiment.parameters.clone(),
            seed: self.parameters.seed,
            seeds: self.seeds,
            expectations: self
                .experiment
                .expectations
                .iter()
                .filter_map(judged)
                .collect(),
            verdicts: Vec::new(),
            variants,
        }
    }
}

/// Holds an expectation against the results; `None` if its variant was not run.
fn judge(expectation: &Expectation, variants: &[VariantResult]) -> Option<ExpectationResult> {
    let variant = variants
        .iter()
        .find(|variant| variant.name == expectation.variant)?;
    let Some(Metric::Ratio { value, .. }) = variant.metrics.get(&expectation.metric) else {
        return None;
    };
    Some(ExpectationResult {
        variant: expectation.variant.clone(),
        metric: expectation.metric.clone(),
        at_most: expectation.at_most,
        measured: *value,
        holds: *value <= expectation.at_most,
        reason: expectation.reason.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Metrics;
    use crate::measure::Share;

    fn combining(broken: u64) -> VariantResult {
        let mut metrics = Metrics::default();
        metrics.push("broken_reads", Share::of(broken, 10).metric());
        VariantResult {
            name: "combining".to_owned(),
            summary: String::new(),
            metrics,
        }
    }

    fn document(variants: Vec<VariantResult>) -> Document {
        let machine = MachineInfo {
            kind: "host",
            cpus: 1,
            nodes: 1,
            model: "a model".to_owned(),
            system: "a system".to_owned(),
            backend: "a backend".to_owned(),
        };
        let plan = Plan::new("memcg-flush", &[], 1).expect("the file's defaults");
        plan.document(machine, "a revision", variants)
    }

    #[test]
    fn one_broken_read_fails_the_expectation() {
        assert!(document(vec![combining(0)]).holds());
        assert!(!document(vec![combining(1)]).holds());
    }

    #[test]
    fn what_did_not_run_is_not_judged() {
        let document = document(Vec::new());
        assert!(document.holds() && document.expectations.is_empty());
    }

    #[test]
    fn the_document_has_the_keys_of_its_schema() {
        let json = serde_json::to_value(document(vec![combining(0)])).expect("json");
        for key in [
            "schema",
            "experiment",
            "machine",
            "seeds",
            "variants",
            "verdicts",
            "experiment_hash",
            "revision",
        ] {
            assert!(json.get(key).is_some(), "{key}");
        }
        assert_eq!(
            json["variants"][0]["metrics"]["broken_reads"]["unit"],
            "ratio"
        );
    }

    #[test]
    fn all_variants_run_with_one_seed_before_any_runs_with_the_next() {
        let quick = [
            "duration_ms=10",
            "read_interval_ms=1",
            "variants=combining,direct",
            "seed=7",
        ];
        let plan = Plan::new("memcg-flush", &quick.map(str::to_owned), 2).expect("a plan");
        let mut begun = Vec::new();
        let host = bursar_machine::Host::start().expect("the host has a backend");
        let results = plan
            .run(&host, |variant, seed| {
                begun.push(format!("{variant} {seed}"))
            })
            .expect("a run");
        assert_eq!(
            begun,
            ["combining 7", "direct 7", "combining 8", "direct 8"]
        );
        assert_eq!((results.len(), plan.runs()), (2, 4));
    }

    #[test]
    fn names_and_files_agree() {
        for name in names() {
            assert_eq!(Plan::new(name, &[], 1).expect(name).experiment().name, name);
        }
        assert_eq!(
            Plan::new("nothing", &[], 1).unwrap_err(),
            Error::Unknown("nothing".to_owned())
        );
    }
}
