//! Shared by the tests of guarantees on simulated machines.
#![allow(dead_code, reason = "each test uses a part")]

pub mod truth;

use bursar::{Builder, HighPolicy, Memory};
pub use bursar_check::model::statistics::{BALANCE, BATCHED, EAGER, ROWS, STATISTICS};
use bursar_machine::Host;
use bursar_rig::timer::Timers;
use bursar_sim::{Chance, Counts, Faults, Kill, Settings, Sim, Simulator, Stall, Topology};

pub type Body<'a> = Box<dyn FnOnce() + Send + 'a>;

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;

pub fn settings(cpus: usize, seed: u64) -> Settings {
    Settings::new(Topology::new(cpus, cpus.div_ceil(192), 1000), seed)
}

pub fn builder() -> Builder {
    Memory::<Host>::builder()
        .statistics(STATISTICS)
        .high_policy(HighPolicy::Throttle)
}

/// A machine without faults, and a memory on it.
pub fn calm(cpus: usize, seed: u64) -> (Simulator, Sim, Memory<Sim>) {
    let simulator = Simulator::new(settings(cpus, seed));
    let machine = simulator.machine();
    let memory = builder()
        .build_on(machine.clone())
        .expect("the root has room");
    (simulator, machine, memory)
}

/// Faults that strike a machine of so many CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Struck {
    Not,
    StalledCpus,
    StalledLocks,
    PreemptedSections,
    LateTimers,
    KilledTasks,
    All,
}

impl Struck {
    pub const EACH: [Self; 7] = [
        Self::Not,
        Self::StalledCpus,
        Self::StalledLocks,
        Self::PreemptedSections,
        Self::LateTimers,
        Self::KilledTasks,
        Self::All,
    ];

    /// Kills are for tasks below `mortal`.
    pub fn faults(self, cpus: usize, mortal: u32) -> Faults {
        let chance = |one_in, for_ns| Chance { one_in, for_ns };
        let is = |kind| self == kind || self == Self::All;
        let mut faults = Faults::default();
        if is(Self::StalledCpus) {
            faults.stalls.extend((0..12).map(|number| Stall {
                cpu: number * 7 % cpus as u32,
                at_ns: 30 * US * u64::from(number + 1),
                for_ns: 3 * MS,
            }));
        }
        if is(Self::StalledLocks) {
            faults.lock_stall = chance(40, 300 * US);
        }
        if is(Self::PreemptedSections) {
            faults.section_preemption = chance(7, 60 * US);
        }
        if is(Self::LateTimers) {
            faults.late_timer = chance(3, MS);
        }
        if is(Self::KilledTasks) {
            faults.kills.extend((0..mortal).step_by(5).map(|task| Kill {
                task,
                at_ns: 40 * US * u64::from(task + 1),
            }));
        }
        faults
    }
}

/// Events between two moments.
pub fn between(before: Counts, after: Counts) -> Counts {
    let mut counts = after;
    counts.events -= before.events;
    counts.acquisitions -= before.acquisitions;
    counts.transfers -= before.transfers;
    counts.switches -= before.switches;
    counts.preemptions -= before.preemptions;
    counts.wakes -= before.wakes;
    counts.migrations -= before.migrations;
    counts.fences -= before.fences;
    counts.faults -= before.faults;
    counts
}

/// Cost of `work` to the machine when it runs alone on a CPU.
pub fn cost_on(simulator: &Simulator, cpu: u32, work: impl FnOnce() + Send) -> Counts {
    let before = simulator.counts();
    simulator
        .machine()
        .run_bound(vec![(Some(cpu), Box::new(work))]);
    between(before, simulator.counts())
}
