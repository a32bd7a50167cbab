//! The load: streams that run one query after the other until the time is over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bursar_rig::random::Random;
use bursar_tpch::{QUERIES, Tables};
use tokio::time::{timeout, timeout_at};

use super::contender::{Contender, Ended};
use super::options::Options;
use crate::output::Failure;
use crate::pools::rounds::shuffled;

/// Longest time of a query, and of the wait for the last bytes of a pool, far more than any of these takes: a longer one hangs. In
/// DataFusion 55.2 a refused repartition may do that to its query (apache/datafusion#24883).
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A query that ended in time.
pub struct Finished {
    /// Index of the query.
    pub query: usize,
    /// From its text to its last row, waiting included.
    pub elapsed: Duration,
    /// `None` if it hung.
    pub ended: Option<Ended>,
}

/// Texts of the queries.
pub fn texts(tables: &Tables) -> Arc<[String]> {
    QUERIES
        .iter()
        .map(|query| query.sql(tables.scale()))
        .collect()
}

/// Seconds of each query alone.
#[expect(clippy::disallowed_methods, reason = "this measures the host")]
pub async fn alone(contender: &Contender, texts: &[String]) -> Result<Vec<f64>, Failure> {
    let mut seconds = Vec::new();
    for sql in texts {
        let before = Instant::now();
        contender.query(0, sql).await?;
        seconds.push(before.elapsed().as_secs_f64());
    }
    Ok(seconds)
}

/// Runs all streams for the time of a pool. Queries that run at its end are given up, and count nowhere.
#[expect(clippy::disallowed_methods, reason = "this measures the host")]
pub async fn run(
    contender: Contender,
    texts: &Arc<[String]>,
    options: &Options,
) -> Result<Vec<Finished>, Failure> {
    let contender = Arc::new(contender);
    let end = Instant::now() + options.time();
    let streams: Vec<_> = (0..options.streams())
        .map(|number| {
            let random = Random::fork(options.seed, number as u64);
            tokio::spawn(stream(
                contender.clone(),
                texts.clone(),
                number,
                random,
                end,
            ))
        })
        .collect();
    let mut finished = Vec::new();
    for stream in streams {
        finished.extend(stream.await??);
    }
    contender.settle().await?;
    Ok(finished)
}

#[expect(clippy::disallowed_methods, reason = "this measures the host")]
async fn stream(
    contender: Arc<Contender>,
    texts: Arc<[String]>,
    number: usize,
    mut random: Random,
    end: Instant,
) -> Result<Vec<Finished>, Failure> {
    let mut finished = Vec::new();
    loop {
        for query in shuffled(texts.len(), &mut random) {
            let before = Instant::now();
            let run = timeout(PATIENCE, contender.query(number, &texts[query]));
            let ended = timeout_at(end.into(), run).await;
            let Ok(ended) = ended.map_err(drop).and_then(|ended| {
                // A future that is ready is never late for its timer.
                if Instant::now() < end {
                    Ok(ended)
                } else {
                    Err(())
                }
            }) else {
                return Ok(finished);
            };
            finished.push(Finished {
                query,
                elapsed: before.elapsed(),
                ended: ended.ok().transpose()?,
            });
        }
    }
}
