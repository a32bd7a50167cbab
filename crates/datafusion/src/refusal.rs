//! The text of a refusal.
//!
//! The error is always `ResourcesExhausted`, because operators that can spill look for that error.

use std::fmt::Write;

use bursar::{Bytes, ChargeError, Level, LimitReached, printable};
use datafusion_common::DataFusionError;
use datafusion_execution::memory_pool::MemoryReservation;

use crate::operators::Live;
use crate::report::{OperatorReport, QueryReport};
use crate::share::Standing;

/// Operators that are named, and consumers named of each.
const TOP: usize = 5;

/// Reason of a refusal.
pub(crate) enum Refusal {
    /// A limit, or the group was removed.
    Charge(ChargeError),
    /// The request exceeds the consumer's share of this group's limit.
    Share { group: String, standing: Standing },
    /// The consumer must spill, because this group is under pressure.
    Pressure { group: String, level: Level },
    /// The heap holds more for this group than its limit.
    #[cfg(feature = "real-bytes")]
    Real { group: String, held: u64, max: u64 },
}

impl Refusal {
    /// Names what refused, as [`QueryReport::refused_by`] does.
    pub(crate) fn refused_by(&self) -> Option<String> {
        match self {
            Self::Charge(ChargeError::LimitReached(reached)) => Some(reached.limited.to_string()),
            Self::Charge(_) => None,
            Self::Share { group, .. } => Some(format!("share of {group}")),
            Self::Pressure { group, .. } => Some(format!("pressure of {group}")),
            #[cfg(feature = "real-bytes")]
            Self::Real { group, .. } => Some(format!("real bytes of {group}")),
        }
    }

    /// Makes the error, with all that is known of the users of the memory: the query's report, and its consumers.
    #[cold]
    pub(crate) fn into_error(
        self,
        report: QueryReport,
        consumers: Vec<Live>,
        reservation: &MemoryReservation,
        requested: u64,
    ) -> DataFusionError {
        let held = reservation.size() as u64;
        let query = &report.path;
        let mut text = format!(
            "cannot reserve {} more for {}, which has {}, in {}: ",
            Bytes(requested),
            reservation.consumer().name(),
            Bytes(held),
            printable(query),
        );
        // Writing to a string does not fail, here and below.
        let _ = match &self {
            Self::Charge(error) => write_charge_error(&mut text, error, query),
            Self::Share { group, standing } => write_share(&mut text, group, standing, held),
            #[cfg(feature = "real-bytes")]
            Self::Real { group, held, max } => {
                crate::real::write_over(&mut text, group, *held, *max)
            }
            Self::Pressure { group, level } => write!(
                text,
                "{} is under {level} pressure, so this consumer is asked to spill before a limit is reached",
                printable(group)
            ),
        };
        let _ = write_top(&mut text, report, consumers);
        if let Self::Charge(ChargeError::LimitReached(reached)) = &self {
            let _ = write_tree(&mut text, reached);
        }
        if let Some(max) = self.never_fits(held, requested) {
            let _ = write!(
                text,
                "\nThis does not fit while the limit is {}: raise it to {} at least, or have the query ask for less at a time \
                 (target_partitions, batch_size, sort_spill_reservation_bytes)",
                Bytes(max),
                Bytes(requested),
            );
        }
        DataFusionError::ResourcesExhausted(text)
    }

    /// Returns the limit if the request cannot fit even when all others return their bytes.
    fn never_fits(&self, held: u64, requested: u64) -> Option<u64> {
        match self {
            Self::Charge(ChargeError::LimitReached(reached)) if reached.never_fits() => {
                Some(reached.max)
            }
            Self::Share { standing, .. } if held == 0 && requested > standing.limit => {
                Some(standing.limit)
            }
            _ => None,
        }
    }
}

fn write_charge_error(text: &mut String, error: &ChargeError, query: &str) -> std::fmt::Result {
    let reached = match error {
        ChargeError::LimitReached(reached) => reached,
        ChargeError::Removed { group } if **group == *query => {
            return text.write_str("the query's group was removed");
        }
        other => return write!(text, "{other}"),
    };
    let (usage, max) = (Bytes(reached.usage), Bytes(reached.max));
    let limited = printable(&reached.limited);
    write!(text, "{limited} uses {usage} of at most {max}")?;
    // Those of the query itself follow below, with more.
    if reached.limited != query && !reached.largest.is_empty() {
        let largest = reached.largest.iter();
        let named = largest.map(|(name, usage)| format!("{} {}", printable(name), Bytes(*usage)));
        match reached.largest_age.as_millis() {
            0 => text.push_str("; largest in it: "),
            age_ms => write!(text, "; largest in it {age_ms} ms ago: ")?,
        }
        text.push_str(&named.collect::<Vec<_>>().join(", "));
    }
    Ok(())
}

fn write_share(text: &mut String, group: &str, standing: &Standing, held: u64) -> std::fmt::Result {
    let seen = standing.of(held);
    let (share, limit) = (Bytes(seen.share()), Bytes(standing.limit));
    let others = Bytes(standing.used.saturating_sub(standing.spillable));
    let (active, idle) = (seen.active, seen.idle);
    let group = printable(group);
    write!(
        text,
        "its share of {group} is {share}: of {limit}, {others} are used by those that cannot spill, and {active} that can spill hold \
         memory"
    )?;
    if standing.merges > 0 {
        text.push_str(", and a share is kept for the merge of what they sort");
    }
    if idle > 0 {
        let free = Bytes(standing.limit.saturating_sub(standing.used));
        write!(
            text,
            ", while {idle} more may begin, for whom a share is kept free; {free} are free"
        )?;
    }
    Ok(())
}

fn write_top(text: &mut String, report: QueryReport, mut consumers: Vec<Live>) -> std::fmt::Result {
    write!(
        text,
        "\n{} uses {}, peak {}",
        printable(&report.path),
        Bytes(report.reserved),
        Bytes(report.peak)
    )?;
    let mut operators = report.operators;
    operators.sort_by_key(|operator| std::cmp::Reverse((operator.reserved, operator.peak)));
    consumers.sort_by_key(Live::order);
    let is_own = |one: &&Live| one.operator.name().is_empty();
    if operators.is_empty() && !consumers.iter().any(|one| is_own(&one)) {
        return Ok(());
    }
    text.write_str("; its top consumers:")?;
    for operator in operators.iter().take(TOP) {
        write!(text, "\n  {operator}")?;
        write_partitions(text, operator, &consumers)?;
    }
    // Those without an operator's group.
    for one in consumers.iter().filter(is_own).take(TOP) {
        let spilling = if one.can_spill { "can" } else { "cannot" };
        write!(text, "\n  {one}, {spilling} spill")?;
    }
    write_rest(text, "\n  ", consumers.iter().filter(is_own).count())
}

/// Writes the tree around the limit.
fn write_tree(text: &mut String, reached: &LimitReached) -> std::fmt::Result {
    write!(text, "\nThe tree around {}", printable(&reached.limited))?;
    match reached.largest_age.as_millis() {
        0 => text.push(':'),
        age_ms => write!(text, " {age_ms} ms ago:")?,
    }
    write!(text, "\n{}", reached.report)
}

/// Writes the consumers of an operator, if they add to the operator's line.
fn write_partitions(
    text: &mut String,
    operator: &OperatorReport,
    consumers: &[Live],
) -> std::fmt::Result {
    let of_it = || consumers.iter().filter(|one| one.is_of(operator));
    let count = of_it().count();
    if count == 0 || count == 1 && of_it().all(|one| one.is_called(operator)) {
        return Ok(());
    }
    for (index, one) in of_it().take(TOP).enumerate() {
        let separator = if index == 0 { "\n    " } else { ", " };
        write!(text, "{separator}{one}")?;
    }
    write_rest(text, ", ", count)
}

/// Writes how many were not named.
fn write_rest(text: &mut String, separator: &str, count: usize) -> std::fmt::Result {
    match count.saturating_sub(TOP) {
        0 => Ok(()),
        rest => write!(text, "{separator}and {rest} more"),
    }
}
