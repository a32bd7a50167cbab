//! The machine of an experiment, as documents describe it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Kind of machine that an experiment runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineKind {
    /// Real threads, real time.
    Host,
    /// Virtual CPUs, virtual time.
    Sim,
}

impl fmt::Display for MachineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Sim => "sim",
        })
    }
}

/// Machine of a document. `kind` distinguishes figures of real machines from simulated ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum MachineInfo {
    /// Real threads, real time.
    Host(HostInfo),
    /// Virtual CPUs, virtual time.
    Sim(SimInfo),
}

/// The host. Figures of different hosts must not be compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostInfo {
    /// Number of CPUs.
    pub cpus: usize,
    /// Number of NUMA nodes.
    pub nodes: usize,
    /// Name of the CPUs, as they report it.
    pub model: String,
    /// Kernel and architecture.
    pub system: String,
    /// Backend that changes per-CPU words.
    pub backend: String,
}

/// A simulated machine. None of its fields depends on the host that simulated it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimInfo {
    /// Number of CPUs.
    pub cpus: usize,
    /// Number of NUMA nodes.
    pub nodes: usize,
    /// Ticks a second.
    pub hz: u32,
    /// All keys of the topology, as in `-m`.
    pub topology: String,
    /// Identity of the cost model.
    pub model: String,
}

impl MachineInfo {
    /// Returns the kind of machine.
    pub fn kind(&self) -> MachineKind {
        match self {
            Self::Host(_) => MachineKind::Host,
            Self::Sim(_) => MachineKind::Sim,
        }
    }

    /// Number of CPUs.
    pub fn cpus(&self) -> usize {
        match self {
            Self::Host(host) => host.cpus,
            Self::Sim(sim) => sim.cpus,
        }
    }

    /// Returns the identity of the cost model, if there is one.
    pub fn cost_model(&self) -> Option<&str> {
        match self {
            Self::Host(_) => None,
            Self::Sim(sim) => Some(&sim.model),
        }
    }
}

impl fmt::Display for MachineInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(
                f,
                "host (cpus={}, nodes={}, {}, {}, {})",
                host.cpus, host.nodes, host.model, host.system, host.backend
            ),
            Self::Sim(sim) => write!(f, "sim:{}", sim.topology),
        }
    }
}
