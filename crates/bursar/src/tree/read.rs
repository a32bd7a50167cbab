//! Freshness of a read, and the numbers that it returns.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::fold::Sample;
use super::roster::Roster;
use super::schema::Column;
use super::{FlushPolicy, Handle, Statistic, Tree, sealed};

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
    /// Usage and batched statistics (see [`Statistic::batch`]) that are off by at most this on either side, in their
    /// own units. Other statistics are as in [`Freshness::Cached`]. Flushes only if pending updates could exceed the
    /// bound.
    Within(u64),
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
    fn within(value: i64, error: Option<u64>) -> Self {
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// How far the truth may be from the total, on either side; `None` if unknown.
    pub(super) errors: Vec<Option<u64>>,
    pub(super) is_absorbed: bool,
}

impl<M: Machine> Tree<M> {
    /// Whether a group's own words hold all its updates.
    fn is_childless(&self, index: u32) -> bool {
        // Acquire: a child that had an update before this read was counted before that update.
        self.node(index).child_count.load(MemoryOrder::Acquire) == 0
    }

    /// Reads a group as fresh as is wanted. `None` if the policy forbids the walk that this needs. The usage range is asked for
    /// where the last walk's numbers will do.
    pub(crate) fn read(
        &self,
        index: u32,
        freshness: Freshness,
        usage_range: impl Fn() -> (i64, i64),
    ) -> Option<Reading> {
        let cached = || self.cached(index, usage_range());
        match freshness {
            Freshness::Exact => self.exact(index, Keep::Roster),
            Freshness::Cached => Some(cached()),
            Freshness::AtMost(age) if u128::from(self.age_ns(index)) <= age.as_nanos() => {
                Some(cached())
            }
            Freshness::AtMost(_) => self.exact(index, Keep::Folded),
            Freshness::Within(error) => {
                let reading = cached();
                match self.is_within(&reading, error) {
                    true => Some(reading),
                    false => self.exact(index, Keep::Folded),
                }
            }
        }
    }

    /// Numbers that include each update that returned before this call; `None` if the policy forbids it.
    pub(crate) fn exact(&self, index: u32, keep: Keep) -> Option<Reading> {
        if self.policy == FlushPolicy::PeriodicOnly {
            return None;
        }
        let began_ns = self.machine.now_ns();
        let in_use = match self.folded_if_unmarked(index) {
            // Nothing is noted for other readers: this writes no line but the lock's.
            Ok(folded) => {
                return Some(self.exact_reading(index, (began_ns, began_ns), folded, false));
            }
            Err(roster) => roster,
        };
        let mut slots = 0;
        let found = in_use
            .filter(|_| keep == Keep::Roster)
            .and_then(|roster| self.by_roster(index, &roster, &mut slots));
        let turns = &self.node(index).turns;
        let mut many_slots = false;
        if found.is_some() {
            // Relaxed: a count.
            turns.rosters.fetch_add(1, MemoryOrder::Relaxed);
        } else if self.is_childless(index) {
            // It is over so soon that sharing it would cost more.
            slots += self.walk(index).slots;
        } else {
            many_slots = self.flush(index, keep);
        }
        if slots > 0 {
            many_slots |= self.count_slots(index, slots);
        }
        let now_ns = self.machine.now_ns();
        let folded = found.unwrap_or_else(|| self.folded(index));
        Some(self.exact_reading(index, (began_ns, now_ns), folded, many_slots))
    }

    fn exact_reading(
        &self,
        index: u32,
        (began_ns, now_ns): (u64, u64),
        folded: Folded,
        many_slots: bool,
    ) -> Reading {
        let age_ns = now_ns.saturating_sub(began_ns);
        let (mut reading, below_zero) = self.last_reading(index, age_ns, folded);
        for value in &mut reading.values {
            *value = Value::within(value.value, Some(0));
        }
        let usage = &mut reading.values[0];
        usage.hi = usage.hi.saturating_add_unsigned(below_zero);
        // Only now: the reader has its answer.
        if many_slots || self.retirer.period_ns == 0 {
            self.retire_if_due(now_ns);
        }
        reading
    }

    /// Age of the folded numbers, ns.
    pub(crate) fn age_ns(&self, index: u32) -> u64 {
        // Acquire: pairs with the Release at the end of a flush.
        let began = |at| self.node(at).as_of_ns.load(MemoryOrder::Acquire);
        let newest = self
            .chain(index)
            .map(began)
            .max()
            .expect("a chain has a group");
        self.machine.now_ns().saturating_sub(newest)
    }

    /// Numbers of the last flush. `usage_range` bounds the usage by other means and was taken before this call.
    pub(crate) fn cached(&self, index: u32, usage_range: (i64, i64)) -> Reading {
        let age_ns = self.age_ns(index);
        let (mut reading, below_zero) = self.last_reading(index, age_ns, self.folded(index));
        let usage = &mut reading.values[0];
        if usage.error() > 0 {
            usage.lo = usage_range.0.min(usage.value);
            usage.hi = usage_range.1.max(usage.value);
        }
        usage.hi = usage.hi.saturating_add_unsigned(below_zero);
        reading
    }

    /// A reading of folded numbers, and the bytes by which the usage was below 0. The usage's range must be at least that wide.
    fn last_reading(&self, index: u32, age_ns: u64, mut folded: Folded) -> (Reading, u64) {
        // Shards are read one after the other, so a return may be in whose charge is not: no usage is below 0.
        let below_zero = folded.totals[0].min(0).unsigned_abs();
        folded.totals[0] = folded.totals[0].max(0);
        let mut reading = self.reading(age_ns, folded);
        let usage = &mut reading.values[0];
        usage.lo = usage.lo.max(0);
        self.read_eager(index, &mut reading.values, &mut reading.own);
        (reading, below_zero)
    }

    /// Takes what is folded of a group if nothing is marked there and below: then it is all that there is. If something is, returns
    /// the group's roster, if it has one.
    fn folded_if_unmarked(&self, index: u32) -> Result<Folded, Option<Arc<Roster<M>>>> {
        let node = self.node(index);
        let sample = Sample::of(node);
        // Under this lock, marks are only removed with it held, after what they stood for was folded and handed up.
        let mut fold = node.fold.lock();
        if !node.is_unmarked() {
            return Err(fold.roster.clone());
        }
        fold.settle(sample, 0);
        Ok(Folded {
            totals: fold.totals.clone(),
            own: fold.own.clone(),
            errors: vec![Some(0); self.layout.columns.len()],
            is_absorbed: fold.is_absorbed,
        })
    }

    /// Takes what is folded of a group, in one step.
    pub(super) fn folded(&self, index: u32) -> Folded {
        let node = self.node(index);
        let layout = &self.layout;
        let fold = node.fold.lock();
        // Full: an update's publication is counted before the update returns.
        let publications = node
            .publications
            .load(MemoryOrder::Full)
            .wrapping_sub(fold.sampled_publications);
        // A slot that the last walk left marked takes updates without another publication.
        let slots = publications.saturating_add(fold.left);
        let error = |(column, declared): (usize, &Column)| match (slots, declared.batch) {
            (0, _) => Some(0),
            // Eager statistics do not wait for a flush.
            _ if declared.word.is_none() => Some(0),
            (_, 0) => None,
            (_, batch) => {
                let sampled = fold.sampled_reports.get(column).copied().unwrap_or(0);
                let reported = node.reported[column]
                    .load(MemoryOrder::Full)
                    .wrapping_sub(sampled);
                // Each of these slots holds back less than a batch on either side of its folded value.
                let held_back = slots.saturating_mul(batch.saturating_mul(2));
                Some(reported.saturating_add(held_back))
            }
        };
        let errors = layout.columns.iter().enumerate().map(error).collect();
        Folded {
            totals: fold.totals.clone(),
            own: fold.own.clone(),
            errors,
            is_absorbed: fold.is_absorbed,
        }
    }

    /// A reading of these numbers.
    pub(super) fn reading(&self, age_ns: u64, folded: Folded) -> Reading {
        let layout = &self.layout;
        let Folded {
            totals,
            mut own,
            errors,
            ..
        } = folded;
        own.truncate(layout.columns.len());
        let values = totals.iter().zip(errors);
        let share = |(index, column): (usize, &Column)| {
            let first = column.per_node?;
            Some((index, totals[first..=first + self.machine.nodes()].to_vec()))
        };
        Reading {
            statistics: layout.statistics,
            fingerprint: layout.fingerprint,
            age: Duration::from_nanos(age_ns),
            values: values
                .map(|(&total, error)| Value::within(total, error))
                .collect(),
            own,
            over_returned: 0,
            per_node: layout.columns[1..]
                .iter()
                .enumerate()
                .filter_map(share)
                .collect(),
        }
    }

    /// Whether the range of the usage and of each batched statistic is within `error` on either side.
    pub(crate) fn is_within(&self, reading: &Reading, error: u64) -> bool {
        let columns = self.layout.columns[1..].iter().zip(&reading.values[1..]);
        let mut batched = columns.filter(|(column, _)| column.batch > 0);
        reading.usage().error() <= error && batched.all(|(_, value)| value.error() <= error)
    }

    fn read_eager(&self, index: u32, values: &mut [Value], own: &mut [i64]) {
        let node = self.node(index);
        if node.eager.is_empty() {
            return;
        }
        let mut children = Vec::new();
        self.for_each_child(index, |_, child| children.push(child));
        let eager = (1..values.len()).filter(|&column| self.layout.columns[column].word.is_none());
        for (word, column) in eager.enumerate() {
            // Full: pairs with `add_eager`.
            let read = |at: u32| self.node(at).eager[word].load_signed(MemoryOrder::Full);
            values[column] = Value::within(read(index), Some(0));
            own[column] = children
                .iter()
                .fold(read(index), |rest, &child| rest.wrapping_sub(read(child)));
        }
    }
}
