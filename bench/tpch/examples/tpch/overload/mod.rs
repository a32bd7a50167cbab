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
use bursar_tpch::Tables;
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
    let progress = bar("pools", options.pools.len() + 1);
    // Queries run alone before and after each pool: the speed of a machine changes within minutes.
    let mut passes = vec![alone(&tables, &texts, options).await?];
    let mut all = Vec::new();
    let mut peak = None;
    if options.memory.is_none() {
        let (unlimited, group) = Contender::unlimited(&tables, options)?;
        let finished = load::run(unlimited, &texts, options).await?;
        all.push((None, finished, None));
        passes.push(alone(&tables, &texts, options).await?);
        peak = Some(group.peak());
    }
    progress.inc(1);
    let memory = options.memory.or(peak.map(|peak| peak / 4)).unwrap_or(0);
    for pool in &options.pools {
        let contender = Contender::new(*pool, memory, &tables, options)?;
        let arbiter = contender.arbiter();
        let finished = load::run(contender, &texts, options)
            .await
            .map_err(|error| format!("{}: {error}", pool.name()))?;
        let counts = arbiter.map(|arbiter| arbiter.counts());
        all.push((Some(*pool), finished, counts));
        passes.push(alone(&tables, &texts, options).await?);
        progress.inc(1);
    }
    progress.finish_and_clear();
    let alone = passes
        .iter()
        .skip(1)
        .fold(passes[0].clone(), |least, pass| {
            let both = least.iter().zip(pass);
            both.map(|(one, other)| one.min(*other)).collect()
        });
    let rows = all.iter().zip(passes.windows(2));
    let rows = rows.map(|((pool, finished, counts), passes)| {
        let beside = [0, 1].map(|at| passes[at].iter().sum());
        let seconds = options.time().as_secs_f64();
        Row::new(*pool, finished, &alone, beside, seconds).with_counts(counts.as_ref())
    });
    let rows = rows.collect();
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

/// Seconds of each query alone, without a limit.
async fn alone(tables: &Tables, texts: &[String], options: &Options) -> Result<Vec<f64>, Failure> {
    let (unlimited, _) = Contender::unlimited(tables, options)?;
    load::alone(&unlimited, texts).await
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
            "tenant engine, estimates / 10",
        ];
        for (row, name) in rows.iter().zip(names) {
            assert!(row.trim_start().starts_with(name), "{text}");
        }
        let json = serde_json::to_value(&document).unwrap();
        assert_eq!(json["pools"].as_array().unwrap().len(), 7);
        let bytes = |key: &str| json[key].as_u64().unwrap();
        assert_eq!(bytes("memory_bytes"), bytes("peak_bytes") / 4);
    }
}
