//! The command line.

use std::time::Duration;

use clap::Args;

use super::contender::Pool;
use crate::Partitions;
use crate::pools::options::{Format, Memory};

const EXAMPLES: &str = "\
Examples:
  tpch overload                                     at scale 1, a minute for each pool
  tpch overload --scale 0.1 --seconds 10            a quick look
  tpch overload --pools greedy,engine --memory 1GiB two pools, with memory that is known
  tpch overload --seconds 240 -f json > overload.json";

/// Runs more of TPC-H's queries at a time than there is memory for, for the same time on each pool, and says how much work each of
/// the pools has done.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Scale of the tables; 1 is about six million order lines, and about 2.5 GiB of memory
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// Tenants
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub tenants: u16,
    /// Streams of each tenant: each runs one query after the other
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub streams: u16,
    /// Seconds for each pool
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=240))]
    seconds: u16,
    /// Memory of all queries, such as 1GiB; a quarter of the peak without a limit if not given
    #[arg(long, value_parser = bytes)]
    pub memory: Option<u64>,
    /// Part of the memory that a tenant of the tenant engine may have, percent
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub tenant_percent: u64,
    /// Pools
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "greedy,fair,fixed,engine,no-estimates,low-estimates"
    )]
    pub pools: Vec<Pool>,
    #[command(flatten)]
    pub partitions: Partitions,
    /// Seed of the streams' orders
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Form of the result
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

impl Options {
    /// Time for each pool.
    pub fn time(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    /// Streams of all tenants.
    pub fn streams(&self) -> usize {
        usize::from(self.tenants) * usize::from(self.streams)
    }
}

fn bytes(text: &str) -> Result<u64, String> {
    let memory: Memory = text.parse()?;
    let some = memory.0.filter(|bytes| *bytes > 0);
    some.ok_or_else(|| "the memory of an overload has a limit".into())
}
