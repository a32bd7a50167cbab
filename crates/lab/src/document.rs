//! The document of a run: what `bursar run -f json` prints.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::measure::Metric;

/// Version of the document's form.
pub const SCHEMA: u32 = 1;

/// The result of one experiment on one machine.
#[derive(Clone, Debug, Serialize)]
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
    /// Where it ran.
    pub machine: MachineInfo,
    /// With what it ran.
    pub parameters: toml::Table,
    /// The first seed; the others follow it.
    pub seed: u64,
    /// How many seeds.
    pub seeds: u64,
    /// What was measured.
    pub variants: Vec<VariantResult>,
    /// What must hold on any machine, and whether it did.
    pub expectations: Vec<ExpectationResult>,
    /// Comparisons with published figures. Empty where the machine is not the published one.
    pub verdicts: Vec<Verdict>,
}

/// Where an experiment ran.
#[derive(Clone, Debug, Serialize)]
pub struct MachineInfo {
    /// `host`: real threads, real time.
    pub kind: &'static str,
    /// Number of CPUs.
    pub cpus: usize,
    /// Number of NUMA nodes.
    pub nodes: usize,
    /// What the CPUs call themselves.
    pub model: String,
    /// Kernel and architecture.
    pub system: String,
    /// How per-CPU words are changed.
    pub backend: String,
}

/// What one variant gave.
#[derive(Clone, Debug, Serialize)]
pub struct VariantResult {
    /// Its name.
    pub name: String,
    /// What it does, in one line.
    pub summary: String,
    /// What was measured, in the order of interest.
    pub metrics: Metrics,
}

/// Metrics by name, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Vec<(&'static str, Metric)>);

impl Metrics {
    /// Adds a metric.
    pub fn push(&mut self, name: &'static str, metric: Metric) {
        self.0.push((name, metric));
    }

    /// A metric by its name.
    pub fn get(&self, name: &str) -> Option<&Metric> {
        self.iter()
            .find(|(other, _)| *other == name)
            .map(|(_, metric)| metric)
    }

    /// All metrics.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Metric)> {
        self.0.iter().map(|(name, metric)| (*name, metric))
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

/// Whether something that must hold did.
#[derive(Clone, Debug, Serialize)]
pub struct ExpectationResult {
    /// Of which variant.
    pub variant: String,
    /// Of which metric.
    pub metric: String,
    /// Its largest value.
    pub at_most: f64,
    /// The value found.
    pub measured: f64,
    /// Whether it is at most that.
    pub holds: bool,
    /// Why it must hold.
    pub reason: String,
}

/// A published figure beside ours.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Of which variant.
    pub variant: String,
    /// Of which metric.
    pub metric: String,
    /// What the thread published.
    pub published: f64,
    /// What we found.
    pub measured: f64,
    /// Lower end of our interval.
    pub lo: f64,
    /// Upper end of our interval.
    pub hi: f64,
    /// `reproduced`, `direction only`, `not reproduced` or `inconclusive`.
    pub verdict: &'static str,
}

impl Document {
    /// Whether everything that must hold did.
    pub fn holds(&self) -> bool {
        self.expectations
            .iter()
            .all(|expectation| expectation.holds)
    }
}
