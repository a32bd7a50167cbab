//! More queries at a time than there is memory for, on several pools.
//!
//! | file | content |
//! |---|---|
//! | `options.rs` | the command line |
//! | `contender.rs` | the pools, and a query on one |
//! | `load.rs` | the streams of queries |
//! | `document.rs` | the printed text |

mod contender;
mod document;
mod load;
mod options;

use std::thread;

use bursar_conditions::Conditions;
use bursar_tpch::{QUERIES, Tables};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tokio::sync::oneshot;

use crate::output::{self, Failure, Stopped};
use crate::pools::options::Format;
use crate::pools::rounds::bar;
use contender::Contender;
use document::{Document, Row};
pub use options::Options;

pub fn show(options: &Options) -> Result<(), Stopped> {
    // Ends the run as its end would, so that no spill file stays.
    let (interrupt, interrupted) = oneshot::channel::<()>();
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().spawn(move || {
        signals.forever().next();
        // An error says that the run has ended already.
        let _ = interrupt.send(());
    })?;
    let document = options.partitions.runtime()?.block_on(async {
        tokio::select! {
            document = measure(options) => Ok(document?),
            Ok(()) = interrupted => Err(Stopped::Interrupted),
        }
    })?;
    output::write(&match options.format {
        Format::Table => document.to_string(),
        Format::Json => serde_json::to_string_pretty(&document)? + "\n",
    })
}

async fn measure(options: &Options) -> Result<Document, Failure> {
    let progress = bar("tables", 1000);
    let tables = Tables::generate(options.scale, options.partitions.count(), |share| {
        progress.set_position((share * 1000.0) as u64);
    })?;
    progress.finish_and_clear();

    let texts = load::texts(&tables);
    let (unlimited, group) = Contender::unlimited(&tables, options)?;
    let progress = bar("queries alone", 2 * QUERIES.len());
    let alone = load::alone(&unlimited, &texts, &progress).await?;
    progress.finish_and_clear();

    let progress = bar("pools", options.pools.len() + 1);
    let mut rows = Vec::new();
    let mut peak = None;
    if options.memory.is_none() {
        let finished = load::run(unlimited, &texts, options).await?;
        rows.push(Row::new(None, &finished, &alone));
        peak = Some(group.peak());
    }
    let memory = options.memory.or(peak.map(|peak| peak / 4)).unwrap_or(0);
    for pool in &options.pools {
        progress.inc(1);
        let contender = Contender::new(*pool, memory, &tables, options)?;
        let finished = load::run(contender, &texts, options)
            .await
            .map_err(|error| format!("{}: {error}", pool.name()))?;
        rows.push(Row::new(Some(*pool), &finished, &alone));
    }
    progress.finish_and_clear();
    let conditions = Conditions::here();
    Ok(Document::new(
        conditions,
        options,
        &tables,
        &alone,
        (memory, peak),
        rows,
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::Cli;

    /// Each pool gives back all that it had, or there is no document.
    #[test]
    fn each_pool_has_a_row() {
        let command = "tpch overload --scale 0.01 --seconds 1 --tenants 2 --streams 2";
        let Cli::Overload(options) = Cli::parse_from(command.split(' ')) else {
            panic!("another command");
        };
        let runtime = options.partitions.runtime().unwrap();
        let document = runtime.block_on(measure(&options)).unwrap();
        let text = document.to_string();
        let rows: Vec<&str> = text
            .lines()
            .skip_while(|line| !line.contains("% of best"))
            .collect();
        let names = [
            "pool",
            "no limit",
            "greedy",
            "fair",
            "fixed parts",
            "tenant engine ",
            "tenant engine without",
        ];
        for (row, name) in rows.iter().zip(names) {
            assert!(row.trim_start().starts_with(name), "{text}");
        }
        let json = serde_json::to_value(&document).unwrap();
        assert_eq!(json["pools"].as_array().unwrap().len(), 6);
        let bytes = |key: &str| json[key].as_u64().unwrap();
        assert_eq!(bytes("memory_bytes"), bytes("peak_bytes") / 4);
    }
}
