//! The text of a refusal, and its parts.
//!
//! The error is always `ResourcesExhausted`, because operators that can spill look for that error. It carries text alone, so the parts
//! are lines: the message, the details, and the advice, which begins with [`HINT`].

use std::error::Error;
use std::fmt::Write;
use std::io;
use std::time::Duration;

use bursar::diagnosis::TreeReport;
use bursar::{Bytes, ChargeError, Group, Level, printable};
use datafusion_common::DataFusionError;
use datafusion_execution::memory_pool::MemoryReservation;

use crate::engine_version;
use crate::operators::Live;
use crate::report::{OperatorReport, QueryReport};
use crate::share::Standing;

/// Operators that are named, and consumers named of each.
const TOP: usize = 5;

/// Beginning of the text of each refusal of memory.
pub(crate) const REFUSED: &str = "cannot reserve ";
/// Beginning of the error of each write that a limit of disk space refuses.
const NO_SPACE: &str = "no disk space for a spill file: ";
/// Beginning of the heading of the tree.
const TREE: &str = "\nThe tree around ";
/// Beginning of the list of the biggest groups at the limit, in a message.
const LARGEST: [&str; 2] = ["; largest in it", "; largest below it"];
/// Beginning of the last line, if there is advice.
const HINT: &str = "\nHint: ";
/// Beginning of the error of DataFusion's own limit of disk space.
const DISK_LIMIT: &str = "The used disk space during the spilling process has exceeded";

/// Resource that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resource {
    /// Memory.
    Memory,
    /// Disk space for spill files, by a limit or by the file system.
    SpillSpace,
}

/// The parts of a refusal's text, for protocols that have a field for each. PostgreSQL's calls them message, DETAIL and HINT.
///
/// ```
/// use bursar::{Limits, Memory};
/// use bursar_datafusion::{PoolExt, RefusalText};
/// use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool};
/// use std::sync::Arc;
///
/// let memory = Memory::builder().build()?;
/// let pool: Arc<dyn MemoryPool> = memory.root().child("query", Limits::max(1 << 20))?.pool();
/// let error = MemoryConsumer::new("HashJoinInput").register(&pool).try_grow(2 << 20).unwrap_err();
/// let text = RefusalText::of(&error).expect("a refusal");
/// assert!(text.message.starts_with("cannot reserve 2.00 MiB more for HashJoinInput"));
/// assert!(text.detail.contains("The tree around /query"));
/// assert!(text.hint.contains("raise it to 2.00 MiB"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusalText {
    /// Resource that was refused.
    pub resource: Resource,
    /// One line: the request, and the limit in its way.
    pub message: String,
    /// Users of the memory, and the tree around the limit, in lines. Empty if the refusal is not Bursar's.
    pub detail: String,
    /// Advice. Empty if there is none.
    pub hint: String,
}

impl RefusalText {
    /// Finds the parts in an error of a query; `None` if the error is no refusal of memory or of spill space.
    pub fn of(error: &DataFusionError) -> Option<Self> {
        let (resource, text) = refused(error.find_root())?;
        let (text, hint) = text.rsplit_once(HINT).unwrap_or((&text, ""));
        let (message, detail) = text.split_once('\n').unwrap_or((text, ""));
        Some(Self {
            resource,
            message: message.to_owned(),
            detail: detail.to_owned(),
            hint: hint.to_owned(),
        })
    }

    /// Leaves out what a tenant may not see: the users of a limit, and the tree around it, unless that limit is of the group at `path` or
    /// below. The tree around a tenant's limit also has the usage and limits of the groups above.
    pub fn within(mut self, path: &str) -> Self {
        let below = path.trim_end_matches('/');
        let at = self.detail.rfind(TREE).or_else(|| {
            // Nothing comes before it.
            self.detail.starts_with(&TREE[1..]).then_some(0)
        });
        let around = at.map_or("", |at| self.detail[at..].trim_start());
        let around = around.strip_prefix(TREE.trim_start()).unwrap_or_default();
        let around = around.lines().next().unwrap_or_default();
        let rest = around.strip_prefix(&*printable(below).to_string());
        if rest.is_none_or(|rest| !rest.starts_with(['/', ':', ' '])) {
            self.detail.truncate(at.unwrap_or(self.detail.len()));
            for largest in LARGEST {
                self.message
                    .truncate(self.message.find(largest).unwrap_or(self.message.len()));
            }
        }
        self
    }
}

/// The text of a write that a limit of disk space refuses.
pub(crate) fn no_space(refusal: &ChargeError) -> String {
    let advice = ("disk space of ", "let fewer queries spill at a time");
    of_charge(NO_SPACE, refusal, advice)
}

/// The text of a prepared statement that a limit refuses.
#[cfg(feature = "sql")]
pub(crate) fn no_plan(refusal: &ChargeError) -> String {
    let begin = format!("{REFUSED}the plan of a prepared statement: ");
    of_charge(&begin, refusal, ("", "prepare fewer statements at a time"))
}

/// The text of a charge that no request of a pool made. The tree has its heading, so that [`RefusalText::within`] can leave it out.
fn of_charge(begin: &str, refusal: &ChargeError, (of, or): (&str, &str)) -> String {
    let mut text = format!("{begin}{refusal}");
    if let ChargeError::LimitReached(reached) = refusal {
        // Writing to a string does not fail.
        let _ = write_tree_around(
            &mut text,
            &reached.limited,
            &reached.report,
            reached.largest_age,
        );
        let limited = printable(&reached.limited);
        let _ = write!(text, "{HINT}Raise the limit of {of}{limited}, or {or}");
    }
    text
}

fn write_tree_around(
    text: &mut String,
    group: &str,
    report: &TreeReport,
    age: Duration,
) -> std::fmt::Result {
    write!(text, "{TREE}{}", printable(group))?;
    match age.as_millis() {
        0 => text.push(':'),
        age_ms => write!(text, " {age_ms} ms ago:")?,
    }
    write!(text, "\n{report}")
}

/// The resource that an error refuses, and its text.
fn refused(root: &DataFusionError) -> Option<(Resource, String)> {
    if let Some(text) = engine_version::exhausted(root) {
        let resource = match text.contains(DISK_LIMIT) {
            true => Resource::SpillSpace,
            false => Resource::Memory,
        };
        return Some((resource, text.to_owned()));
    }
    let mut cause: Option<&(dyn Error + 'static)> = Some(root);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && error.kind() == io::ErrorKind::StorageFull
        {
            let text = error.to_string();
            let text = match text.starts_with(NO_SPACE) {
                true => text,
                false => format!("{NO_SPACE}{text}"),
            };
            return Some((Resource::SpillSpace, text));
        }
        cause = error.source();
    }
    None
}

/// Reason of a refusal.
pub(crate) enum Refusal {
    /// A limit, or the group was removed.
    Charge(ChargeError),
    /// The request exceeds the consumer's share of this group's limit.
    Share { group: Group, standing: Standing },
    /// The consumer must spill, because this group is under pressure.
    Pressure { group: Group, level: Level },
    /// The arbiter asked the query to give back memory.
    Asked { decision: u64 },
    /// The heap holds more for this group than its limit.
    #[cfg(feature = "real-bytes")]
    Real { group: Group, held: u64, max: u64 },
}

impl Refusal {
    /// Names what refused, as [`QueryReport::refused_by`] does.
    pub(crate) fn refused_by(&self) -> Option<String> {
        match self {
            Self::Charge(ChargeError::LimitReached(reached)) => Some(reached.limited.to_string()),
            Self::Charge(_) => None,
            Self::Share { group, .. } => Some(format!("share of {}", group.path())),
            Self::Pressure { group, .. } => Some(format!("pressure of {}", group.path())),
            Self::Asked { decision } => Some(format!("decision {decision} of the arbiter")),
            #[cfg(feature = "real-bytes")]
            Self::Real { group, .. } => Some(format!("real bytes of {}", group.path())),
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
            "{REFUSED}{} more for {}, which has {}, in {}: ",
            Bytes(requested),
            // DataFusion puts names of columns into it, which a tenant chooses.
            printable(reservation.consumer().name()),
            Bytes(held),
            printable(query),
        );
        // Writing to a string does not fail, here and below.
        let _ = match &self {
            Self::Charge(error) => write_charge_error(&mut text, error, query),
            Self::Share { group, standing } => {
                write_share(&mut text, &group.path(), standing, held)
            }
            #[cfg(feature = "real-bytes")]
            Self::Real { group, held, max } => {
                crate::real::write_over(&mut text, &group.path(), *held, *max)
            }
            Self::Asked { decision } => write!(
                text,
                "the arbiter asks this query to spill, because others wait for memory (decision {decision})"
            ),
            Self::Pressure { group, level } => write!(
                text,
                "{} is under {level} pressure, so this consumer is asked to spill before a limit is reached",
                printable(&group.path())
            ),
        };
        let never_fits = self.never_fits(held, requested);
        let advised = self.advised(&report.path);
        let _ = write_top(&mut text, report, consumers);
        let _ = self.write_tree(&mut text);
        let _ = match (never_fits, advised) {
            (Some(max), _) => write!(
                text,
                "{HINT}This does not fit while the limit is {}: raise it to {} at least, or have the query ask for less at a time \
                 (target_partitions, batch_size, sort_spill_reservation_bytes)",
                Bytes(max),
                Bytes(requested),
            ),
            (None, Some(group)) => write!(
                text,
                "{HINT}Raise the limit of {}, let fewer queries run below it at a time, or have the query ask for less at a time \
                 (target_partitions, batch_size)",
                printable(&group)
            ),
            (None, None) => Ok(()),
        };
        DataFusionError::ResourcesExhausted(text)
    }

    /// Makes the error that ends a query in the place of its next batch, because it took more than its limit.
    #[cfg(all(feature = "real-bytes", feature = "sql"))]
    pub(crate) fn of_next_batch(self, query: &str) -> DataFusionError {
        let mut text = format!("{REFUSED}the next batch of {}: ", printable(query));
        // Writing to a string does not fail.
        if let Self::Real { held, max, .. } = &self {
            let (held, max) = (Bytes(*held), Bytes(*max));
            let _ = write!(
                text,
                "the query held {held} of the heap, and its limit is {max}"
            );
        }
        let _ = self.write_tree(&mut text);
        if let Some(group) = self.advised(query) {
            let _ = write!(
                text,
                "{HINT}Raise the limit of {}, or have functions and operators make less at a time (batch_size)",
                printable(&group)
            );
        }
        DataFusionError::ResourcesExhausted(text)
    }

    /// Writes the tree around the limit.
    fn write_tree(&self, text: &mut String) -> std::fmt::Result {
        let (group, report, age) = match self {
            Self::Charge(ChargeError::LimitReached(reached)) => {
                let limited = reached.limited.clone();
                (limited, reached.report.clone(), reached.largest_age)
            }
            Self::Charge(_) | Self::Asked { .. } => return Ok(()),
            Self::Share { group, .. } | Self::Pressure { group, .. } => {
                let (report, age) = TreeReport::around(group);
                (group.path(), report, age)
            }
            #[cfg(feature = "real-bytes")]
            Self::Real { group, .. } => {
                let (report, age) = TreeReport::around(group);
                (group.path(), report, age)
            }
        };
        write_tree_around(text, &group, &report, age)
    }

    /// Returns the group whose limit can be raised: of a query's own group, which may be a grant's, the one above.
    fn advised(&self, query: &str) -> Option<String> {
        let group = match self {
            Self::Charge(ChargeError::LimitReached(reached)) => reached.limited.clone(),
            Self::Charge(_) | Self::Asked { .. } => return None,
            Self::Share { group, .. } | Self::Pressure { group, .. } => group.path(),
            #[cfg(feature = "real-bytes")]
            Self::Real { group, .. } => group.path(),
        };
        Some(match group.rsplit_once('/') {
            Some((above, _)) if group == query && !above.is_empty() => above.to_owned(),
            _ => group,
        })
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
