//! The printed document.

use std::fmt;

use bursar::Bytes;
use bursar_conditions::{Conditions, median};
use bursar_tpch::Tables;
use serde::Serialize;

use super::interval::Ratio;
use super::options::Options;
use super::rounds::{Failed, Run};
use crate::output::{head, table};

/// The result of all runs. Serialises to the document's JSON.
#[derive(Serialize)]
pub struct Document {
    schema: u32,
    kind: &'static str,
    conditions: Conditions,
    scale: f64,
    rows: usize,
    table_bytes: usize,
    partitions: usize,
    pairs: usize,
    seed: u64,
    runs: Vec<Limited>,
    #[serde(skip)]
    per_query: bool,
}

/// All pools under one limit.
#[derive(Serialize)]
struct Limited {
    /// `null` for none.
    memory_bytes: Option<u64>,
    #[serde(skip)]
    memory: String,
    pools: Vec<PoolTotals>,
    rivals: Vec<Rival>,
    queries: Vec<QueryMedians>,
    failed: Vec<Failed>,
}

#[derive(Serialize)]
struct PoolTotals {
    pool: &'static str,
    /// All queries, one a round.
    total_seconds: Vec<f64>,
    spilled_bytes: usize,
    spilling_queries: usize,
}

/// The first pool beside another: times of the first divided by times of the other.
#[derive(Serialize)]
struct Rival {
    pool: &'static str,
    /// One a pair.
    ratios: Vec<f64>,
    ratio: Option<Ratio>,
}

#[derive(Serialize)]
struct QueryMedians {
    query: &'static str,
    /// Median seconds, by pool.
    median_seconds: Vec<f64>,
    /// The most that a round spilled, by pool.
    spilled_bytes: Vec<usize>,
}

impl Document {
    pub fn new(
        conditions: Conditions,
        options: &Options,
        partitions: usize,
        tables: &Tables,
        runs: Vec<Run>,
    ) -> Self {
        Self {
            schema: 1,
            kind: "tpch-pools",
            conditions,
            scale: options.scale,
            rows: tables.rows(),
            table_bytes: tables.bytes(),
            partitions,
            pairs: usize::from(options.pairs),
            seed: options.seed,
            runs: runs
                .into_iter()
                .map(|run| limited(run, options.seed))
                .collect(),
            per_query: options.per_query,
        }
    }
}

fn limited(run: Run, seed: u64) -> Limited {
    let spilled = |pool: usize| {
        run.queries
            .iter()
            .map(move |query| query.spilled[pool].bytes)
    };
    Limited {
        memory_bytes: run.memory.0,
        memory: run.memory.to_string(),
        pools: (0..run.pools.len())
            .map(|pool| PoolTotals {
                pool: run.pools[pool],
                total_seconds: run.totals(pool),
                spilled_bytes: spilled(pool).sum(),
                spilling_queries: spilled(pool).filter(|bytes| *bytes > 0).count(),
            })
            .collect(),
        rivals: (1..run.pools.len())
            .map(|rival| {
                let ratios = run.ratios(rival);
                Rival {
                    pool: run.pools[rival],
                    ratio: Ratio::of(&ratios, seed),
                    ratios,
                }
            })
            .collect(),
        queries: run
            .queries
            .iter()
            .map(|query| QueryMedians {
                query: query.name,
                median_seconds: query
                    .seconds
                    .iter()
                    .map(|seconds| median(seconds))
                    .collect(),
                spilled_bytes: query.spilled.iter().map(|spilled| spilled.bytes).collect(),
            })
            .collect(),
        failed: run.failed,
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = (self.rows, self.table_bytes);
        head(f, &self.conditions, self.scale, tables, self.partitions)?;
        for run in &self.runs {
            writeln!(f, "\nwith {}, {} pairs:", run.memory, self.pairs)?;
            run.fmt_pools(f)?;
            if self.per_query {
                run.fmt_queries(f)?;
            }
            for failed in &run.failed {
                let Failed { query, pool, error } = failed;
                let first = error.lines().next().unwrap_or_default();
                writeln!(f, "left out: {query}, which failed on {pool}: {first}")?;
            }
        }
        writeln!(
            f,
            "\nseconds: median of all rounds, for all queries together. ratio: mean of the pairs' ratios, with the interval that"
        )?;
        writeln!(
            f,
            "holds it with a probability of 95 % (bootstrap); below 1 the first pool is faster."
        )
    }
}

impl Limited {
    fn fmt_pools(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.pools[0].pool;
        let ratio = format!("{first} / pool");
        let header = ["pool", "seconds", &ratio, "95 %", "spilled", "queries"];
        let mut table = table(header, 1..6);
        for (index, pool) in self.pools.iter().enumerate() {
            let ratio = index
                .checked_sub(1)
                .and_then(|rival| self.rivals[rival].ratio);
            let show = |text: fn(&Ratio) -> String| ratio.as_ref().map_or(String::new(), text);
            table.add_row([
                pool.pool.to_owned(),
                format!("{:.3}", median(&pool.total_seconds)),
                show(|ratio| format!("{:.4}", ratio.mean)),
                show(|ratio| format!("{:.4} to {:.4}", ratio.low, ratio.high)),
                Bytes(pool.spilled_bytes as u64).to_string(),
                format!("{} of {} spill", pool.spilling_queries, self.queries.len()),
            ]);
        }
        writeln!(f, "{}", table.trim_fmt())
    }

    fn fmt_queries(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut header = vec!["query, ms".to_owned()];
        for pool in &self.pools {
            header.extend([pool.pool.to_owned(), "spilled".to_owned()]);
        }
        let numbers = 1..header.len();
        let mut table = table(header, numbers);
        for query in &self.queries {
            let mut row = vec![query.query.to_owned()];
            for (seconds, spilled) in query.median_seconds.iter().zip(&query.spilled_bytes) {
                row.push(format!("{:.2}", seconds * 1e3));
                row.push(Bytes(*spilled as u64).to_string());
            }
            table.add_row(row);
        }
        writeln!(f, "{}", table.trim_fmt())
    }
}
