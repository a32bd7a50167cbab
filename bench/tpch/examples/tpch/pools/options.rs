//! The command line.

use std::fmt;
use std::str::FromStr;

use bursar::Bytes;
use bursar_tpch::{QUERIES, Query, named};
use clap::{Args, ValueEnum};

use super::contender::Pool;
use crate::Partitions;

const EXAMPLES: &str = "\
Examples:
  tpch pools                                     22 queries at scale 1, ten pairs, no limit and 2 GiB
  tpch pools --scale 0.05 --pairs 3              a quick look
  tpch pools --pools ours,greedy,fair,tracked    beside more pools
  tpch pools --pools sharing,fair --memory 512MiB --queries lines_by_price,lines_per_order
  tpch pools --memory 512MiB --queries q1,q18 -f json > pairs.json";

/// Runs TPC-H's queries on a Bursar group as the memory pool and on DataFusion's own pools, by turns, and says how the times
/// compare.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Scale of the tables; 1 is about six million order lines, and about 2.5 GiB of memory
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// Pairs: how often each pool runs all queries
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(2..))]
    pub pairs: u16,
    /// Pools; the first is compared with each of the others
    #[arg(long, value_delimiter = ',', default_value = "ours,greedy,fair")]
    pub pools: Vec<Pool>,
    /// Limits, one after the other: `none`, or bytes such as 2GiB, 512MiB
    #[arg(long, value_delimiter = ',', default_value = "none,2GiB")]
    pub memory: Vec<Memory>,
    /// Queries; all 22 if none are named
    #[arg(long, value_delimiter = ',')]
    queries: Vec<String>,
    #[command(flatten)]
    pub partitions: Partitions,
    /// Seed of the order of turns and of the intervals
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Adds a table of queries
    #[arg(long)]
    pub per_query: bool,
    /// Form of the result
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

/// Form of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
}

impl Options {
    /// The queries asked for, each once, in the order of TPC-H.
    pub fn queries(&self) -> Result<Vec<Query>, String> {
        if self.queries.is_empty() {
            return Ok(QUERIES.to_vec());
        }
        self.queries
            .iter()
            .map(|name| {
                named(name).ok_or_else(|| {
                    format!(
                        "there is no query {name:?}: q1 to q22, lines_by_price, lines_per_order"
                    )
                })
            })
            .collect()
    }
}

/// A limit for all that a pool holds, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(pub Option<u64>);

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let unit: u64 = match &text[digits..] {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Err("neither `none` nor a number with B, KiB, MiB or GiB".into()),
        };
        let number: u64 = text[..digits].parse().map_err(|_| "no number of bytes")?;
        let bytes = number.checked_mul(unit).filter(|bytes| *bytes < 1 << 56);
        Ok(Self(Some(bytes.ok_or("more than any machine has")?)))
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("no limit"),
            Some(bytes) => write!(f, "a limit of {}", Bytes(bytes)),
        }
    }
}
