//! Whether it matters to queries whose memory pool they run on: TPC-H under a group as the pool, and under DataFusion's own.
//!
//! `cargo run --release -p bursar-datafusion --example tpch_pools -- --help`
//!
//! | file | what |
//! |---|---|
//! | `options.rs` | the command line |
//! | `contender.rs` | the pools, and how one query is run and timed on one |
//! | `rounds.rs` | the order of turns, and what they took |
//! | `interval.rs` | means, and how sure they are |
//! | `document.rs` | what is printed |

mod contender;
mod document;
mod interval;
mod options;
mod rounds;

use std::io::{self, Write};
use std::process::ExitCode;

use bursar_conditions::Conditions;
use bursar_tpch::Tables;
use clap::Parser;

use document::Document;
use options::{Format, Options};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match compare(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn compare(options: &Options) -> Result<(), Failure> {
    let queries = options.queries()?;
    let partitions = options.partitions();
    let bar = rounds::bar("tables", 1000);
    let tables = Tables::generate(options.scale, partitions, |share| {
        bar.set_position((share * 1000.0) as u64);
    })?;
    bar.finish_and_clear();

    // As many threads as partitions, so that both say how parallel a query is.
    let engine = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(partitions)
        .enable_time()
        .build()?;
    let mut runs = Vec::new();
    for memory in &options.memory {
        runs.push(rounds::run(&engine, &tables, &queries, *memory, options)?);
    }
    let document = Document::new(Conditions::here(), options, partitions, &tables, runs);
    let text = match options.format {
        Format::Table => document.to_string(),
        Format::Json => serde_json::to_string_pretty(&document)? + "\n",
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // A reader that went away (`| head`) has what it wanted.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
