//! Units of values.

use serde::{Deserialize, Serialize};

/// The unit of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Nanoseconds, of the machine's time.
    Ns,
    /// A number of things.
    Count,
    /// Parts of a whole.
    Ratio,
    /// Events in each second of the machine's time.
    #[serde(rename = "per second")]
    PerSecond,
    /// Megabits (10^6 bits) in each second of the machine's time.
    #[serde(rename = "Mbit/s")]
    MbitPerSecond,
    /// CPUs and microseconds of the machine's time.
    Timeline,
}

impl Unit {
    /// Returns the unit as documents write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Count => "count",
            Self::Ratio => "ratio",
            Self::PerSecond => "per second",
            Self::MbitPerSecond => "Mbit/s",
            Self::Timeline => "timeline",
        }
    }
}
