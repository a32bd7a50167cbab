//! Reports of queries that ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::report::QueryReport;

/// Reports of the queries that ended last. Cloning makes another handle of the same history.
///
/// A query ends with its pool: when the last reservation, stream and runtime that hold the pool are gone, or when the pool's group is
/// removed by [`crate::GroupPool::remove`].
#[derive(Clone, Debug)]
pub struct History {
    queries_max: usize,
    finished: Arc<Mutex<VecDeque<QueryReport>>>,
}

impl History {
    /// Makes a history that keeps the last `queries_max` queries.
    pub fn new(queries_max: usize) -> Self {
        Self {
            queries_max,
            finished: Arc::default(),
        }
    }

    /// Returns the reports, the oldest first.
    pub fn finished(&self) -> Vec<QueryReport> {
        self.lock().iter().cloned().collect()
    }

    pub(crate) fn push(&self, report: QueryReport) {
        let mut finished = self.lock();
        finished.push_back(report);
        while finished.len() > self.queries_max {
            finished.pop_front();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<QueryReport>> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
