//! The feature `serde`: readings, limits and what goes with them, for exporters, logs and config files.
//!
//! All forms are here, apart from the types, so that a field that is renamed in the library keeps its name in files. Byte counts are
//! integers. Durations are integers in nanoseconds, in fields that end in `_ns`. A bound that is unknown and a limit that is
//! not set are left out.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::limit::{Events, Limits};
use crate::react::{
    CallSite, GroupState, Leftover, Level, LimitReached, Pressure, Stall, StallShare, TreeReport,
};
use crate::snapshot::{GroupSnapshot, Snapshot};
use crate::tree::{Reading, Value};

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Implements [`Serialize`] by a form that is made of a reference.
macro_rules! serialize_as {
    ($($type:ty => $form:ty),* $(,)?) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$form>::from(self).serialize(serializer)
            }
        }
    )*};
}

serialize_as! {
    Value => ValueForm,
    Reading => ReadingForm<'_>,
    StallShare => StallShareForm,
    Stall => StallForm,
    Pressure => PressureForm,
    Limits => LimitsForm,
    GroupSnapshot => GroupForm<'_>,
    GroupState => GroupStateForm<'_>,
    TreeReport => TreeReportForm<'_>,
    LimitReached => LimitReachedForm<'_>,
    CallSite => CallSiteForm<'_>,
    Leftover => LeftoverForm<'_>,
}

#[derive(serde::Serialize)]
struct ValueForm {
    value: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lo: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hi: Option<i64>,
}

impl From<&Value> for ValueForm {
    fn from(&Value { value, lo, hi }: &Value) -> Self {
        Self {
            value,
            lo: (lo != i64::MIN).then_some(lo),
            hi: (hi != i64::MAX).then_some(hi),
        }
    }
}

/// A value, and the part that no living child accounts for.
#[derive(serde::Serialize)]
struct StatisticForm<'a> {
    #[serde(flatten)]
    value: ValueForm,
    own: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_node: Option<&'a [i64]>,
}

#[derive(serde::Serialize)]
struct ReadingForm<'a> {
    age_ns: u64,
    usage: StatisticForm<'a>,
    over_returned: u64,
    statistics: BTreeMap<&'a str, StatisticForm<'a>>,
}

impl<'a> From<&'a Reading> for ReadingForm<'a> {
    fn from(reading: &'a Reading) -> Self {
        let statistics = reading.iter().enumerate().map(|(index, (name, value))| {
            let per_node = reading.per_node.iter().find(|(at, _)| *at == index);
            let form = StatisticForm {
                value: ValueForm::from(&value),
                own: reading.own[index + 1],
                per_node: per_node.map(|(_, shares)| &**shares),
            };
            (name, form)
        });
        Self {
            age_ns: ns(reading.age()),
            usage: StatisticForm {
                value: ValueForm::from(&reading.usage()),
                own: reading.own_usage(),
                per_node: None,
            },
            over_returned: reading.over_returned(),
            statistics: statistics.collect(),
        }
    }
}

impl Serialize for Events {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut form = serializer.serialize_struct("Events", Self::COUNTERS.len())?;
        for (name, _, get) in Self::COUNTERS {
            form.serialize_field(name, &get(self))?;
        }
        form.end()
    }
}

#[derive(serde::Serialize)]
struct StallShareForm {
    avg10: f64,
    avg60: f64,
    avg300: f64,
    total_ns: u64,
}

impl From<&StallShare> for StallShareForm {
    fn from(share: &StallShare) -> Self {
        let &StallShare {
            avg10,
            avg60,
            avg300,
            total,
        } = share;
        Self {
            avg10,
            avg60,
            avg300,
            total_ns: ns(total),
        }
    }
}

#[derive(serde::Serialize)]
struct StallForm {
    some: StallShare,
    full: StallShare,
}

impl From<&Stall> for StallForm {
    fn from(&Stall { some, full }: &Stall) -> Self {
        Self { some, full }
    }
}

/// A lower-case word, as [`Level`] displays.
impl Serialize for Level {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[derive(serde::Serialize)]
struct PressureForm {
    level: Level,
    by_usage: Level,
    by_stall: Level,
    stall: Stall,
}

impl From<&Pressure> for PressureForm {
    fn from(pressure: &Pressure) -> Self {
        let &Pressure {
            level,
            by_usage,
            by_stall,
            stall,
        } = pressure;
        Self {
            level,
            by_usage,
            by_stall,
            stall,
        }
    }
}

/// `max` and `high` are absent where there is no limit; `low` and `min` are 0 where there is no protection.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename = "Limits", default, deny_unknown_fields)]
struct LimitsForm {
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high: Option<u64>,
    low: u64,
    min: u64,
}

impl Default for LimitsForm {
    fn default() -> Self {
        Self::from(&Limits::none())
    }
}

impl From<&Limits> for LimitsForm {
    fn from(
        &Limits {
            min,
            low,
            high,
            max,
        }: &Limits,
    ) -> Self {
        let limit = |bytes| (bytes != u64::MAX).then_some(bytes);
        Self {
            max: limit(max),
            high: limit(high),
            low,
            min,
        }
    }
}

/// Takes limits by their names only. A list of numbers is refused, because a number's place does not say which limit it is.
struct ByName;

impl<'de> Visitor<'de> for ByName {
    type Value = LimitsForm;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("limits by name: max, high, low, min")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LimitsForm, A::Error> {
        LimitsForm::deserialize(MapAccessDeserializer::new(map))
    }
}

impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let LimitsForm {
            max,
            high,
            low,
            min,
        } = deserializer.deserialize_map(ByName)?;
        Ok(Self {
            min,
            low,
            high: high.unwrap_or(u64::MAX),
            max: max.unwrap_or(u64::MAX),
        })
    }
}

#[derive(serde::Serialize)]
struct GroupForm<'a> {
    path: &'a str,
    depth: usize,
    limits: Limits,
    reading: &'a Reading,
    reserved: u64,
    peak: u64,
    events: Events,
    own_events: Events,
    pressure: Pressure,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<WaitingForm<'a>>,
}

#[derive(serde::Serialize)]
struct WaitingForm<'a> {
    charged: &'a str,
    bytes: u64,
    waited_ns: u64,
}

impl<'a> From<&'a GroupSnapshot> for GroupForm<'a> {
    fn from(group: &'a GroupSnapshot) -> Self {
        let GroupSnapshot {
            path,
            depth,
            limits,
            reading,
            reserved,
            peak,
            events,
            own_events,
            pressure,
            waiting,
        } = group;
        Self {
            path,
            depth: *depth,
            limits: *limits,
            reading,
            reserved: *reserved,
            peak: *peak,
            events: *events,
            own_events: *own_events,
            pressure: *pressure,
            waiting: waiting
                .iter()
                .map(|charge| WaitingForm {
                    charged: &charge.charged,
                    bytes: charge.bytes,
                    waited_ns: ns(charge.waited),
                })
                .collect(),
        }
    }
}

#[derive(serde::Serialize)]
struct GroupStateForm<'a> {
    path: &'a str,
    limits: Limits,
    reserved: u64,
    stock_max: u64,
    peak: u64,
    refused: u64,
    pressure: Level,
}

impl<'a> From<&'a GroupState> for GroupStateForm<'a> {
    fn from(state: &'a GroupState) -> Self {
        Self {
            path: &state.path,
            limits: state.limits,
            reserved: state.reserved,
            stock_max: state.stock_max,
            peak: state.peak,
            refused: state.refused,
            pressure: state.pressure,
        }
    }
}

#[derive(serde::Serialize)]
struct TreeReportForm<'a> {
    way: &'a [GroupState],
    largest: &'a [GroupState],
}

impl<'a> From<&'a TreeReport> for TreeReportForm<'a> {
    fn from(report: &'a TreeReport) -> Self {
        // Without `made_ns`: its clock belongs to the process.
        Self {
            way: &report.way,
            largest: &report.largest,
        }
    }
}

#[derive(serde::Serialize)]
struct LimitReachedForm<'a> {
    charged: &'a str,
    limited: &'a str,
    requested: u64,
    usage: u64,
    max: u64,
    report: &'a TreeReport,
    report_age_ns: u64,
}

impl<'a> From<&'a LimitReached> for LimitReachedForm<'a> {
    fn from(reached: &'a LimitReached) -> Self {
        Self {
            charged: &reached.charged,
            limited: &reached.limited,
            requested: reached.requested,
            usage: reached.usage,
            max: reached.max,
            report: &reached.report,
            report_age_ns: ns(reached.largest_age),
        }
    }
}

#[derive(serde::Serialize)]
struct CallSiteForm<'a> {
    charges: u64,
    bytes: u64,
    oldest_ns: u64,
    frames: &'a [String],
}

impl<'a> From<&'a CallSite> for CallSiteForm<'a> {
    fn from(site: &'a CallSite) -> Self {
        Self {
            charges: site.charges,
            bytes: site.bytes,
            oldest_ns: ns(site.oldest),
            frames: &site.frames,
        }
    }
}

#[derive(serde::Serialize)]
struct LeftoverForm<'a> {
    path: &'a str,
    bytes: u64,
    age_ns: u64,
    call_sites: &'a [CallSite],
}

impl<'a> From<&'a Leftover> for LeftoverForm<'a> {
    fn from(leftover: &'a Leftover) -> Self {
        Self {
            path: &leftover.path,
            bytes: leftover.bytes,
            age_ns: ns(leftover.age),
            call_sites: &leftover.call_sites,
        }
    }
}

/// The list of its groups.
impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.groups().serialize(serializer)
    }
}
