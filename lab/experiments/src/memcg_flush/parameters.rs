//! The parameters of the experiment.

use std::time::Duration;

use serde::Deserialize;

use bursar_kernel::charge::SLOTS_MAX;

use super::tree::Tree;
use crate::workload::{Misfit, SIMULATED_TASKS_MAX, Sizing, parameters};

/// Groups that the readers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Of ten reads, one reads the root and one a query; the others read a tenant.
    Mixed,
    /// Each reader reads one tenant, dealt out in turn.
    OwnTenant,
    /// The root.
    Root,
    /// Any query.
    Leaf,
}

/// Way in which readers use the file that they read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadFile {
    /// Opened once. A read changes no statistic.
    KeptOpen,
    /// Opened and closed for each read, which charges kernel memory to the reader's own group (`reader.rs`).
    Opened,
}

/// Number by which a killer chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KillerReads {
    /// Anonymous pages and pages of files, from `memory.stat`.
    MemoryStat,
    /// Usage, from `memory.current`, which needs no flush.
    MemoryCurrent,
    /// Pages that reclaim has looked at since the decision before, from `memory.stat`.
    Pgscan,
}

/// Whether readers of the published policies check a threshold for a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gate {
    /// As published.
    Threshold,
    /// A flush is always due, also where there is nothing to flush.
    AlwaysDue,
}

/// Greatest number of pages of all workers: each needs some 70 bytes, whether it is in memory or not.
const PAGES_MAX: u64 = 1 << 26;

// A log entry holds a query in 20 bits and nanoseconds in 44 (see `worker`): an hour is well inside.
parameters! {
    it;
    readers: u64 [0 to 100_000];
    workers: u64 [0 to 10_000];
    tenants: u64 [1 to 100_000];
    queries: u64 [1 to 100_000];
    ancestors: u64 [2 to 32];
    format_ns: u64 [0 to 1_000_000_000];
    read_interval_ms: u64 [1 to 60_000];
    duration_ms: u64 [10 to 3_600_000];
    flush_period_ms: u64 [1 to 3_600_000];
    working_set_pages: u64 [1 to 1 << 24];
    pages_per_query: u64 [1 to 1 << 24];
    tenant_limit_pages: u64 [1 to 1 << 40];
    compute_ns: u64 [0 to 1_000_000_000];
    max_waiters: u64 [0 to 1_000_000];
    reader_start_ns: u64 [0 to 1_000_000_000];
    read_file: ReadFile;
    gate: Gate;
    kernel_charge_ns: u64 [0 to 1_000_000];
    stock_slots: u64 [1 to SLOTS_MAX as u64];
    read_scope: Scope;
    need_ms: u64 [0 to 3_600_000];
    site_need_ms: u64 [0 to 3_600_000];
    warm_up_pages: u64 [0 to 1 << 20];
    // A tenant that gets no pages at all at the bottom could be the only one.
    swing_percent: u64 [0 to 99];
    swing_ms: u64 [1 to 3_600_000];
    killers: u64 [0 to 10_000];
    killer_interval_ms: u64 [1 to 60_000];
    killer_reads: KillerReads;
    pairs: u64 [0 to 10_000];
    proactive: u64 [0 to 100_000];
    proactive_interval_ms: u64 [1 to 60_000];
    proactive_step_pages: u64 [1 to 1 << 20];
    streams: u64 [0 to 10_000];
    flows: u64 [1 to 1_000_000];
    segment_bytes: u64 [PAGE_SIZE to 1 << 24];
    segment_ns: u64 [1 to 1_000_000_000];
    file_percent: u64 [0 to 100];
    hot_page_percent: u64 [1 to 100];
    hot_access_percent: u64 [0 to 100];
    zswap_percent: u64 [0 to 100];
    zswap_limit_pages: u64 [0 to 1 << 40];
    zswap_site: Site;
    swap_io_ns: u64 [0 to 1_000_000_000];
    reclaim_site: Site;
    reclaimers: u64 [0 to 10_000];
    reclaimer_interval_us: u64 [1 to 60_000_000];
}

/// Place in the kernel that flushes statistics for another purpose than showing them. The parameters are the sites of
/// reclaim before it scans, and of the limit of compressed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Site {
    /// Flushes if there were enough updates, as a reader does: reclaim up to Linux 6.10.
    Unlimited,
    /// Flushes only if the periodic flusher is a full cycle late: reclaim since 6.12.
    RateLimited,
    /// Flushes always: the limit of compressed memory.
    Forced,
}

/// Freshness that a reader needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The variant's own freshness.
    Own,
    /// No older than this. Only Bursar can be asked for it, if readers may flush; the other variants ignore it.
    AtMost(Duration),
}

/// Size of a page, bytes.
pub(super) const PAGE_SIZE: u64 = 4096;

impl Parameters {
    /// Returns the shape of the tree.
    pub fn tree(&self) -> Tree {
        Tree {
            tenants: self.tenants as usize,
            queries: self.queries as usize,
            ancestors: self.ancestors as usize,
        }
    }

    /// Returns how fresh the readers need their numbers.
    pub(super) fn need(&self) -> Need {
        match self.need_ms {
            0 => Need::Own,
            age => Need::AtMost(Duration::from_millis(age)),
        }
    }

    /// Returns whether a decision is compared with the truth at the moment.
    pub(super) fn needs_oracle(&self) -> bool {
        self.killers > 0 || self.proactive > 0 || self.pairs > 0
    }

    /// Returns the pages that a segment of a stream takes.
    pub(super) fn segment_pages(&self) -> i64 {
        self.segment_bytes.div_ceil(PAGE_SIZE) as i64
    }
}

impl Sizing for Parameters {
    fn misfits(&self) -> Vec<Misfit> {
        let Self {
            workers,
            tenants,
            queries,
            duration_ms,
            proactive,
            streams,
            ..
        } = *self;
        let groups = tenants * queries;
        let pages = workers * self.working_set_pages;
        let warm_up = self.warm_up_pages * queries;
        let too_long = |users: u64, key, interval_ms: u64| {
            let problem =
                format!("is {interval_ms}, and must be below `duration_ms`, {duration_ms}");
            (users > 0 && interval_ms >= duration_ms, key, problem)
        };
        vec![
            (
                groups > 100_000,
                "queries",
                format!("times `tenants` is {groups}, and must be at most 100000"),
            ),
            too_long(1, "read_interval_ms", self.read_interval_ms),
            too_long(self.killers, "killer_interval_ms", self.killer_interval_ms),
            too_long(
                proactive,
                "proactive_interval_ms",
                self.proactive_interval_ms,
            ),
            (
                self.readers + self.killers + self.pairs + proactive + streams == 0,
                "readers",
                "is 0, and nothing else is measured".to_owned(),
            ),
            (
                pages > PAGES_MAX,
                "working_set_pages",
                format!("times `workers` is {pages}, and must be at most {PAGES_MAX}"),
            ),
            (
                warm_up > self.tenant_limit_pages,
                "warm_up_pages",
                format!(
                    "times `queries` is {warm_up}, and must be at most `tenant_limit_pages`, {}",
                    self.tenant_limit_pages
                ),
            ),
            (
                proactive > tenants,
                "proactive",
                format!("is {proactive}, and there are {tenants} tenants for one loop each"),
            ),
            (
                streams > 0 && self.flows < streams,
                "flows",
                format!(
                    "is {}, and must be at least `streams`, {streams}",
                    self.flows
                ),
            ),
        ]
    }

    fn simulated_misfit(&self) -> Option<Misfit> {
        let others = self.workers
            + self.reclaimers
            + self.killers
            + self.pairs
            + self.proactive
            + 2 * self.streams;
        let problem = format!(
            "is {} beside {others} other tasks, and a simulated run has room for {SIMULATED_TASKS_MAX} tasks; a tenth of the \
             readers, each ten times as often, read as much",
            self.readers
        );
        let is_too_many = self.readers + others > SIMULATED_TASKS_MAX;
        Some((is_too_many, "readers", problem))
    }

    fn run_ms(&self) -> u64 {
        self.duration_ms
    }

    fn simulated_seconds(&self, cpus: usize) -> f64 {
        /// Time to simulate one read. Measured on one core of a server: 2 to 16 us, by policy.
        const READ_SECONDS: f64 = 5e-6;
        /// Time to simulate one page of a worker: 3 us, measured likewise.
        const PAGE_SECONDS: f64 = 3e-6;
        /// Time to simulate one segment of a stream, at both ends: 20 us, measured likewise.
        const SEGMENT_SECONDS: f64 = 20e-6;
        /// Time of a worker for a page besides computing, seconds of the machine's time.
        const PAGE_OVERHEAD_SECONDS: f64 = 2e-6;
        let duration = self.duration_ms as f64 / 1e3;
        let reads = self.readers as f64 * duration / (self.read_interval_ms as f64 / 1e3);
        let running = self.workers.min(cpus as u64) as f64;
        let pages = running * duration / (self.compute_ns as f64 / 1e9 + PAGE_OVERHEAD_SECONDS);
        let segments = self.streams as f64 * duration / (self.segment_ns as f64 / 1e9);
        reads * READ_SECONDS + pages * PAGE_SECONDS + segments * SEGMENT_SECONDS
    }
}
