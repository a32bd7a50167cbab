//! Values of a read: the freshness that was asked for, and the numbers.

use std::fmt;
use std::time::Duration;

use super::{Counter, Gauge, Handle, Statistic, sealed};

/// Freshness that a read asks for.
///
/// "Updates" are calls that returned before the read began. An update that runs at the same time may or may not be
/// counted.
///
/// The error bar of a [`Value`] is the truth, not its middle: a number that no flush has brought up to date yet, such as the
/// usage right after the start, reads 0 with a wide range, also under [`Freshness::AtMost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Freshness {
    /// Numbers as they were last brought up to date. Takes one short lock.
    Cached,
    /// Numbers that miss no update older than this. Right after the start they may be 0 with a wide range.
    AtMost(Duration),
    /// Usage that is off by at most this number of bytes on either side. Statistics are as in [`Freshness::Cached`]. Flushes only
    /// if pending charges and returns could exceed the bound.
    UsageWithin(u64),
    /// A counter that is off by at most so many of its own units on either side. All else is as in [`Freshness::Cached`].
    /// Flushes if pending updates could exceed the bound, and so at each read if the counter has no [`Statistic::batch`].
    CounterWithin(Counter, u64),
    /// The same for a gauge.
    GaugeWithin(Gauge, u64),
    /// Numbers that miss no update that returned before the read began. Other readers need not see them: a later
    /// [`Freshness::Cached`] may be older. [`crate::Group::flush`] brings the numbers up to date for all.
    Exact,
}

/// A number and the range that contains the true value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// The number, as old as its reading.
    pub value: i64,
    /// Lower bound that includes every update that returned before the read began; `i64::MIN` if unknown.
    pub lo: i64,
    /// Upper bound that includes every update that returned before the read began; `i64::MAX` if unknown.
    pub hi: i64,
}

impl Value {
    pub(super) fn within(value: i64, error: Option<u64>) -> Self {
        match error.map(i64::try_from) {
            Some(Ok(error)) => Self {
                value,
                lo: value.saturating_sub(error),
                hi: value.saturating_add(error),
            },
            _ => Self {
                value,
                lo: i64::MIN,
                hi: i64::MAX,
            },
        }
    }

    /// Largest possible distance of the true value from `value`; `u64::MAX` if unknown.
    pub fn error(&self) -> u64 {
        if self.lo == i64::MIN || self.hi == i64::MAX {
            return u64::MAX;
        }
        self.value
            .abs_diff(self.lo)
            .max(self.value.abs_diff(self.hi))
    }
}

/// Shows the number, and its range if the range holds other numbers too: `123 (100..=150)`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, lo, hi } = *self;
        if lo == value && hi == value {
            return fmt::Display::fmt(&value, f);
        }
        let shown = match (lo, hi) {
            (i64::MIN, i64::MAX) => format!("{value} (range unknown)"),
            (i64::MIN, hi) => format!("{value} (at most {hi})"),
            (lo, i64::MAX) => format!("{value} (at least {lo})"),
            (lo, hi) => format!("{value} ({lo}..={hi})"),
        };
        f.pad(&shown)
    }
}

/// The usage and all statistics of one group, read in one step.
///
/// Readings are equal if all numbers are, and the declarations of statistics. The age is not compared.
#[derive(Clone)]
pub struct Reading {
    pub(crate) statistics: &'static [Statistic],
    pub(crate) fingerprint: u32,
    pub(crate) age: Duration,
    /// Usage, then each statistic.
    pub(crate) values: Vec<Value>,
    pub(crate) own: Vec<i64>,
    pub(crate) over_returned: u64,
    /// For each statistic kept per node: its index, then the share of each node and of threads without a CPU.
    pub(crate) per_node: Vec<(usize, Vec<i64>)>,
}

impl Reading {
    /// Bytes charged to the group and all groups below it, without stock.
    ///
    /// An exact read may count any of the charges and returns that run at the same time. It may count a return on one
    /// CPU without its charge on another CPU, or a charge without the return that made room for it. The usage may then
    /// be less or more than the charged bytes at any moment of the read. It may also be above a limit that
    /// [`crate::Group::reserved`] keeps.
    pub fn usage(&self) -> Value {
        self.values[0]
    }

    /// [`Reading::usage`] as a number of bytes, for [`crate::Bytes`] and limits. A usage below 0, which is possible
    /// while charges and returns run, gives 0.
    pub fn usage_bytes(&self) -> u64 {
        self.usage().value.max(0) as u64
    }

    /// Bytes returned to the group and the groups below it beyond their charges; see
    /// [`crate::Events::over_returned_bytes`]. If this is not 0, the usage may be too low by an unknown amount.
    pub fn over_returned(&self) -> u64 {
        self.over_returned
    }

    /// Sets [`Reading::over_returned`].
    pub(crate) fn with_over_returned(self, over_returned: u64) -> Self {
        Self {
            over_returned,
            ..self
        }
    }

    /// Whether the number that `freshness` bounds is within its bound. `true` if it bounds none.
    ///
    /// # Panics
    /// As [`Reading::get`].
    pub(crate) fn is_within(&self, freshness: Freshness) -> bool {
        match freshness {
            Freshness::UsageWithin(bytes) => self.usage().error() <= bytes,
            Freshness::CounterWithin(counter, error) => self.get(counter).error() <= error,
            Freshness::GaugeWithin(gauge, error) => self.get(gauge).error() <= error,
            Freshness::Cached | Freshness::AtMost(_) | Freshness::Exact => true,
        }
    }

    /// Value of a statistic of the group and all groups below it.
    ///
    /// # Panics
    /// If the handle belongs to another declaration than the memory's.
    pub fn get<H: Handle>(&self, statistic: H) -> Value {
        self.values[self.index(statistic) + 1]
    }

    /// Part of a statistic that no living child accounts for: the group's own updates and those of removed children.
    ///
    /// # Panics
    /// As [`Reading::get`].
    pub fn own<H: Handle>(&self, statistic: H) -> i64 {
        self.own[self.index(statistic) + 1]
    }

    /// Part of the usage that no living child accounts for, bytes.
    pub fn own_usage(&self) -> i64 {
        self.own[0]
    }

    /// Shares of the NUMA nodes in a statistic that was declared [`Statistic::per_node`], followed by the share of
    /// threads and CPUs without a node; `None` for other statistics. The shares add up to the value.
    ///
    /// # Panics
    /// As [`Reading::get`].
    pub fn per_node<H: Handle>(&self, statistic: H) -> Option<&[i64]> {
        let index = self.index(statistic);
        let found = self.per_node.iter().find(|(at, _)| *at == index)?;
        Some(&found.1)
    }

    /// Time since the read or flush of these numbers began. They miss no update older than this.
    pub fn age(&self) -> Duration {
        self.age
    }

    /// All declared statistics, with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Value)> + '_ {
        let names = self.statistics.iter().map(Statistic::name);
        names.zip(self.values.iter().skip(1).copied())
    }

    fn index<H: Handle>(&self, statistic: H) -> usize {
        let place = sealed::Sealed::resolve(&statistic).0;
        assert_eq!(
            place.fingerprint, self.fingerprint,
            "cannot read statistic {:?}: its handle belongs to another declaration of statistics than the memory's",
            place.name
        );
        usize::from(place.index)
    }
}

/// Short enough for a line of a log.
impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Reading");
        shown.field("age", &self.age);
        shown.field("usage", &format_args!("{}", self.usage()));
        for (name, value) in self.iter() {
            shown.field(name, &format_args!("{value}"));
        }
        shown.finish_non_exhaustive()
    }
}

impl PartialEq for Reading {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
            && self.values == other.values
            && self.own == other.own
            && self.over_returned == other.over_returned
            && self.per_node == other.per_node
    }
}

impl Eq for Reading {}

/// Error of a read that needs a flush which the policy forbids.
#[derive(Clone, PartialEq, Eq)]
pub struct NotFresh {
    /// Numbers of the last flush.
    pub cached: Reading,
}

impl fmt::Display for NotFresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this memory is flushed periodically only, and its numbers are {:?} old",
            self.cached.age
        )
    }
}

bursar_machine::debug_as_message!(struct NotFresh { cached });

impl std::error::Error for NotFresh {}

/// Result that an exact read keeps for the reads that follow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Folded numbers of the group and all below, for readers of any kind.
    Folded,
    /// Perhaps a roster, for exact reads of this group.
    Roster,
}

/// The folded numbers of one group, by column.
pub(super) struct Folded {
    pub(super) totals: Vec<i64>,
    pub(super) own: Vec<i64>,
    /// Largest distance of the truth from the total, on either side; `None` if unknown.
    pub(super) errors: Vec<Option<u64>>,
    pub(super) is_absorbed: bool,
}

/// Adds to a number of statistics, which may wrap.
pub(super) fn add(sum: &mut i64, value: i64) {
    *sum = sum.wrapping_add(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATISTICS: &[Statistic] = &[Statistic::counter("rows"), Statistic::gauge("open")];

    #[test]
    fn an_error_is_unknown_if_either_bound_is() {
        let error = |lo, hi| Value { value: 5, lo, hi }.error();
        assert_eq!(error(3, 9), 4);
        assert_eq!(error(-2, 9), 7);
        assert_eq!(error(i64::MIN, 9), u64::MAX);
        assert_eq!(error(3, i64::MAX), u64::MAX);
    }

    #[test]
    fn a_value_shows_bounds_that_differ_from_it() {
        let shown = |lo, hi| Value { value: 5, lo, hi }.to_string();
        assert_eq!(shown(5, 5), "5");
        assert_eq!(shown(5, 9), "5 (5..=9)");
        assert_eq!(shown(3, 5), "5 (3..=5)");
    }

    #[test]
    fn readings_are_equal_if_all_numbers_are() {
        let value = |value| Value::within(value, Some(0));
        let one = Reading {
            statistics: STATISTICS,
            fingerprint: 7,
            age: Duration::ZERO,
            values: [3, 4, 5].map(value).to_vec(),
            own: vec![1, 2, 3],
            over_returned: 0,
            per_node: vec![(0, vec![4, 0])],
        };
        assert!(one.iter().eq([("rows", value(4)), ("open", value(5))]));
        let older = Reading {
            age: Duration::from_secs(1),
            ..one.clone()
        };
        assert_eq!(older.age(), Duration::from_secs(1));
        assert!(one == older);
        let change = |change: fn(&mut Reading)| {
            let mut other = one.clone();
            change(&mut other);
            other
        };
        for other in [
            change(|other| other.fingerprint = 8),
            change(|other| other.values[2] = Value::within(6, Some(0))),
            change(|other| other.own[2] = 4),
            change(|other| other.over_returned = 1),
            change(|other| other.per_node[0].1 = vec![3, 1]),
        ] {
            assert!(one != other);
        }
        let message = NotFresh { cached: older }.to_string();
        assert!(message.contains("flushed periodically only"), "{message}");
        assert!(message.contains("1s old"), "{message}");
    }
}
