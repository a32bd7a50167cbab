//! The parameters of the experiment.

use serde::Deserialize;

use super::tree::Tree;
use crate::settings::ParameterError;

/// What `[parameters]` of the experiment's file holds; units are in the names, meanings in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(
    missing_docs,
    reason = "the experiment's file documents them, for those who set them"
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
}

impl Parameters {
    /// The shape of the tree.
    pub fn tree(&self) -> Tree {
        Tree {
            tenants: self.tenants as usize,
            queries: self.queries as usize,
            ancestors: self.ancestors as usize,
        }
    }

    /// Refuses what cannot be run or would measure nothing.
    ///
    /// # Errors
    /// The first parameter that is out of its range, and the range.
    pub fn check(&self) -> Result<(), ParameterError> {
        // A log entry holds a query in 20 bits and nanoseconds in 44 (see `worker`): an hour is well inside.
        let ranges = [
            ("readers", self.readers, 1, 100_000),
            ("workers", self.workers, 1, 10_000),
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
        ];
        let range_error = |key: &str, problem: String| ParameterError::Range {
            key: key.to_owned(),
            problem,
        };
        for (key, value, least, most) in ranges {
            if !(least..=most).contains(&value) {
                let problem = format!("is {value}, and must be from {least} to {most}");
                return Err(range_error(key, problem));
            }
        }
        if self.tenants * self.queries > 100_000 {
            let problem = format!(
                "times `tenants` is {}, and must be at most 100000",
                self.tenants * self.queries
            );
            return Err(range_error("queries", problem));
        }
        if self.read_interval_ms >= self.duration_ms {
            let problem = format!(
                "is {}, and must be below `duration_ms`, {}",
                self.read_interval_ms, self.duration_ms
            );
            return Err(range_error("read_interval_ms", problem));
        }
        Ok(())
    }
}
