//! The parameters of the experiment.

use crate::workload::{Misfit, SIMULATED_TASKS_MAX, Sizing, parameters};

parameters! {
    it;
    duration_ms: u64 [100 to 3_600_000];
    clients_percent: u64 [1 to 10_000];
    tenants: u64 [1 to 1_024];
    memory_mib_per_cpu: u64 [1 to 1 << 20];
    peak_mib_min: u64 [1 to it.peak_mib_max];
    peak_mib_max: u64 [1 to 1 << 20];
    batch_mib: u64 [1 to 1 << 20];
    batch_us: u64 [1 to 1_000_000];
    probe_percent: u64 [0 to 10_000];
    spillable_percent: u64 [0 to 100];
    disk_mib_per_second: u64 [1 to 1 << 20];
    high_percent: u64 [0 to 100];
    estimate_error: u64 [1 to 1_000];
    even_peak_mib_max: u64 [1 to 1 << 20];
    burst_ms: u64 [0 to 3_600_000];
    creepers: u64 [0 to 1_024];
    lowered_to_percent: u64 [1 to 100];
    numbers_age_ms: u64 [0 to 3_600_000];
    tries: u64 [1 to 1_000];
    own_ask_percent: u64 [1 to 10_000];
    own_ask_after_ms: u64 [0 to 3_600_000];
    own_stop_after_ms: u64 [0 to 3_600_000];
    own_stops_largest: bool;
    fixed_parts_percent: u64 [1 to 10_000];
    greedy_at_once_percent: u64 [0 to 10_000];
    velox_at_once_percent: u64 [0 to 10_000];
    clickhouse_overcommit_percent: u64 [1 to 10_000];
    largest_at_once_percent: u64 [0 to 10_000];
    largest_wait_ms: u64 [0 to 3_600_000];
    youngest_at_once_percent: u64 [0 to 10_000];
    youngest_wait_ms: u64 [0 to 3_600_000];
}

impl Parameters {
    /// Returns the number of clients on a machine.
    pub(super) fn clients(&self, cpus: usize) -> u64 {
        of_percent(cpus as u64, self.clients_percent).max(1)
    }

    /// Returns the memory of all queries, MiB.
    pub(super) fn memory_mib(&self, cpus: usize) -> u64 {
        self.memory_mib_per_cpu * cpus as u64
    }

    /// Returns the peak of the largest query, MiB: on a small machine half of the memory.
    pub(super) fn largest_mib(&self, cpus: usize) -> u64 {
        let half = self.memory_mib(cpus) / 2;
        self.peak_mib_max.min(half).max(self.peak_mib_min)
    }
}

/// Returns so many hundredths of a number.
pub(super) fn of_percent(number: u64, percent: u64) -> u64 {
    number * percent / 100
}

impl Sizing for Parameters {
    fn misfits(&self) -> Vec<Misfit> {
        let too_long = self.burst_ms * 2 > self.duration_ms;
        let problem = format!(
            "is {}, and a burst and the pause after it must fit into `duration_ms` = {}",
            self.burst_ms, self.duration_ms
        );
        vec![(too_long, "burst_ms", problem)]
    }

    fn simulated_misfit(&self) -> Option<Misfit> {
        /// CPUs of the largest machine that the lab simulates.
        const CPUS_MAX: u64 = 1_024;
        let tasks = of_percent(CPUS_MAX, self.clients_percent) + self.creepers;
        let problem = format!("is {}, which may be {tasks} tasks", self.clients_percent);
        let is_misfit = tasks > SIMULATED_TASKS_MAX;
        Some((is_misfit, "clients_percent", problem))
    }

    fn run_ms(&self) -> u64 {
        self.duration_ms
    }

    fn simulated_seconds(&self, cpus: usize) -> f64 {
        /// Time to simulate a batch: measured on one core of a server.
        const BATCH_SECONDS: f64 = 2e-6;
        let batches = self.duration_ms as f64 * 1e3 / self.batch_us as f64 * cpus as f64;
        batches * BATCH_SECONDS
    }
}
