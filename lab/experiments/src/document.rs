//! The document of a run, which `bursar-lab run -f json` prints and `bursar-lab report` reads.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::machine_info::MachineInfo;
use crate::measure::{Distribution, Figure, Metric, Share, Unit, Unlike};
use crate::metrics::{MetricInfo, Of};
use crate::one_line;
use crate::verdict::Verdict;

/// Version of the document's format.
pub const SCHEMA: u32 = 1;

/// Parameters by name.
pub type ParameterTable = toml::Table;

/// The result of one experiment on one machine with one set of parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The experiment's name.
    pub experiment: String,
    /// The experiment's title.
    pub title: String,
    /// Identity of the experiment's file.
    pub experiment_hash: String,
    /// Revision of the source, or `unknown`.
    pub revision: String,
    /// Machine that it ran on.
    pub machine: MachineInfo,
    /// Parameters that it ran with.
    pub parameters: ParameterTable,
    /// Least seed that it has a result of.
    pub seed: u64,
    /// Number of seeds that it has results of.
    pub seeds: u64,
    /// Number of draws of uncertain constants that the seeds run through; 0 if the model's own values are used.
    #[serde(default)]
    pub draws: u64,
    /// Whether the user stopped the run, or a run failed, before all requested runs ended.
    #[serde(default, skip_serializing_if = "is_complete")]
    pub interrupted: bool,
    /// Results of the variants.
    pub variants: Vec<VariantResult>,
    /// Conditions that must hold on any machine, and whether they did.
    pub expectations: Vec<ExpectationResult>,
    /// Comparisons with published figures. Empty where the machine or the load is not the published one.
    pub verdicts: Vec<Verdict>,
}

fn is_complete(interrupted: &bool) -> bool {
    !interrupted
}

/// Result of one variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantResult {
    /// Its name.
    pub name: String,
    /// Description, in one line.
    pub summary: String,
    /// Seeds that it has run with, in order.
    #[serde(serialize_with = "one_line::serialize")]
    pub ran_seeds: Vec<u64>,
    /// Metrics, in the order of interest.
    pub metrics: Metrics,
}

impl VariantResult {
    /// Adds the results of the same variant with other seeds.
    ///
    /// # Errors
    /// The name of a metric whose kind or unit differs between the two.
    pub fn merge(&mut self, other: &Self) -> Result<(), String> {
        let other = &other.clone().with_seed_noted();
        self.ran_seeds.extend(&other.ran_seeds);
        self.ran_seeds.sort_unstable();
        if self.metrics.0.is_empty() {
            self.metrics = other.metrics.clone();
            return Ok(());
        }
        if other.metrics.0.is_empty() {
            return Ok(());
        }
        for (name, metric) in &mut self.metrics.0 {
            let merged = other.metrics.get(name).ok_or(Unlike);
            merged
                .and_then(|other| metric.merge(other))
                .map_err(|Unlike| name.clone())?;
        }
        match other
            .metrics
            .iter()
            .find(|(name, _)| self.metrics.get(name).is_none())
        {
            Some((name, _)) => Err(name.to_owned()),
            None => Ok(()),
        }
    }
}

impl VariantResult {
    /// Returns a number of a metric, and its unit; `None` if it was not measured.
    pub fn number(&self, metric: &str, of: Of) -> Option<(f64, Unit)> {
        let metric = self.metrics.get(metric)?;
        let value = match (metric, of) {
            (Metric::Distribution(distribution), of) => distribution.summary().number(of)?,
            (Metric::Count(count), Of::Value) => self.mean_count(*count),
            (metric, Of::Value) => metric.value()?,
            _ => return None,
        };
        Some((value, metric.unit()))
    }

    /// Returns the values of the least seed and of the most, if a metric is one value a seed.
    pub fn range(&self, metric: &str) -> Option<(f64, f64)> {
        match self.metrics.get(metric)? {
            Metric::Ratio(share) => share.judged().next().map(|_| (share.lo(), share.hi())),
            Metric::Figure(figure) => figure.range(),
            _ => None,
        }
    }

    /// Returns a number of events over all seeds as its mean over them.
    pub fn mean_count(&self, count: u64) -> f64 {
        count as f64 / self.ran_seeds.len().max(1) as f64
    }

    /// Records the seed in each distribution of one run.
    fn with_seed_noted(mut self) -> Self {
        if let [seed] = self.ran_seeds[..] {
            for (_, metric) in &mut self.metrics.0 {
                if let Metric::Distribution(distribution) = metric {
                    distribution.note_seed(seed);
                }
            }
        }
        self
    }
}

/// Metrics by name, in the order in which they were added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(Vec<(String, Metric)>);

impl Metrics {
    /// Adds a metric.
    pub fn push(&mut self, name: &str, metric: Metric) {
        debug_assert!(self.get(name).is_none(), "two metrics `{name}`");
        self.0.push((name.to_owned(), metric));
    }

    /// Adds a distribution that is made already.
    pub fn distribution(&mut self, info: MetricInfo, values: Distribution) {
        debug_assert_eq!(values.unit(), info.unit, "{}", info.name);
        self.push(info.name, Metric::Distribution(values));
    }

    /// Adds a distribution of values.
    pub fn spread(&mut self, info: MetricInfo, values: impl IntoIterator<Item = u64>) {
        self.distribution(info, Distribution::of(info.unit, values));
    }

    /// Adds a share of events.
    pub fn share(&mut self, info: MetricInfo, seed: u64, part: u64, whole: u64) {
        self.push(info.name, Metric::Ratio(Share::of(seed, part, whole)));
    }

    /// Adds a number of events.
    pub fn count(&mut self, info: MetricInfo, count: u64) {
        self.push(info.name, Metric::Count(count));
    }

    /// Adds one number; `None` for a mean of nothing.
    pub fn figure(&mut self, info: MetricInfo, seed: u64, value: impl Into<Option<f64>>) {
        self.push(
            info.name,
            Metric::Figure(Figure::of(info.unit, seed, value)),
        );
    }

    /// Adds all metrics of others.
    pub(crate) fn append(&mut self, others: Self) {
        for (name, metric) in others.0 {
            self.push(&name, metric);
        }
    }

    /// Returns a metric by its name.
    pub fn get(&self, name: &str) -> Option<&Metric> {
        self.iter()
            .find(|(other, _)| *other == name)
            .map(|(_, metric)| metric)
    }

    /// Returns all metrics.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Metric)> {
        self.0.iter().map(|(name, metric)| (name.as_str(), metric))
    }
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, metric) in self.iter() {
            map.serialize_entry(name, metric)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Metrics;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("metrics by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metrics, A::Error> {
                let mut metrics = Metrics::default();
                while let Some(entry) = map.next_entry()? {
                    metrics.0.push(entry);
                }
                Ok(metrics)
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// Result of one condition that must hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectationResult {
    /// Variant that it is about.
    pub variant: String,
    /// Metric that it is about.
    pub metric: String,
    /// Largest allowed value.
    pub at_most: f64,
    /// Measured value.
    pub measured: f64,
    /// Whether the measured value is at most the largest allowed one.
    pub holds: bool,
    /// Reason why it must hold.
    pub reason: String,
}

impl Document {
    /// Returns whether all conditions that must hold did.
    pub fn holds(&self) -> bool {
        self.expectations
            .iter()
            .all(|expectation| expectation.holds)
    }

    /// Refuses a document that this program cannot have written.
    ///
    /// # Errors
    /// A description of the defect.
    pub fn check(&self) -> Result<(), String> {
        if let Some(name) = twice(self.variants.iter().map(|variant| &*variant.name)) {
            return Err(format!("it has two variants `{name}`"));
        }
        for variant in &self.variants {
            if let Some(name) = twice(variant.metrics.iter().map(|(name, _)| name)) {
                return Err(format!("`{}` has `{name}` twice", variant.name));
            }
            let seeds = &variant.ran_seeds;
            if !seeds.is_sorted_by(|one, next| one < next) {
                return Err(format!(
                    "`ran_seeds` of `{}` are not in order",
                    variant.name
                ));
            }
            for (name, metric) in variant.metrics.iter() {
                let is_one = |seed: u64| seeds.binary_search(&seed).is_ok();
                let is_of_seeds = match metric {
                    Metric::Ratio(share) => share.seeds().eq(seeds.iter().copied()),
                    // A seed of which nothing was measured has no figure.
                    Metric::Figure(figure) => figure.seeds().all(is_one),
                    Metric::Distribution(all) => all.by_seed().all(|(seed, _)| is_one(seed)),
                    Metric::Timeline(timeline) => seeds.first() == Some(&timeline.seed()),
                    Metric::Count(_) => true,
                };
                if !is_of_seeds {
                    return Err(format!(
                        "`{name}` of `{}` is not of its `ran_seeds`",
                        variant.name
                    ));
                }
            }
        }
        Ok(())
    }

    /// Derives from the variants all that follows from them: the seeds, the expectations and the verdicts. Leaves out
    /// expectations and verdicts of variants that have not run, or of which nothing was measured.
    pub fn conclude(&mut self) {
        let mut seeds: Vec<u64> = self
            .variants
            .iter()
            .flat_map(|variant| &variant.ran_seeds)
            .copied()
            .collect();
        seeds.sort_unstable();
        seeds.dedup();
        self.seed = seeds.first().copied().unwrap_or(self.seed);
        self.seeds = seeds.len() as u64;
        let variants = &self.variants;
        let share = |variant: &str, metric: &str| {
            let variant = variants.iter().find(|result| result.name == variant)?;
            match variant.metrics.get(metric) {
                // A promise about no events is not kept either.
                Some(Metric::Ratio(share)) => share.judged().next().map(|_| share),
                _ => None,
            }
        };
        self.expectations.retain_mut(|expectation| {
            let share = share(&expectation.variant, &expectation.metric);
            if let Some(share) = share {
                expectation.measured = share.value();
                expectation.holds = expectation.measured <= expectation.at_most;
            }
            share.is_some()
        });
        let metric = |variant: &str, metric: &str| {
            let variant = variants.iter().find(|result| result.name == variant)?;
            variant.metrics.get(metric)
        };
        // Of an interrupted run the slow ones are missing: what is left is no sample.
        let draws = match self.interrupted {
            true => 0,
            false => self.draws as usize,
        };
        self.verdicts
            .retain_mut(|verdict| verdict.judge(metric, draws));
    }
}

/// Returns a name that is there more than once.
fn twice<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = BTreeSet::new();
    names.find(|name| !seen.insert(*name))
}
