//! Experiments as files: what is run, with which parameters, what was published and what is expected.

use bursar_machine::Fnv1a64;
use serde::Deserialize;
use toml::Table;

use crate::draws::Draws;
use crate::machine_info::{MachineInfo, MachineKind};
use crate::verdict::{Row, Rule};

/// An experiment's file (`experiments/*.toml`).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The name on the command line and in results.
    pub name: String,
    /// What it measures, in a few words.
    pub title: String,
    /// Where the question was discussed.
    pub thread: String,
    /// What happens and what is measured, in a paragraph.
    pub about: String,
    /// The machine it runs on if none is asked for, as the command line has it.
    pub machine: String,
    /// All variants, in the order in which they run.
    pub variants: Vec<String>,
    /// The parameters and their defaults.
    pub parameters: Table,
    /// What is different on the host. `load` says which loads run there if none is asked for.
    #[serde(default)]
    pub host: Table,
    /// What is different on a simulated machine. `load` says which loads run there if none is asked for.
    #[serde(default)]
    pub sim: Table,
    /// What the quick form changes on the host.
    #[serde(default)]
    pub quick: Table,
    /// What the quick form changes on a simulated machine.
    #[serde(default)]
    pub quick_sim: Table,
    /// Parameters that nobody knows, and from what to what they may be. Draws hold values for them.
    #[serde(default)]
    pub uncertain: Table,
    /// The loads.
    #[serde(rename = "load", default)]
    pub loads: Vec<Load>,
    /// What must hold on any machine.
    #[serde(rename = "expectation", default)]
    pub expectations: Vec<Expectation>,
    /// Figures from the thread.
    #[serde(default)]
    pub published: Vec<PublishedRow>,
    /// What counts as reproduced, in words, by subject.
    #[serde(rename = "criterion", default)]
    pub criteria: Table,
    /// Of the whole file and of the draws; identifies parameters, expectations and criteria in a result.
    #[serde(skip)]
    pub hash: String,
    /// The draws of uncertain constants and parameters that fit the calibration rows.
    #[serde(skip)]
    pub draws: Draws,
}

/// With how many seeds variants run that stand beside those that figures are about: they show the picture, and some cost more
/// to simulate than all others together.
pub const SEEDS_BESIDE: u64 = 1;

/// Values of parameters that belong together.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Its name, for `-s load=NAME`.
    pub name: String,
    /// What happens in it, and which question it is for.
    pub about: String,
    /// The variants that run in it if none are asked for; all if there is no list.
    pub variants: Option<Vec<String>>,
    /// Those of them that no published figure is about: they run with the first [`SEEDS_BESIDE`] seeds only.
    #[serde(default)]
    pub beside: Vec<String>,
    /// What is different in it.
    #[serde(default)]
    pub parameters: Table,
    /// What is different in it on the host.
    #[serde(default)]
    pub host: Table,
    /// What is different in it on a simulated machine.
    #[serde(default)]
    pub sim: Table,
    /// What the quick form changes in it besides.
    #[serde(default)]
    pub quick: Table,
}

/// A bound on a ratio that must hold on any machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Of which variant.
    pub variant: String,
    /// Name of a ratio.
    pub metric: String,
    /// Its largest value.
    pub at_most: f64,
    /// Why it must hold.
    pub reason: String,
    /// The parameters that it is for; others do not matter.
    #[serde(default)]
    pub only_if: Table,
}

/// Figures that a thread published for one machine and load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    /// Of which variant.
    pub variant: String,
    /// What the row is used for.
    pub row: Row,
    /// The load it holds for.
    pub load: String,
    /// Machine and load, in words.
    pub about: String,
    /// The machine it holds for.
    pub machine: PublishedMachine,
    /// The parameters it holds for; others are not known.
    #[serde(default)]
    pub parameters: Table,
    /// The figures.
    pub figures: Vec<PublishedFigure>,
}

/// What is known of the machine of a published figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedMachine {
    /// Where it can be compared.
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
    /// What was published: a share, a quotient, or a change.
    pub published: f64,
    /// By what ours is judged.
    pub rule: Rule,
}

impl Experiment {
    /// Reads an experiment's file, and the file of its draws.
    ///
    /// # Errors
    /// What is wrong with one of them, and where.
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

    /// What is different on a machine of this kind.
    pub fn overrides(&self, machine: MachineKind) -> &Table {
        match machine {
            MachineKind::Host => &self.host,
            MachineKind::Sim => &self.sim,
        }
    }

    /// What the quick form changes on a machine of this kind.
    pub fn quick_overrides(&self, machine: MachineKind) -> &Table {
        match machine {
            MachineKind::Host => &self.quick,
            MachineKind::Sim => &self.quick_sim,
        }
    }

    /// Whether the machine is the one that the file names.
    pub fn is_own_machine(&self, machine: &MachineInfo) -> bool {
        match machine {
            MachineInfo::Sim(sim) => self.machine == format!("sim:{}", sim.topology),
            MachineInfo::Host(_) => self.machine == "host",
        }
    }
}

impl Load {
    /// What is different on a machine of this kind.
    pub fn overrides(&self, machine: MachineKind) -> &Table {
        match machine {
            MachineKind::Host => &self.host,
            MachineKind::Sim => &self.sim,
        }
    }
}

impl PublishedRow {
    /// Whether the row's figures are of a machine and a load like these.
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
