//! Families for the facade [`metrics`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use bursar::Snapshot;
use metrics::{Key, Label, Level, Metadata, Recorder, Unit};
use prometheus_client::metrics::MetricType;

use crate::Collector;
use crate::families::{Family, Number, Series, Sink};
use crate::shown::label;

const METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// Pushes the metrics of a collector to the recorder of the facade [`metrics`].
///
/// Names, labels and units are those of a scrape, with `_total` at the end of counters. There is no histogram.
///
/// ```
/// use bursar::Memory;
/// use bursar_prometheus::{Collector, Publisher};
///
/// let memory = Memory::host()?;
/// let mut publisher = Publisher::new(Collector::new(&memory));
/// publisher.publish();        // and again, every few seconds
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Series that end
/// The facade cannot remove a series. So [`Publisher::publish`] sets a gauge to 0 once when its series ended: its group is gone or was
/// folded, or its limit is no longer set. A counter keeps its value. If a group of the same name comes later, its counts are added to that.
/// Between two calls of `publish` the change cannot be seen: only what the new group counts above the old one is added then. Exporters that
/// have an idle timeout drop both.
///
/// # Counters
/// Counters of the facade are whole numbers. So those of seconds lack the part of a second, until it is a whole one.
///
/// A publisher tells the recorder how much was added since its last call. So install the recorder first, and give it one publisher only.
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
#[derive(Debug)]
pub struct Publisher {
    collector: Collector,
    /// Gauges that the last call set.
    gauges: BTreeSet<Key>,
    /// Counts that the recorder was told. Those of a group stay while the group lives, also if it has no series for a while.
    counts: BTreeMap<Key, u64>,
}

impl Publisher {
    /// Makes a publisher with the groups, the freshness and the arbiter of a collector.
    pub fn new(collector: Collector) -> Self {
        Self {
            collector,
            gauges: BTreeSet::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Takes one snapshot, and tells its numbers to the thread's recorder, or to the global one.
    ///
    /// No lock of Bursar is held while the recorder runs.
    pub fn publish(&mut self) {
        let snapshot = self.collector.snapshot();
        metrics::with_recorder(|recorder| {
            let mut sink = Told {
                recorder,
                gauges: BTreeSet::new(),
                counts: &mut self.counts,
            };
            let written = self.collector.write(&snapshot, &mut sink);
            written.expect("a recorder takes all numbers");
            for ended in self.gauges.difference(&sink.gauges) {
                recorder.register_gauge(ended, &METADATA).set(0.0);
            }
            self.gauges = sink.gauges;
        });
        self.forget_ended(&snapshot);
    }

    fn forget_ended(&mut self, snapshot: &Snapshot) {
        let alive: BTreeSet<String> = snapshot.iter().map(|group| label(&group.path)).collect();
        self.counts.retain(|key, _| {
            let group = key.labels().find(|label| label.key() == "group");
            group.is_none_or(|group| alive.contains(group.value()))
        });
    }
}

/// Numbers told in one call.
struct Told<'a> {
    recorder: &'a dyn Recorder,
    gauges: BTreeSet<Key>,
    counts: &'a mut BTreeMap<Key, u64>,
}

impl Told<'_> {
    fn gauge(&mut self, key: Key, number: f64) {
        self.recorder.register_gauge(&key, &METADATA).set(number);
        self.gauges.insert(key);
    }

    fn counter(&mut self, key: Key, count: u64) {
        let counter = self.recorder.register_counter(&key, &METADATA);
        let told = self.counts.insert(key, count).unwrap_or(0);
        // A count that fell is of a new group, with the name of one that ended since the last call.
        counter.increment(count.checked_sub(told).unwrap_or(count));
    }
}

impl Sink for Told<'_> {
    fn family(
        &mut self,
        Family(name, help, unit, kind): &Family<'_>,
        all: &[(Series<'_>, Number)],
    ) -> fmt::Result {
        let unit = unit.as_ref().map(|unit| unit.as_str());
        let is_counter = matches!(kind, MetricType::Counter);
        let parts = [Some(*name), unit, is_counter.then_some("total")];
        let name = parts.into_iter().flatten().collect::<Vec<_>>().join("_");
        let unit = unit.and_then(Unit::from_string);
        if is_counter {
            self.recorder
                .describe_counter(name.clone().into(), unit, (*help).into());
        } else {
            self.recorder
                .describe_gauge(name.clone().into(), unit, (*help).into());
        }
        for (series, number) in all {
            let labels = series.labels();
            let labels = labels.map(|(name, value)| Label::new(name, value.to_owned()));
            let key = Key::from_parts(name.clone(), labels.collect::<Vec<_>>());
            match *number {
                Number::Counter(count) => self.counter(key, count),
                Number::Seconds(seconds) if is_counter => self.counter(key, seconds as u64),
                Number::Seconds(seconds) => self.gauge(key, seconds),
                Number::Gauge(number) => self.gauge(key, number as f64),
            }
        }
        Ok(())
    }
}
