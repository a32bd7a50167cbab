//! Asks, and the reasons why one is refused.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use bursar::{Bytes, CreateError, Group, Host, Machine};

use crate::shapes::Seen;

/// Memory and partitions that a query asks for before it starts.
///
/// ```
/// # use bursar::{Limits, Memory};
/// use bursar_arbiter::Ask;
///
/// # let memory = Memory::builder().build()?;
/// # let tenant = memory.root().child("acme", Limits::max(1 << 30))?;
/// // 16 MiB for the query, 8 MiB for each of up to 8 partitions. With 256 MiB it would not spill.
/// let ask = Ask::new(&tenant, "query-7").least(16 << 20, 8 << 20).wanted(256 << 20).width(1..=8);
/// # drop(ask);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "an ask does nothing by itself"]
pub struct Ask<M: Machine = Host> {
    pub(crate) group: Group<M>,
    pub(crate) name: String,
    pub(crate) least: Option<Least>,
    pub(crate) wanted: Option<u64>,
    pub(crate) width: RangeInclusive<u32>,
    pub(crate) score: i32,
    pub(crate) patience: Option<Duration>,
    pub(crate) is_alone: bool,
    pub(crate) is_guess: bool,
}

/// Bytes without which a query cannot run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Least {
    pub(crate) query: u64,
    pub(crate) partition: u64,
}

impl Least {
    /// Bytes for a width.
    pub(crate) fn at(self, width: u32) -> u64 {
        let partitions = self.partition.saturating_mul(u64::from(width));
        self.query.saturating_add(partitions)
    }
}

impl<M: Machine> Ask<M> {
    /// Asks for a grant below `group`, usually a tenant's. The grant's group will have this name, which no child of `group` may have.
    ///
    /// Unless more is said, the query runs with one partition, gets [`crate::Policy::default_percent`] of the lowest limit on its way,
    /// and waits without end.
    pub fn new(group: &Group<M>, name: impl Into<String>) -> Self {
        Self {
            group: group.clone(),
            name: name.into(),
            least: None,
            wanted: None,
            width: 1..=1,
            score: 0,
            patience: None,
            is_alone: false,
            is_guess: false,
        }
    }

    /// Sets the bytes without which the query cannot run: a part for the query, and a part for each partition.
    pub fn least(mut self, query: u64, partition: u64) -> Self {
        self.least = Some(Least { query, partition });
        self
    }

    /// Sets the bytes with which the query would be served best, at its full width. A limit that is smaller counts instead.
    pub fn wanted(mut self, bytes: u64) -> Self {
        self.wanted = Some(bytes);
        self
    }

    /// Sets the numbers of partitions that the query can run with. The last one is what it wishes.
    pub fn width(mut self, width: RangeInclusive<u32>) -> Self {
        self.width = width;
        self
    }

    /// Sets the score among queries of the same group; 0 unless set. Higher ones come first: see [`crate::Policy::ageing`].
    pub fn score(mut self, score: i32) -> Self {
        self.score = score;
        self
    }

    /// Sets how long the ask may wait. With zero it is admitted at once or refused.
    ///
    /// The end of this time is noticed when somebody asks, ends, polls or ticks. An async caller wraps the future in a timeout of
    /// its runtime, or has a ticker ([`crate::Arbiter::start_ticker`]).
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Says that the bytes are estimates. Where a limit is smaller, the limit counts instead, so an estimate never makes a query fail.
    pub fn estimated(mut self) -> Self {
        self.is_guess = true;
        self
    }

    /// Asks for an eighth more than a query of the same shape took: three quarters of it for the query, and the rest for its partitions.
    /// The bytes are estimates; see [`Ask::estimated`]. The eighth and the quarters are Bursar's own choice, for queries of TPC-H in DataFusion:
    /// the tables of their joins, which have most of the memory, are as large with fewer partitions. One that took nothing asks for a byte.
    pub fn like(self, seen: Seen) -> Self {
        // Two runs of one query differ by a little.
        let peak = seen.peak.saturating_add(seen.peak / 8).max(1);
        let partitions = peak / 4;
        let partition = partitions / u64::from(seen.width.max(1));
        let query = peak - partitions;
        self.least(query, partition).wanted(peak).estimated()
    }

    /// Asks for all that the group may have, while the group has no other grant. For the last try of a query that was refused memory.
    pub fn alone(mut self) -> Self {
        self.is_alone = true;
        self
    }
}

/// Reason why an ask is refused.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmitError {
    /// A width of 0 partitions, or a range that is empty.
    BadWidth,
    /// Neither `least` nor `wanted` is more than 0.
    Nothing,
    /// `least` at the smallest width exceeds `wanted`.
    LeastAboveWanted {
        /// `least`, bytes.
        least: u64,
        /// `wanted`, bytes.
        wanted: u64,
    },
    /// The group belongs to another memory than the arbiter.
    OtherMemory,
    /// A limit is smaller than what the query cannot run without. Waiting would be in vain.
    NeverFits {
        /// Path of the group whose limit that is.
        limited: String,
        /// Its `max`, bytes.
        max: u64,
        /// `least` at the smallest width, bytes.
        least: u64,
    },
    /// The ask came from inside a grant, and that grant has too little left. Such an ask never waits, because the grant that it
    /// would wait for may wait for it.
    Nested {
        /// Path of the grant's group.
        grant: String,
        /// Bytes that the grant has left.
        left: u64,
        /// `least` at the smallest width, bytes.
        least: u64,
    },
    /// It was not served in its time ([`Ask::patience`]).
    TimedOut {
        /// Time that it waited.
        waited: Duration,
        /// Path of the group whose limit was in the way.
        limited: String,
        /// Time after which asking again may be of use: those that wait now, times the mean time between the ends of grants.
        retry_after: Duration,
    },
    /// The group was removed.
    Removed {
        /// Path of the group.
        group: String,
    },
    /// The grant's group cannot be made.
    Create(CreateError),
}

bursar::debug_as_message!(
    enum AdmitError {
        BadWidth,
        Nothing,
        LeastAboveWanted { least, wanted },
        OtherMemory,
        NeverFits { limited, max, least },
        Nested { grant, left, least },
        TimedOut { waited, limited, retry_after },
        Removed { group },
        Create(error),
    }
);

impl fmt::Display for AdmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadWidth => f.write_str("a query needs a width of at least one partition"),
            Self::Nothing => f.write_str("an ask for 0 bytes"),
            Self::LeastAboveWanted { least, wanted } => {
                write!(
                    f,
                    "the query cannot run with less than {}, and wants only {}",
                    Bytes(*least),
                    Bytes(*wanted)
                )
            }
            Self::OtherMemory => {
                f.write_str("the group belongs to another memory than the arbiter")
            }
            Self::NeverFits {
                limited,
                max,
                least,
            } => write!(
                f,
                "the query needs at least {}, and {} may have at most {}",
                Bytes(*least),
                bursar::printable(limited),
                Bytes(*max)
            ),
            Self::Nested { grant, left, least } => write!(
                f,
                "the query needs at least {}, and the grant {} that it runs in has {} left",
                Bytes(*least),
                bursar::printable(grant),
                Bytes(*left)
            ),
            Self::TimedOut {
                waited,
                limited,
                retry_after,
            } => write!(
                f,
                "not admitted in {waited:.1?}: the limit of {} is in the way; ask again in {retry_after:.1?}",
                bursar::printable(limited)
            ),
            Self::Removed { group } => {
                write!(f, "the group {} was removed", bursar::printable(group))
            }
            Self::Create(error) => write!(f, "the group of the query cannot be made: {error}"),
        }
    }
}

impl std::error::Error for AdmitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Create(error) => Some(error),
            _ => None,
        }
    }
}
