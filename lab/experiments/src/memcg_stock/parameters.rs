//! The parameters of the experiment.

use crate::workload::{Misfit, Sizing, parameters};

parameters! {
    it;
    duration_ms: u64 [1 to 3_600_000];
    groups: u64 [1 to 4_096];
    group_sets: u64 [1 to 4_096];
    moves: bool;
    charge_pages: u64 [1 to 1 << 20];
    cycle_charges: u64 [1 to 1 << 20];
    release_charges: u64 [1 to 1 << 20];
    work_ns: u64 [0 to 1_000_000_000];
    limit_percent: u64 [0 to 1_000_000];
    drain_interval_us: u64 [0 to 1_000_000_000];
    sample_interval_us: u64 [1 to 1_000_000_000];
}

impl Parameters {
    /// Returns the number of all groups below the tenant.
    pub(super) fn all_groups(&self) -> u64 {
        self.groups * self.group_sets
    }

    /// Returns the tenant's limit, pages; none if there is none.
    pub(super) fn limit_pages(&self, cpus: usize) -> Option<u64> {
        let held = self.charge_pages * self.cycle_charges * cpus as u64;
        (self.limit_percent > 0).then(|| held.saturating_mul(self.limit_percent) / 100)
    }
}

impl Sizing for Parameters {
    fn misfits(&self) -> Vec<Misfit> {
        /// Words of stock: a group has one on each CPU.
        const GROUPS_MAX: u64 = 16_384;
        let groups = self.all_groups();
        let problem = format!(
            "is {}, times `groups` {groups} groups, and {GROUPS_MAX} are the most",
            self.group_sets
        );
        vec![(groups > GROUPS_MAX, "group_sets", problem)]
    }

    fn run_ms(&self) -> u64 {
        self.duration_ms
    }

    fn simulated_seconds(&self, cpus: usize) -> f64 {
        /// Time to simulate a charge and its return: measured on one core of a server.
        const CHARGE_SECONDS: f64 = 0.6e-6;
        /// Time of a charge besides the task's work, seconds of the machine's time.
        const OVERHEAD_SECONDS: f64 = 200e-9;
        let each = self.work_ns as f64 / 1e9 + OVERHEAD_SECONDS;
        self.duration_ms as f64 / 1e3 / each * cpus as f64 * CHARGE_SECONDS
    }
}
