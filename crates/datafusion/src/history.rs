//! Reports of queries that ended.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::report::QueryReport;

/// A query that has not ended.
pub(crate) trait Running: Send + Sync {
    /// Its figures now; `None` if it has ended.
    fn report(&self) -> Option<QueryReport>;
}

/// Reports of the queries that ended last. Cloning makes another handle of the same history.
///
/// A query ends with its pool: when the last reservation, stream and runtime that hold the pool are gone, or when the pool's group is
/// removed by [`crate::GroupPool::remove`].
#[derive(Clone)]
pub struct History {
    queries_max: usize,
    queries: Arc<Mutex<Queries>>,
}

#[derive(Default)]
struct Queries {
    #[cfg(feature = "real-bytes")]
    above_limit: u64,
    finished: VecDeque<QueryReport>,
    running: Vec<Weak<dyn Running>>,
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("History");
        shown.field("queries_max", &self.queries_max);
        shown.field("finished", &self.lock().finished.len());
        shown.finish_non_exhaustive()
    }
}

impl History {
    /// Makes a history that keeps the last `queries_max` queries.
    pub fn new(queries_max: usize) -> Self {
        Self {
            queries_max,
            queries: Arc::default(),
        }
    }

    /// Returns the reports, the oldest first.
    pub fn finished(&self) -> Vec<QueryReport> {
        self.lock().finished.iter().cloned().collect()
    }

    /// Number of queries that ended, and had really held more than their limit ([`crate::RealReport::above_limit`]). Counts also those whose
    /// reports are gone.
    #[cfg(feature = "real-bytes")]
    pub fn above_limit(&self) -> u64 {
        self.lock().above_limit
    }

    pub(crate) fn push(&self, report: QueryReport) {
        let mut queries = self.lock();
        #[cfg(feature = "real-bytes")]
        if report.real.is_some_and(|real| real.above_limit > 0) {
            queries.above_limit += 1;
        }
        let finished = &mut queries.finished;
        finished.push_back(report);
        while finished.len() > self.queries_max {
            finished.pop_front();
        }
    }

    /// Notes a query that begins, and forgets those that are gone.
    pub(crate) fn begin(&self, query: Weak<dyn Running>) {
        let running = &mut self.lock().running;
        running.retain(|query| query.strong_count() > 0);
        running.push(query);
    }

    /// The figures of the queries that have not ended, in the order of their begin.
    pub fn running(&self) -> Vec<QueryReport> {
        let running = self.lock().running.clone();
        // Without the lock: a query whose last handle this is enters the history.
        let running = running.iter().filter_map(Weak::upgrade);
        running.filter_map(|query| query.report()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Queries> {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
