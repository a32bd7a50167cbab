//! Experiments as files: loads, parameters, published figures and expectations.

use std::collections::BTreeMap;

use bursar_machine::Fnv1a64;
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::machine_info::{MachineInfo, MachineKind};
use crate::verdict::{Basis, Row, Rule, Verdict};

/// An experiment's file (`experiments/*.toml`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The name on the command line and in results.
    pub name: String,
    /// Subject, in a few words.
    pub title: String,
    /// Thread in which the question was discussed.
    pub thread: String,
    /// Load and measurement, in a paragraph.
    pub about: String,
    /// Machine that it runs on by default, as in `-m`.
    pub machine: String,
    /// All variants, in the order in which they run.
    pub variants: Vec<String>,
    /// The parameters and their defaults.
    pub parameters: Table,
    /// Values that differ on the host. `load` names the loads that run there by default.
    #[serde(default)]
    pub host: Table,
    /// Values that differ on a simulated machine. `load` names the loads that run there by default.
    #[serde(default)]
    pub sim: Table,
    /// Values that the quick form changes on the host.
    #[serde(default)]
    pub quick: Table,
    /// Values that the quick form changes on a simulated machine.
    #[serde(default)]
    pub quick_sim: Table,
    /// Parameters with unknown values, and their ranges. Draws hold values for them.
    #[serde(default)]
    pub uncertain: Table,
    /// The loads.
    #[serde(rename = "load", default)]
    pub loads: Vec<Load>,
    /// Conditions that must hold on any machine.
    #[serde(rename = "expectation", default)]
    pub expectations: Vec<Expectation>,
    /// Figures that the thread published.
    #[serde(default)]
    pub published: Vec<PublishedRow>,
    /// Criteria for a reproduced figure, in words, by subject.
    #[serde(rename = "criterion", default)]
    pub criteria: Table,
    /// Hash of the whole file and of the draws. It identifies parameters, expectations and criteria in a result.
    #[serde(skip)]
    pub hash: String,
    /// The draws of uncertain constants and parameters that fit the calibration rows.
    #[serde(skip)]
    pub draws: Draws,
}

/// Number of seeds for variants that no published figure is about. They complete the picture, and some cost more to
/// simulate than all others together.
pub const SEEDS_BESIDE: u64 = 1;

/// Values of parameters that belong together.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Its name, for `-s load=NAME`.
    pub name: String,
    /// Events in it, and the question that it serves.
    pub about: String,
    /// Variants that run in it by default; all if there is no list.
    pub variants: Option<Vec<String>>,
    /// Variants that no published figure is about: they run with the first [`SEEDS_BESIDE`] seeds only.
    #[serde(default)]
    pub beside: Vec<String>,
    /// Values that differ in it.
    #[serde(default)]
    pub parameters: Table,
    /// Values that differ in it on the host.
    #[serde(default)]
    pub host: Table,
    /// Values that differ in it on a simulated machine.
    #[serde(default)]
    pub sim: Table,
    /// Values that the quick form changes in it besides.
    #[serde(default)]
    pub quick: Table,
}

/// A bound on a ratio that must hold on any machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Variant that it is about.
    pub variant: String,
    /// Name of a ratio.
    pub metric: String,
    /// Largest allowed value.
    pub at_most: f64,
    /// Reason why it must hold.
    pub reason: String,
    /// Parameters that it requires; others do not matter.
    #[serde(default)]
    pub only_if: Table,
}

/// Figures that a thread published for one machine and load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    /// Variant that they are about.
    pub variant: String,
    /// Use of the row.
    pub row: Row,
    /// Load that they are about.
    pub load: String,
    /// Machine and load, in words.
    pub about: String,
    /// Machine that they hold for.
    pub machine: PublishedMachine,
    /// Parameters that they hold for; others are not known.
    #[serde(default)]
    pub parameters: Table,
    /// The figures.
    pub figures: Vec<PublishedFigure>,
}

/// Known properties of the machine of a published figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedMachine {
    /// Kind of machine on which the figure can be compared.
    pub kind: MachineKind,
    /// Number of CPUs.
    pub cpus: usize,
}

/// One published figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigure {
    /// Name of a metric that has a number for each seed.
    pub metric: String,
    /// Published value: a share, a quotient, or a change.
    pub published: f64,
    /// Rule that judges our value.
    pub rule: Rule,
}

/// Numbers by name.
pub type Values = BTreeMap<String, u64>;

/// The accepted draws of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draws {
    /// Number of draws that were tried.
    #[serde(default)]
    pub tried: u64,
    /// Seed of the draws.
    #[serde(default)]
    pub seed: u64,
    /// Identity of the cost model whose ranges they were drawn from.
    #[serde(default)]
    pub model: String,
    /// Whether the user or a run that failed ended the search before it had tried or kept the requested number.
    #[serde(default, skip_serializing_if = "is_complete")]
    pub interrupted: bool,
    /// Draws that passed.
    #[serde(rename = "draw", default)]
    pub accepted: Vec<Draw>,
}

fn is_complete(interrupted: &bool) -> bool {
    !interrupted
}

/// One draw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draw {
    /// Number of the draw among those that were tried.
    pub number: u64,
    /// Figures of the calibration rows with it.
    #[serde(default)]
    pub measured: BTreeMap<String, f64>,
    /// Parameters of the load.
    pub parameters: Values,
    /// Constants of the cost model.
    pub costs: Values,
}

impl Draws {
    /// Returns the draw that a seed runs with.
    pub fn of_seed(&self, seed: u64) -> Option<&Draw> {
        let count = self.accepted.len() as u64;
        // Not of `seed - 1`, which wraps at 0: the draws of 0 to 19 would not be 20.
        let place = (seed.checked_rem(count)? + count - 1) % count;
        self.accepted.get(place as usize)
    }
}

impl PublishedRow {
    /// Returns the comparison with one of its figures, not judged yet.
    pub fn unjudged(&self, figure: &PublishedFigure, basis: Basis) -> Verdict {
        Verdict {
            variant: self.variant.clone(),
            metric: figure.metric.clone(),
            row: self.row,
            basis,
            load: self.about.clone(),
            rule: figure.rule.clone(),
            published: figure.published,
            measured: 0.0,
            lo: 0.0,
            hi: 0.0,
            verdict: None,
            reason: String::new(),
        }
    }
}

impl Experiment {
    /// Parses an experiment's file, and the file of its draws.
    ///
    /// # Errors
    /// A description of the defect, and its place.
    pub fn parse(text: &str, draws: &str) -> Result<Self, toml::de::Error> {
        let mut experiment: Self = toml::from_str(text)?;
        experiment.draws = toml::from_str(draws)?;
        let hash = Fnv1a64::new();
        experiment.hash = hash
            .write(text.as_bytes())
            .write(draws.as_bytes())
            .to_string();
        Ok(experiment)
    }

    /// Returns the values that differ on a machine of this kind.
    pub fn overrides(&self, machine: MachineKind) -> &Table {
        match machine {
            MachineKind::Host => &self.host,
            MachineKind::Sim => &self.sim,
        }
    }

    /// Returns the values that the quick form changes on a machine of this kind.
    pub fn quick_overrides(&self, machine: MachineKind) -> &Table {
        match machine {
            MachineKind::Host => &self.quick,
            MachineKind::Sim => &self.quick_sim,
        }
    }

    /// Returns whether a machine is the one that the file names.
    pub fn is_own_machine(&self, machine: &MachineInfo) -> bool {
        match machine {
            MachineInfo::Sim(sim) => self.machine == format!("sim:{}", sim.topology),
            MachineInfo::Host(_) => self.machine == "host",
        }
    }
}

impl Load {
    /// Returns the values that differ on a machine of this kind.
    pub fn overrides(&self, machine: MachineKind) -> &Table {
        match machine {
            MachineKind::Host => &self.host,
            MachineKind::Sim => &self.sim,
        }
    }
}

impl PublishedRow {
    /// Returns whether the row's figures are of a machine and a load like these.
    pub fn holds_for(&self, machine: &MachineInfo, load: &str, parameters: &Table) -> bool {
        self.load == load
            && self.machine.kind == machine.kind()
            && self.machine.cpus == machine.cpus()
            && self
                .parameters
                .iter()
                .all(|(key, value)| parameters.get(key) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_an_unknown_key_is_refused() {
        assert!(Experiment::parse("nmae = \"x\"", "").is_err());
    }
}
