//! What a simulator is made of.

use crate::cost::CostModel;
use crate::fault::Faults;
use crate::strategy::Strategy;
use crate::topology::Topology;

/// How time passes.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// Operations cost time, and whoever is earliest goes on.
    Timed,
    /// There is no time; a strategy says who goes on after each visible operation.
    Explored(Strategy),
}

/// How the words of a CPU are changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SectionKind {
    /// By restartable sections.
    #[default]
    Restartable,
    /// By atomic operations, as on machines without sections.
    Atomic,
}

/// A simulator's settings.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// The machine.
    pub topology: Topology,
    /// Of everything random: ties, placement, faults, schedules.
    pub seed: u64,
    /// What steps cost.
    pub costs: CostModel,
    /// What goes wrong.
    pub faults: Faults,
    /// How words of a CPU are changed.
    pub sections: SectionKind,
    /// How time passes.
    pub mode: Mode,
    /// Whether a task whose turn it is anyway goes on without leaving its stack. Changes the speed and nothing else.
    pub run_ahead: bool,
}

impl Settings {
    /// A machine in virtual time, without faults.
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
