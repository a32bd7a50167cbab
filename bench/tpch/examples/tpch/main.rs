//! TPC-H's queries with groups as DataFusion's memory pools: beside DataFusion's own pools, alone and under overload.
//!
//! `cargo run --release -p bursar-tpch --example tpch -- --help`
//!
//! | file | content |
//! |---|---|
//! | `pools/` | a comparison of pools, in pairs of runs |
//! | `overload/` | more queries at a time than there is memory for; `contender.rs` has the lines that an engine needs |
//! | `files.rs` | the tables as Parquet files |
//! | `held.rs` | bytes reserved and bytes really taken, by query |
//! | `output.rs` | standard output, whose reader may go away, and tables |

mod files;
mod held;
mod output;
mod overload;
mod pools;

use std::alloc::System;
use std::process::ExitCode;
use std::sync::LazyLock;

use bursar_alloc::Charged;
use bursar_datafusion::{InstallError, RealBytes};
use clap::{Args, Parser};

use output::Stopped;

/// Counts what queries really take. Allocations in no group, such as those of other pools, pass through it.
#[global_allocator]
static HEAP: Charged<System> = Charged::new(System);

/// A process has one.
static REAL: LazyLock<Result<RealBytes, InstallError>> = LazyLock::new(RealBytes::install);

fn real_bytes() -> Result<RealBytes, InstallError> {
    REAL.clone()
}

/// Runs TPC-H's queries on memory pools that are groups
#[derive(Parser)]
#[command(name = "tpch")]
enum Cli {
    Pools(pools::Options),
    Overload(overload::Options),
    Held(held::Options),
}

/// Partitions of a query.
#[derive(Debug, Args)]
struct Partitions {
    /// Partitions of tables and plans, and threads; as many as CPUs if not given
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    partitions: Option<u16>,
}

impl Partitions {
    fn count(&self) -> usize {
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
        self.partitions.map_or_else(cpus, usize::from)
    }

    /// A runtime with as many threads as partitions, so that both say how parallel a query is.
    fn runtime(&self) -> std::io::Result<tokio::runtime::Runtime> {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.count())
            .enable_time()
            .build()
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse() {
        Cli::Pools(options) => pools::compare(&options),
        Cli::Overload(options) => overload::show(&options),
        Cli::Held(options) => held::show(&options),
    };
    match done {
        // A reader that went away (`| head`) has what it wanted.
        Ok(()) | Err(Stopped::NoReader) => ExitCode::SUCCESS,
        Err(Stopped::Interrupted) => ExitCode::from(130),
        Err(Stopped::Failed(failure)) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
