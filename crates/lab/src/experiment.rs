//! Experiments as files: what is run, with which parameters, what was published and what is expected.

use serde::Deserialize;
use toml::{Table, Value};

use crate::machine_info::{MachineInfo, MachineKind};
use crate::verdict::Row;

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
    /// The variants, in the order in which they run.
    pub variants: Vec<String>,
    /// The parameters and their defaults.
    pub parameters: Table,
    /// What is different on the host. A list of values is a sweep.
    #[serde(default)]
    pub host: Table,
    /// What is different on a simulated machine. A list of values is a sweep.
    #[serde(default)]
    pub sim: Table,
    /// What a smoke test changes in `parameters`.
    pub quick: Table,
    /// What must hold on any machine.
    #[serde(rename = "expectation", default)]
    pub expectations: Vec<Expectation>,
    /// Figures from the thread.
    #[serde(default)]
    pub published: Vec<PublishedRow>,
    /// What counts as reproduced, in words, by subject.
    #[serde(rename = "criterion", default)]
    pub criteria: Table,
    /// Of the whole file; identifies parameters, expectations and criteria in a result.
    #[serde(skip)]
    pub hash: String,
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
}

/// Shares that a thread published for one machine and load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    /// Of which variant.
    pub variant: String,
    /// What the row is used for.
    pub row: Row,
    /// Machine and load, in words.
    pub load: String,
    /// The machine it holds for.
    pub machine: PublishedMachine,
    /// The parameters it holds for; others are not known.
    pub parameters: Table,
    /// The figures.
    pub shares: Vec<PublishedShare>,
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

/// One published share.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedShare {
    /// Name of the ratio.
    pub metric: String,
    /// The share.
    pub share: f64,
    /// How far ours may be from it.
    pub tolerance: f64,
}

impl Experiment {
    /// Reads an experiment's file.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        let mut experiment: Self = toml::from_str(text)?;
        experiment.hash = format!("fnv1a64:{:016x}", fnv1a64(text.as_bytes()));
        Ok(experiment)
    }

    /// The same experiment with the parameters of its smoke test.
    #[must_use]
    pub fn quick(mut self) -> Self {
        self.parameters.extend(self.quick.clone());
        self
    }

    /// What is different on a machine of this kind.
    pub fn overrides(&self, machine: MachineKind) -> &Table {
        match machine {
            MachineKind::Host => &self.host,
            MachineKind::Sim => &self.sim,
        }
    }

    /// Whether machine and parameters are those of the file, but for the seed.
    pub fn is_own_load(&self, machine: &MachineInfo, parameters: &Table) -> bool {
        let overrides = self.overrides(machine.kind());
        let own = |key: &str, value: &Value| match overrides.get(key).or(self.parameters.get(key)) {
            // A sweep: each of its points is the file's.
            Some(Value::Array(points)) => points.contains(value),
            own => own == Some(value),
        };
        let is_own_machine = match machine {
            MachineInfo::Sim(sim) => self.machine == format!("sim:{}", sim.topology),
            MachineInfo::Host(_) => self.machine == "host",
        };
        let mut parameters = parameters.iter();
        is_own_machine && parameters.all(|(key, value)| key == "seed" || own(key, value))
    }
}

impl PublishedRow {
    /// Whether the row's figures are of a machine and a load like these.
    pub fn holds_for(&self, machine: &MachineInfo, parameters: &Table) -> bool {
        self.machine.kind == machine.kind()
            && self.machine.cpus == machine.cpus()
            && self
                .parameters
                .iter()
                .all(|(key, value)| parameters.get(key) == Some(value))
    }
}

/// FNV-1a, 64 bits: an identity, not a protection.
fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_an_unknown_key_is_refused() {
        assert!(Experiment::parse("nmae = \"x\"").is_err());
    }

    #[test]
    fn the_hash_follows_the_published_test_vector() {
        assert_eq!(fnv1a64(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
