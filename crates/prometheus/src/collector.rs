//! The collector.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use bursar::{Freshness, Memory, Snapshot};
use bursar_arbiter::Arbiter;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;

use crate::families::{self, Sink};
use crate::shown::choose;

/// Metrics of all groups of a memory; see the [crate](crate) for their names, labels and bounds.
#[derive(Debug)]
pub struct Collector {
    memory: Memory,
    arbiter: Option<Arbiter>,
    freshness: Freshness,
    depth_max: usize,
    groups_max: usize,
    /// Paths of the groups that had series in the last scrape.
    shown: Mutex<BTreeSet<String>>,
    /// Bytes of the last text.
    text_bytes: AtomicUsize,
}

impl Collector {
    /// Makes a collector of exact numbers that shows at most 1,000 groups, down to 2 levels below the root.
    ///
    /// It keeps a handle of the memory.
    pub fn new(memory: &Memory) -> Self {
        Self {
            memory: memory.clone(),
            arbiter: None,
            freshness: Freshness::Exact,
            depth_max: 2,
            groups_max: 1000,
            shown: Mutex::default(),
            text_bytes: AtomicUsize::new(0),
        }
    }

    /// Sets the number of levels below the root that have series. 0 shows the root alone.
    pub fn depth_max(mut self, levels: usize) -> Self {
        self.depth_max = levels;
        self
    }

    /// Sets the number of groups that have series of their own, at least 1.
    pub fn groups_max(mut self, groups: usize) -> Self {
        self.groups_max = groups.max(1);
        self
    }

    /// Sets the freshness of the numbers; [`Freshness::Exact`] unless set. If the memory's flush policy forbids the flush that a
    /// freshness needs, a scrape shows the cached numbers.
    pub fn freshness(mut self, freshness: Freshness) -> Self {
        self.freshness = freshness;
        self
    }

    /// Shows the admissions of this arbiter too.
    pub fn arbiter(mut self, arbiter: &Arbiter) -> Self {
        self.arbiter = Some(arbiter.clone());
        self
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let snapshot = self.memory.snapshot(self.freshness);
        let cached = || self.memory.snapshot(Freshness::Cached);
        snapshot
            .or_else(|_| cached())
            .expect("a cached snapshot needs no flush")
    }

    /// Writes all families, of the groups that have series this time.
    pub(crate) fn write(&self, snapshot: &Snapshot, sink: &mut dyn Sink) -> fmt::Result {
        let mut before = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = choose(snapshot, (self.depth_max, self.groups_max), &mut before);
        drop(before);
        let admissions = self.arbiter.as_ref().map(Arbiter::counts);
        families::write(&self.memory, admissions.as_ref(), snapshot, &shown, sink)
    }
}

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.write(&self.snapshot(), &mut encoder)
    }
}

/// The metrics of one collector as OpenMetrics text (`application/openmetrics-text; version=1.0.0; charset=utf-8`), for servers without
/// a registry.
pub fn openmetrics(collector: &Arc<Collector>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector.clone()));
    // Relaxed: a guess.
    let expected = collector.text_bytes.load(Relaxed);
    let mut text = String::with_capacity(expected + expected / 8);
    text::encode(&mut text, &registry).expect("a string takes all text");
    collector.text_bytes.store(text.len(), Relaxed);
    text
}
