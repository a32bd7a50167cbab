//! The command line.

use clap::Args;

use crate::Partitions;

const EXAMPLES: &str = "\
Examples:
  tpch tenants                       three tenants at scale 0.5
  tpch tenants --scale 1 --tenants 5 more data, and two more tenants like the first
  tpch tenants --rounds 3 > run.txt  a longer run, with pictures of the tree in the file
  tpch tenants 2> /dev/null | less   the same on the screen";

/// Runs TPC-H's queries for several tenants on one DataFusion at the same time. Each tenant is a group with a limit, each query
/// a group below it and a memory pool. Shows the tree of groups while they run, and then what each of them used.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Scale of the tables; 1 is about six million order lines, and about 2.5 GiB of memory
    #[arg(long, default_value_t = 0.5, value_parser = scale)]
    pub scale: f64,
    /// Tenants: the first three differ, further ones are like the first
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(3..=64))]
    pub tenants: u16,
    /// Number of times that each tenant runs its queries
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    #[command(flatten)]
    pub partitions: Partitions,
}

/// A scale at which the limits of the tenants mean what is said of them.
fn scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.05..=100.0).contains(&scale) {
        Ok(scale)
    } else {
        Err("not between 0.05 and 100".into())
    }
}
