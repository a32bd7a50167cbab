//! Metrics of a tree of groups, for servers that have a [`prometheus_client`] registry.
//!
//! ```
//! use bursar::{Limits, Memory};
//! use bursar_prometheus::Collector;
//! use prometheus_client::registry::Registry;
//!
//! let memory = Memory::host()?;
//! let acme = memory.root().child("acme", Limits::max(64 << 20))?;
//! let mut registry = Registry::default();
//! registry.register_collector(Box::new(Collector::new(&memory)));
//!
//! let charge = acme.try_charge(48 << 20)?;
//! let mut text = String::new();
//! prometheus_client::encoding::text::encode(&mut text, &registry)?;
//! assert!(text.contains(r#"bursar_group_usage_bytes{group="/acme",parent="/"} 50331648"#));
//! # drop(charge);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Pull, not push
//! A collector is asked at each scrape, and takes one snapshot then. So nothing runs between scrapes, the numbers of one scrape
//! belong together, and the series of a removed group end with the group.
//!
//! Exporters of OpenTelemetry, statsd and others listen to the facade `metrics`, which is pushed to. The feature `metrics` has a
//! `Publisher` for them. The program must call it again and again, and series of removed groups stay, at 0.
//!
//! # Series
//! Each series of a group has two labels: `group`, the path, and `parent`, the path of the group above (empty for the root). A path
//! shows control characters and marks that change the direction of text as [`bursar::printable`] does. A backslash in a name is
//! doubled, so different groups have different labels.
//!
//! | family | type | |
//! |---|---|---|
//! | `bursar_group_usage_bytes` | gauge | bytes charged to the group and all below it |
//! | `bursar_group_reserved_bytes` | gauge | the same with the stock of CPUs, as limits see it |
//! | `bursar_group_peak_bytes` | gauge | the most that was ever reserved |
//! | `bursar_group_max_bytes`, `_high_bytes`, `_low_bytes`, `_min_bytes` | gauge | limits; no series if not set |
//! | `bursar_group_pressure_level` | gauge | 0 none, 1 low, 2 high, 3 critical; label `by`: `all`, `usage`, `stall` |
//! | `bursar_group_stall_seconds` | counter | time lost for want of memory; label `kind`: `some` or `full` |
//! | `bursar_group_refused`, `_overshot`, `_above_max`, `_above_high`, `_below_low`, `_drained_bytes`, `_reclaimed_bytes`, `_reclaim_failed`, `_reclaim_unreturned`, `_throttled_seconds`, `_over_returned_bytes`, `_panicked_callbacks`, `_gave_up` | counter | [`bursar::Events`] at the group and all that are or were below it |
//! | `bursar_group_statistic` | gauge | each statistic that is a gauge; label `statistic` |
//! | `bursar_group_statistic_count` | counter | each statistic that is a counter; label `statistic` |
//! | `bursar_groups_folded` | gauge | children of the group that have no series of their own |
//! | `bursar_age_seconds`, `bursar_removed_groups` | gauge | age of the numbers; removed groups that hold bytes, have a handle, or wait to be cleared |
//! | `bursar_walks` | counter | walks over the tree that readers made |
//! | `bursar_admission_grants`, `bursar_admission_waiting` | gauge | grants and asks that wait, with [`Collector::arbiter`] |
//! | `bursar_admission_admitted` and one more for each of [`bursar_arbiter::Counts`] | counter | the events of that arbiter |
//!
//! A group has no series for a count, a time or a level of 0, so that a thousand quiet groups stay small. The exceptions are `_refused`,
//! `_overshot`, the pressure `by="all"`, and the root, which has them all. A count never falls, so a series that has come stays. The
//! first count of a group is no increase to Prometheus, which saw no 0 before: alert on the root's, which include all others.
//!
//! Statistics share two families, with the name as a label: their names are the program's, and need not be names of metrics.
//!
//! # Bounds
//! At most [`Collector::groups_max`] groups have series: those that reserve the most, down to [`Collector::depth_max`] levels. Deeper
//! groups count in the group above them. The other children of a group are added up as one series with the label
//! `group="other"`. No path is like that, because each begins with a slash. So in one scrape, the series of a group's children
//! add up to at most the group's own. Reserved bytes are read one group after the other, so theirs may add up to more for a moment.
//!
//! A group that had series in the last scrape keeps its place until another one reserves more than twice as much. So series do not
//! come and go with each scrape.
//!
//! The series `other` has no counters and no limits. Its members change, and a counter must not fall. A parent's counts include those
//! of all its children.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod collector;
mod encode;
mod families;
#[cfg(feature = "metrics")]
mod publisher;
mod shown;

pub use collector::{Collector, openmetrics};
#[cfg(feature = "metrics")]
pub use publisher::Publisher;

#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/prometheus.md")]
    mod prometheus {}
}
