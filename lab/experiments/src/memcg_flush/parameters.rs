//! The parameters of the experiment.

use std::time::Duration;

use serde::Deserialize;

use super::subject::{Need, PAGE_SIZE, Site};
use super::tree::Tree;
use crate::settings::{ParameterError, check_ranges, range_error};
use crate::workload::SIMULATED_TASKS_MAX;

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

/// Greatest number of pages of all workers: each needs some 70 bytes, whether it is in memory or not.
const PAGES_MAX: u64 = 1 << 26;

/// Contents of `[parameters]` in the experiment's file; units are in the names, meanings in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(
    missing_docs,
    reason = "the experiment's file documents them for its users"
)]
pub struct Parameters {
    pub seed: u64,
    pub readers: u64,
    pub workers: u64,
    pub tenants: u64,
    pub queries: u64,
    pub ancestors: u64,
    pub format_ns: u64,
    pub read_interval_ms: u64,
    pub duration_ms: u64,
    pub flush_period_ms: u64,
    pub working_set_pages: u64,
    pub pages_per_query: u64,
    pub tenant_limit_pages: u64,
    pub compute_ns: u64,
    pub max_waiters: u64,
    pub read_scope: Scope,
    pub need_ms: u64,
    pub site_need_ms: u64,
    pub warm_up_pages: u64,
    pub swing_percent: u64,
    pub swing_ms: u64,
    pub killers: u64,
    pub killer_interval_ms: u64,
    pub pairs: u64,
    pub proactive: u64,
    pub proactive_interval_ms: u64,
    pub proactive_step_pages: u64,
    pub streams: u64,
    pub flows: u64,
    pub segment_bytes: u64,
    pub segment_ns: u64,
    pub file_percent: u64,
    pub hot_page_percent: u64,
    pub hot_access_percent: u64,
    pub zswap_percent: u64,
    pub zswap_limit_pages: u64,
    pub swap_io_ns: u64,
    pub reclaim_site: ReclaimSite,
    pub reclaimers: u64,
    pub reclaimer_interval_us: u64,
}

/// Flush of reclaim before it scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReclaimSite {
    /// As a reader does: up to Linux 6.10.
    Unlimited,
    /// Only if the periodic flusher is late: since 6.11.
    RateLimited,
}

impl ReclaimSite {
    pub(super) fn site(self) -> Site {
        match self {
            Self::Unlimited => Site::Unlimited,
            Self::RateLimited => Site::RateLimited,
        }
    }
}

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
        self.killers > 0 || self.proactive > 0
    }

    /// Returns the pages that a segment of a stream takes.
    pub(super) fn segment_pages(&self) -> i64 {
        self.segment_bytes.div_ceil(PAGE_SIZE) as i64
    }

    /// Returns the ranges of the parameters. Each entry is key, value, least, most.
    pub(super) fn ranges(&self) -> Vec<(&'static str, u64, u64, u64)> {
        // A log entry holds a query in 20 bits and nanoseconds in 44 (see `worker`): an hour is well inside.
        vec![
            ("readers", self.readers, 0, 100_000),
            ("workers", self.workers, 0, 10_000),
            ("tenants", self.tenants, 1, 100_000),
            ("queries", self.queries, 1, 100_000),
            ("ancestors", self.ancestors, 2, 32),
            ("format_ns", self.format_ns, 0, 1_000_000_000),
            ("read_interval_ms", self.read_interval_ms, 1, 60_000),
            ("duration_ms", self.duration_ms, 10, 3_600_000),
            ("flush_period_ms", self.flush_period_ms, 1, 3_600_000),
            ("working_set_pages", self.working_set_pages, 1, 1 << 24),
            ("pages_per_query", self.pages_per_query, 1, 1 << 24),
            ("tenant_limit_pages", self.tenant_limit_pages, 1, 1 << 40),
            ("compute_ns", self.compute_ns, 0, 1_000_000_000),
            ("max_waiters", self.max_waiters, 0, 1_000_000),
            ("need_ms", self.need_ms, 0, 3_600_000),
            ("site_need_ms", self.site_need_ms, 0, 3_600_000),
            ("warm_up_pages", self.warm_up_pages, 0, 1 << 20),
            // A tenant that gets no pages at all at the bottom could be the only one.
            ("swing_percent", self.swing_percent, 0, 99),
            ("swing_ms", self.swing_ms, 1, 3_600_000),
            ("killers", self.killers, 0, 10_000),
            ("killer_interval_ms", self.killer_interval_ms, 1, 60_000),
            ("pairs", self.pairs, 0, 10_000),
            ("proactive", self.proactive, 0, 100_000),
            (
                "proactive_interval_ms",
                self.proactive_interval_ms,
                1,
                60_000,
            ),
            (
                "proactive_step_pages",
                self.proactive_step_pages,
                1,
                1 << 20,
            ),
            ("streams", self.streams, 0, 10_000),
            ("flows", self.flows, 1, 1_000_000),
            ("segment_bytes", self.segment_bytes, PAGE_SIZE, 1 << 24),
            ("segment_ns", self.segment_ns, 1, 1_000_000_000),
            ("file_percent", self.file_percent, 0, 100),
            ("hot_page_percent", self.hot_page_percent, 1, 100),
            ("hot_access_percent", self.hot_access_percent, 0, 100),
            ("zswap_percent", self.zswap_percent, 0, 100),
            ("zswap_limit_pages", self.zswap_limit_pages, 0, 1 << 40),
            ("swap_io_ns", self.swap_io_ns, 0, 1_000_000_000),
            ("reclaimers", self.reclaimers, 0, 10_000),
            (
                "reclaimer_interval_us",
                self.reclaimer_interval_us,
                1,
                60_000_000,
            ),
        ]
    }

    /// Refuses parameters that cannot be run or would measure nothing.
    ///
    /// # Errors
    /// The first parameter that is out of its range, and the range.
    pub(super) fn check_ranges(&self) -> Result<(), ParameterError> {
        check_ranges(&self.ranges())?;
        if self.tenants * self.queries > 100_000 {
            let problem = format!(
                "times `tenants` is {}, and must be at most 100000",
                self.tenants * self.queries
            );
            return Err(range_error("queries", problem));
        }
        let intervals = [
            ("read_interval_ms", self.read_interval_ms, 1),
            ("killer_interval_ms", self.killer_interval_ms, self.killers),
            (
                "proactive_interval_ms",
                self.proactive_interval_ms,
                self.proactive,
            ),
        ];
        for (key, interval_ms, users) in intervals {
            if users > 0 && interval_ms >= self.duration_ms {
                let problem = format!(
                    "is {interval_ms}, and must be below `duration_ms`, {}",
                    self.duration_ms
                );
                return Err(range_error(key, problem));
            }
        }
        if self.readers + self.killers + self.pairs + self.proactive + self.streams == 0 {
            let problem = "is 0, and nothing else is measured".to_owned();
            return Err(range_error("readers", problem));
        }
        let tenant_warm_up = self.warm_up_pages * self.queries;
        if self.workers * self.working_set_pages > PAGES_MAX {
            let problem = format!(
                "times `workers` is {}, and must be at most {PAGES_MAX}",
                self.workers * self.working_set_pages
            );
            return Err(range_error("working_set_pages", problem));
        }
        if tenant_warm_up > self.tenant_limit_pages {
            let problem = format!(
                "times `queries` is {tenant_warm_up}, and must be at most `tenant_limit_pages`, {}",
                self.tenant_limit_pages
            );
            return Err(range_error("warm_up_pages", problem));
        }
        if self.proactive > self.tenants {
            let problem = format!(
                "is {}, and there are {} tenants for one loop each",
                self.proactive, self.tenants
            );
            return Err(range_error("proactive", problem));
        }
        if self.streams > 0 && self.flows < self.streams {
            let problem = format!(
                "is {}, and must be at least `streams`, {}",
                self.flows, self.streams
            );
            return Err(range_error("flows", problem));
        }
        Ok(())
    }

    /// Refuses parameters that do not fit on a simulated machine.
    ///
    /// # Errors
    /// If there are too many tasks.
    pub(super) fn check_room(&self) -> Result<(), ParameterError> {
        let others = self.workers
            + self.reclaimers
            + self.killers
            + self.pairs
            + self.proactive
            + 2 * self.streams;
        if self.readers + others <= SIMULATED_TASKS_MAX {
            return Ok(());
        }
        let problem = format!(
            "is {} beside {others} other tasks, and a simulated run has room for {SIMULATED_TASKS_MAX} tasks; a tenth of the \
             readers, each ten times as often, read as much",
            self.readers
        );
        Err(range_error("readers", problem))
    }
}
