//! Metrics: distributions, shares and counts, each of one variant.
//!
//! A metric keeps the data that an exact merge with other seeds needs: buckets, parts and wholes, never percentiles. A
//! document holds these data and the summary that people read. Only the data are read back; the summary is computed
//! anew.

mod distribution;
mod figure;
pub mod interval;
mod share;
mod timeline;
mod unit;

use std::fmt;

use serde::de::Error as _;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use distribution::{Distribution, Octave, Of, Samples, SeedFigures, Summary};
pub use figure::Figure;
pub use share::Share;
pub use timeline::{POINTS_MAX, Timeline};
pub use unit::Unit;

/// One measure.
#[derive(Clone, Debug, PartialEq)]
pub enum Metric {
    /// Many values.
    Distribution(Distribution),
    /// A share for each seed.
    Ratio(Share),
    /// A number of events, added up over all seeds.
    Count(u64),
    /// One number for each seed.
    Figure(Figure),
    /// Events by place and time, of the least seed.
    Timeline(Timeline),
}

/// Two metrics of different kinds or units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlike;

impl fmt::Display for Unlike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("has another unit")
    }
}

impl std::error::Error for Unlike {}

impl Metric {
    /// Returns the unit of its values.
    pub fn unit(&self) -> Unit {
        match self {
            Self::Distribution(distribution) => distribution.unit(),
            Self::Ratio(_) => Unit::Ratio,
            Self::Count(_) => Unit::Count,
            Self::Figure(figure) => figure.unit(),
            Self::Timeline(_) => Unit::Timeline,
        }
    }

    /// Returns the number over all seeds; `None` of distributions, timelines and counts, and of nothing.
    pub fn value(&self) -> Option<f64> {
        match self {
            Self::Ratio(share) => share.judged().next().map(|_| share.value()),
            Self::Figure(figure) => figure.value(),
            Self::Distribution(_) | Self::Count(_) | Self::Timeline(_) => None,
        }
    }

    /// Adds the values of other seeds. The order in which seeds are added makes no difference.
    ///
    /// # Errors
    /// [`Unlike`] if the other metric is of another kind or unit.
    pub fn merge(&mut self, other: &Self) -> Result<(), Unlike> {
        match (self, other) {
            (Self::Distribution(sum), Self::Distribution(other)) if sum.unit() == other.unit() => {
                sum.merge(other);
            }
            (Self::Ratio(sum), Self::Ratio(other)) => sum.merge(other),
            (Self::Count(sum), Self::Count(other)) => *sum = sum.saturating_add(*other),
            (Self::Figure(sum), Self::Figure(other)) if sum.unit() == other.unit() => {
                sum.merge(other);
            }
            (Self::Timeline(least), Self::Timeline(other)) => least.merge(other),
            _ => return Err(Unlike),
        }
        Ok(())
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Distribution(distribution) => distribution.serialize(serializer),
            Self::Ratio(share) => share.serialize(serializer),
            Self::Figure(figure) => figure.serialize(serializer),
            Self::Timeline(timeline) => timeline.serialize(serializer),
            Self::Count(value) => {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("unit", &Unit::Count)?;
                map.serialize_entry("value", value)?;
                map.end()
            }
        }
    }
}

/// A metric as a document holds it, without the summaries. One of the last five keys is present, and shows the kind.
#[derive(Deserialize)]
struct Held {
    unit: Unit,
    buckets: Option<Vec<(u64, u64)>>,
    /// Figures of a distribution: seed, median, 99th percentile, mean.
    #[serde(default)]
    figures_by_seed: Vec<(u64, u64, u64, f64)>,
    by_seed: Option<Vec<(u64, u64, u64)>>,
    figures: Option<Vec<(u64, f64)>>,
    /// Seed of a timeline.
    seed: Option<u64>,
    points: Option<Vec<(u32, u64)>>,
    value: Option<serde_json::Number>,
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let held = Held::deserialize(deserializer)?;
        if let Some(figures) = &held.figures {
            if held.buckets.is_some() || held.by_seed.is_some() {
                return Err(D::Error::custom(
                    "`figures` and `buckets` or `by_seed` are of different kinds of metrics",
                ));
            }
            return Figure::read_back(held.unit, figures)
                .map(Self::Figure)
                .map_err(D::Error::custom);
        }
        if held.unit == Unit::Timeline {
            let seed = held.seed.ok_or_else(|| D::Error::missing_field("seed"))?;
            let points = held.points;
            let points = points.ok_or_else(|| D::Error::missing_field("points"))?;
            return Timeline::read_back(seed, points)
                .map(Self::Timeline)
                .map_err(D::Error::custom);
        }
        match (held.unit, held.buckets, held.by_seed) {
            (Unit::Ratio, None, Some(by_seed)) => Share::read_back(&by_seed)
                .map(Self::Ratio)
                .map_err(D::Error::custom),
            (Unit::Ratio, _, None) => Err(D::Error::missing_field("by_seed")),
            (Unit::Ns | Unit::Count, Some(buckets), None) => {
                Distribution::read_back(held.unit, &buckets, &held.figures_by_seed)
                    .map(Self::Distribution)
                    .map_err(D::Error::custom)
            }
            (Unit::PerSecond | Unit::MbitPerSecond | Unit::Timeline, _, _) => {
                Err(D::Error::missing_field("figures"))
            }
            (Unit::Ns, None, _) => Err(D::Error::missing_field("buckets")),
            (Unit::Count, None, None) => held
                .value
                .ok_or_else(|| D::Error::missing_field("value"))?
                .as_u64()
                .map(Self::Count)
                .ok_or_else(|| D::Error::custom("`value` of a count is not a whole number")),
            (_, Some(_), Some(_)) | (Unit::Count, None, Some(_)) => Err(D::Error::custom(
                "`buckets` and `by_seed` are of different kinds of metrics",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> [Metric; 8] {
        let mut samples = Samples::new(Unit::Ns);
        [0, 1, 20, 123_456_789, u64::MAX]
            .into_iter()
            .for_each(|value| samples.record(value));
        [
            Metric::Distribution(samples.distribution()),
            Metric::Distribution(Samples::new(Unit::Count).distribution()),
            Metric::Ratio(Share::of(7, 1, 3)),
            Metric::Count(12),
            Metric::Figure(Figure::of(Unit::PerSecond, 3, 0.1 + 0.2)),
            Metric::Figure(Figure::of(Unit::MbitPerSecond, 3, 0.1 + 0.2)),
            Metric::Timeline(Timeline::of(3, vec![(7, 1_000), (0, 1)])),
            Metric::Figure(Figure::of(Unit::Ns, 3, None)),
        ]
    }

    #[test]
    fn what_is_read_back_is_what_was_written() {
        for metric in metrics() {
            let text = serde_json::to_string(&metric).expect("json");
            let back: Metric = serde_json::from_str(&text).expect(&text);
            assert_eq!(back, metric);
            assert_eq!(serde_json::to_string(&back).expect("json"), text);
        }
    }

    #[test]
    fn what_makes_no_sense_is_not_read() {
        for (text, problem) in [
            (r#"{"unit":"ns","value":1}"#, "missing field `buckets`"),
            (r#"{"unit":"ratio","value":1}"#, "missing field `by_seed`"),
            (r#"{"unit":"count"}"#, "missing field `value`"),
            (r#"{"unit":"count","value":-1}"#, "not a whole number"),
            (r#"{"unit":"ratio","by_seed":[[1,3,2]]}"#, "3 of 2"),
            (r#"{"unit":"ratio","by_seed":[[1,1,2],[1,1,2]]}"#, "twice"),
            (r#"{"unit":"ns","buckets":[[5,0]]}"#, "bucket"),
            (r#"{"unit":"ns","buckets":[[2001,1]]}"#, ""),
            (
                r#"{"unit":"per second","value":1}"#,
                "missing field `figures`",
            ),
            (r#"{"unit":"ns","figures":[[1,2.0],[1,2.0]]}"#, "twice"),
            (r#"{"unit":"timeline","seed":1}"#, "missing field `points`"),
            (r#"{"unit":"furlong","value":1}"#, "unknown variant"),
        ] {
            match serde_json::from_str::<Metric>(text) {
                Ok(_) => assert_eq!(problem, "", "{text}"),
                Err(error) => assert!(error.to_string().contains(problem), "{text}: {error}"),
            }
        }
    }

    #[test]
    fn unlike_metrics_are_not_merged() {
        let [
            distribution,
            counts,
            share,
            count,
            figure,
            other,
            timeline,
            _,
        ] = metrics();
        for (one, other) in [
            (&distribution, &counts),
            (&distribution, &share),
            (&share, &count),
            (&count, &figure),
            (&figure, &other),
            (&figure, &timeline),
        ] {
            assert_eq!(one.clone().merge(other), Err(Unlike));
        }
    }
}
