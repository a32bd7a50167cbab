//! Turns: in every round each pool runs each query once.
//!
//! The pools take turns query by query, in an order drawn anew for each, so that a slow second of the machine, a warm cache or a
//! change of clock frequency hits all alike. A pair is one round's totals of two pools.

use bursar_rig::random::Random;
use bursar_tpch::{Query, Spilled, Tables};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tokio::runtime::Runtime;

use super::contender::Contender;
use super::options::{Memory, Options};
use crate::output::Failure;

/// Results of all pools under one limit.
pub struct Run {
    pub memory: Memory,
    pub pools: Vec<&'static str>,
    /// The queries that all pools ran.
    pub queries: Vec<QueryTimes>,
    /// Queries that some pool could not run. They count nowhere.
    pub failed: Vec<Failed>,
}

/// The times of one query.
pub struct QueryTimes {
    pub name: &'static str,
    /// Seconds by pool, then by round.
    pub seconds: Vec<Vec<f64>>,
    /// The most that was spilled in a round, by pool.
    pub spilled: Vec<Spilled>,
}

/// A query that did not run.
#[derive(Serialize)]
pub struct Failed {
    pub query: &'static str,
    pub pool: &'static str,
    pub error: String,
}

/// A warm-up, which also finds the queries that need more than there is, and the rounds.
pub fn run(
    engine: &Runtime,
    tables: &Tables,
    queries: &[Query],
    memory: Memory,
    options: &Options,
) -> Result<Run, Failure> {
    let partitions = options.partitions.count();
    let contenders: Vec<Contender> = options
        .pools
        .iter()
        .map(|pool| Contender::new(*pool, memory))
        .collect::<Result<_, _>>()?;
    let mut times: Vec<QueryTimes> = queries
        .iter()
        .map(|query| QueryTimes {
            name: query.name,
            seconds: vec![Vec::new(); contenders.len()],
            spilled: vec![Spilled::default(); contenders.len()],
        })
        .collect();
    let mut failed: Vec<Failed> = Vec::new();
    let mut random = Random::new(options.seed);
    let rounds = usize::from(options.pairs);
    let bar = bar(
        &format!("queries with {memory}"),
        (rounds + 1) * queries.len() * contenders.len(),
    );
    for round in 0..=rounds {
        for (query, times) in queries.iter().zip(&mut times) {
            let sql = query.sql(tables.scale());
            for turn in shuffled(contenders.len(), &mut random) {
                bar.inc(1);
                if failed.iter().any(|failed| failed.query == query.name) {
                    continue;
                }
                let contender = &contenders[turn];
                let took = engine.block_on(contender.run(tables, &sql, partitions));
                contender.settle()?;
                match took {
                    Ok(took) if round > 0 => {
                        times.seconds[turn].push(took.elapsed.as_secs_f64());
                        let most = &mut times.spilled[turn];
                        if took.spilled.bytes > most.bytes {
                            *most = took.spilled;
                        }
                    }
                    Ok(_) => {}
                    Err(error) => failed.push(Failed {
                        query: query.name,
                        pool: contender.name,
                        error: error.to_string(),
                    }),
                }
            }
        }
    }
    bar.finish_and_clear();
    times.retain(|times| failed.iter().all(|failed| failed.query != times.name));
    Ok(Run {
        memory,
        pools: contenders.iter().map(|contender| contender.name).collect(),
        queries: times,
        failed,
    })
}

impl Run {
    /// Seconds of all queries, by round.
    pub fn totals(&self, pool: usize) -> Vec<f64> {
        let rounds = self
            .queries
            .first()
            .map_or(0, |query| query.seconds[pool].len());
        (0..rounds)
            .map(|round| {
                self.queries
                    .iter()
                    .map(|query| query.seconds[pool][round])
                    .sum()
            })
            .collect()
    }

    /// The first pool's total divided by another's, by round.
    pub fn ratios(&self, rival: usize) -> Vec<f64> {
        let (ours, theirs) = (self.totals(0), self.totals(rival));
        ours.iter()
            .zip(&theirs)
            .map(|(ours, theirs)| ours / theirs)
            .collect()
    }
}

/// The numbers below `count` in a random order (Fisher and Yates).
pub fn shuffled(count: usize, random: &mut Random) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

/// A bar on standard error, if that is a terminal.
pub fn bar(what: &str, steps: usize) -> ProgressBar {
    // Drawn rarely: drawing takes time from the queries that are measured.
    let bar = ProgressBar::with_draw_target(
        Some(steps as u64),
        indicatif::ProgressDrawTarget::stderr_with_hz(2),
    );
    if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:24}] {percent} %, {eta} to go") {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar.tick();
    bar
}
