//! Figures of a query and its operators, for people and for tables.

use std::fmt;
use std::time::Duration;

use bursar::{Bytes, LimitReached, printable};

/// Figures of a query, as of a moment or of its end; see [`crate::GroupPool::report`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueryReport {
    /// Path of the query's group.
    pub path: String,
    /// Bytes charged to the group and below it.
    pub reserved: u64,
    /// Most bytes that were reserved for the group at one time. Includes stock of each operator: bytes that CPUs had claimed ahead of need,
    /// and returned bytes that they kept ([`bursar::Builder::stock_max`]).
    pub peak: u64,
    /// Requests that were refused, by a limit, a share, or for an early spill.
    pub refused: u64,
    /// Requests beyond stock that could not be refused (including [`crate::PoolBuilder::never_refuse`]'s) and left the
    /// group, or one above it, above its limit.
    pub overshot: u64,
    /// Number of times that a consumer that can spill returned bytes after a refusal.
    pub spills: u64,
    /// Bytes charged to the query's group that no consumer holds: those that its sorts need to merge their rows. Others get them at
    /// need while a sort puts its rows out and no limit is exceeded.
    pub kept: u64,
    /// Time since the pool was made.
    pub elapsed: Duration,
    /// Number of this try of the query, from 1 on. Only `TenantEngine` runs a query again.
    pub tries: u32,
    /// Operators by first registration, including those whose consumers are gone. Empty under
    /// [`crate::Operators::Together`].
    pub operators: Vec<OperatorReport>,
    /// Reason of the last refusal, as text. For a limit it is the path of its group. Otherwise it is `share of` and the group of a
    /// [`crate::FairShare`], `pressure of` and a group for an early spill, or `real bytes of` and a group. `None` if only the end of
    /// the query's group has refused.
    pub refused_by: Option<String>,
    /// The last refusal by a limit, with the tree around that limit ([`LimitReached::report`]). Not for shares and early spills.
    pub last_refusal: Option<Box<LimitReached>>,
    /// The bytes that were held when the query ended: by operators, and by consumers without an operator's group. Empty before the end.
    pub leftovers: Vec<Leftover>,
    /// Bytes that the query really takes, under [`crate::PoolBuilder::real_bytes`].
    #[cfg(feature = "real-bytes")]
    pub real: Option<crate::RealReport>,
}

/// Bytes that an operator holds after the end of its query.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leftover {
    /// The operator; empty for bytes in the query's own group.
    pub operator: String,
    /// Bytes charged.
    pub bytes: u64,
    /// Its consumers that are registered still, the oldest first, with their numbers: `ExternalSorter[0]#12`. Without any, a
    /// reservation was forgotten.
    pub consumers: Vec<String>,
    /// Time since the oldest of these consumers was registered.
    pub age: Duration,
}

/// Figures of an operator, of all its partitions together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperatorReport {
    /// Name, the same as its group's.
    pub name: String,
    /// Consumers ever registered, usually partitions.
    pub consumers: u64,
    /// Whether some of them can spill.
    pub can_spill: bool,
    /// Bytes charged to its group now.
    pub reserved: u64,
    /// Most bytes that were reserved for its group at one time; see [`QueryReport::peak`].
    pub peak: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Spills, counted as in [`QueryReport::spills`].
    pub spills: u64,
}

impl fmt::Display for QueryReport {
    /// Writes a line for the query, and below it an indented line for each operator.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}, peak {}, {:.3} s",
            printable(&self.path),
            Bytes(self.reserved),
            Bytes(self.peak),
            self.elapsed.as_secs_f64()
        )?;
        #[cfg(feature = "real-bytes")]
        if let Some(real) = self.real {
            write!(f, ", really {real}")?;
        }
        write_counts(f, self.refused, self.spills)?;
        if self.overshot > 0 {
            write!(f, ", overshot {}", self.overshot)?;
        }
        if self.kept > 0 {
            write!(f, ", kept for its sorts {}", Bytes(self.kept))?;
        }
        if self.tries > 1 {
            write!(f, ", try {}", self.tries)?;
        }
        for operator in &self.operators {
            write!(f, "\n  {operator}")?;
        }
        for leftover in &self.leftovers {
            write!(f, "\n  {leftover}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "left behind: {}", Bytes(self.bytes))?;
        if !self.operator.is_empty() {
            write!(f, " in {}", printable(&self.operator))?;
        }
        if self.consumers.is_empty() {
            return f.write_str(", and no consumer is registered");
        }
        let consumers = self.consumers.join(", ");
        let seconds = self.age.as_secs_f64();
        write!(f, ", by {}, for {seconds:.3} s", printable(&consumers))
    }
}

impl fmt::Display for OperatorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spilling = if self.can_spill { "can" } else { "cannot" };
        let plural = if self.consumers == 1 { "" } else { "s" };
        write!(
            f,
            "{}: {}, peak {}, {} consumer{plural}, {spilling} spill",
            printable(&self.name),
            Bytes(self.reserved),
            Bytes(self.peak),
            self.consumers,
        )?;
        write_counts(f, self.refused, self.spills)
    }
}

fn write_counts(f: &mut fmt::Formatter<'_>, refused: u64, spills: u64) -> fmt::Result {
    if refused > 0 {
        write!(f, ", refused {refused}")?;
    }
    if spills > 0 {
        write!(f, ", spilled {spills}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_read_well() {
        let sort = OperatorReport {
            name: "ExternalSorter".into(),
            consumers: 4,
            can_spill: true,
            reserved: 0,
            peak: 96 << 20,
            refused: 3,
            spills: 2,
        };
        let join = OperatorReport {
            name: "HashJoinInput".into(),
            consumers: 1,
            can_spill: false,
            reserved: 1 << 10,
            peak: 2 << 20,
            refused: 0,
            spills: 0,
        };
        let query = QueryReport {
            path: "/tenant/query".into(),
            reserved: 1 << 10,
            peak: 98 << 20,
            refused: 3,
            overshot: 1,
            spills: 2,
            kept: 3,
            elapsed: Duration::from_millis(1500),
            tries: 2,
            operators: vec![sort, join],
            refused_by: None,
            last_refusal: None,
            #[cfg(feature = "real-bytes")]
            real: Some(crate::RealReport {
                held: 3 << 20,
                peak: 1 << 30,
                above_limit: 24 << 20,
            }),
            leftovers: vec![
                Leftover {
                    operator: "HashJoinInput".into(),
                    bytes: 1 << 10,
                    consumers: vec!["HashJoinInput#7".into()],
                    age: Duration::from_millis(20),
                },
                Leftover {
                    operator: String::new(),
                    bytes: 2,
                    consumers: Vec::new(),
                    age: Duration::ZERO,
                },
            ],
        };
        let real = match cfg!(feature = "real-bytes") {
            true => ", really held 3.00 MiB, peak 1.00 GiB, held 24.0 MiB above its limit",
            false => "",
        };
        let expected = format!(
            "\
/tenant/query: 1.00 KiB, peak 98.0 MiB, 1.500 s{real}, refused 3, spilled 2, overshot 1, kept for its sorts 3 B, try 2
  ExternalSorter: 0 B, peak 96.0 MiB, 4 consumers, can spill, refused 3, spilled 2
  HashJoinInput: 1.00 KiB, peak 2.00 MiB, 1 consumer, cannot spill
  left behind: 1.00 KiB in HashJoinInput, by HashJoinInput#7, for 0.020 s
  left behind: 2 B, and no consumer is registered"
        );
        assert_eq!(query.to_string(), expected);
    }
}
