//! Settings of a simulator.

use crate::cost::CostModel;
use crate::fault::Faults;
use crate::strategy::Strategy;
use crate::topology::Topology;

/// Passing of time.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Operations cost time, and the earliest task goes on.
    Timed,
    /// There is no time; a strategy chooses the task that goes on after each visible operation.
    Explored(Strategy),
}

/// Way in which the words of a CPU are changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SectionKind {
    /// By restartable sections.
    #[default]
    Restartable,
    /// By atomic operations, as on machines without sections.
    Atomic,
}

/// Settings of a simulator.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// The machine.
    pub topology: Topology,
    /// Seed of everything random: ties, placement, faults, schedules.
    pub seed: u64,
    /// Costs of steps.
    pub costs: CostModel,
    /// Faults that are injected.
    pub faults: Faults,
    /// Way in which words of a CPU are changed.
    pub sections: SectionKind,
    /// Passing of time.
    pub mode: Mode,
    /// Whether a task whose turn it is anyway goes on without leaving its stack. Changes the speed and nothing else.
    pub run_ahead: bool,
}

impl Settings {
    /// Makes settings of a machine in virtual time, without faults.
    pub fn new(topology: Topology, seed: u64) -> Self {
        Self {
            topology,
            seed,
            costs: CostModel::default(),
            faults: Faults::default(),
            sections: SectionKind::default(),
            mode: Mode::Timed,
            run_ahead: true,
        }
    }
}
