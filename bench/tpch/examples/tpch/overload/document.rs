//! The printed document.

use std::fmt;

use bursar::Bytes;
use bursar_arbiter::Counts;
use bursar_conditions::Conditions;
use bursar_tpch::{QUERIES, Tables};
use serde::Serialize;

use super::contender::{Ended, Pool};
use super::load::Finished;
use super::options::Options;
use crate::output::{head, table};

/// The result of all pools. Serialises to the document's JSON.
#[derive(Serialize)]
pub struct Document {
    schema: u32,
    kind: &'static str,
    conditions: Conditions,
    scale: f64,
    rows: usize,
    table_bytes: usize,
    partitions: usize,
    tenants: u16,
    streams: u16,
    seconds: f64,
    seed: u64,
    /// `null` if the memory was given.
    peak_bytes: Option<u64>,
    memory_bytes: u64,
    tenant_percent: u64,
    alone: Vec<Alone>,
    pools: Vec<Row>,
}

#[derive(Serialize)]
struct Alone {
    query: &'static str,
    seconds: f64,
}

/// One pool.
#[derive(Serialize)]
pub struct Row {
    pool: &'static str,
    #[serde(skip)]
    is_rival: bool,
    #[serde(skip)]
    is_admitted: bool,
    /// Time of the 22 queries alone, before this pool and after it.
    alone_seconds: [f64; 2],
    /// Sum over the queries that were done of their least time alone.
    work_seconds: f64,
    done: usize,
    /// Refused memory before the first row.
    failed_before_rows: usize,
    failed_after_rows: usize,
    hung: usize,
    /// Done, with more than one try.
    again: usize,
    /// Mean number of those that were done and ran at the same time: their time without waits, over the time of the pool.
    running: f64,
    /// Of the queries that were done: median and 99th percentile.
    query_seconds: [Option<f64>; 2],
    wait_seconds: [Option<f64>; 2],
    /// Of an engine: queries that were asked to give back memory, and that were stopped for others.
    asked: Option<u64>,
    stopped: Option<u64>,
}

impl Row {
    /// The row of a pool; of none for that without a limit.
    pub fn new(
        pool: Option<Pool>,
        finished: &[Finished],
        alone: &[f64],
        beside: [f64; 2],
        seconds: f64,
    ) -> Self {
        let mut row = Self {
            pool: pool.map_or("no limit", Pool::name),
            is_rival: pool.is_some_and(Pool::is_rival),
            is_admitted: pool.is_some_and(|pool| !pool.is_rival()),
            alone_seconds: beside,
            work_seconds: 0.0,
            done: 0,
            failed_before_rows: 0,
            failed_after_rows: 0,
            hung: 0,
            again: 0,
            running: 0.0,
            query_seconds: [None; 2],
            wait_seconds: [None; 2],
            asked: None,
            stopped: None,
        };
        let (mut times, mut waits) = (Vec::new(), Vec::new());
        for query in finished {
            match query.ended {
                Some(Ended::Done { tries, waited }) => {
                    row.done += 1;
                    row.work_seconds += alone[query.query];
                    row.again += usize::from(tries > 1);
                    row.running += query.elapsed.saturating_sub(waited).as_secs_f64() / seconds;
                    times.push(query.elapsed.as_secs_f64());
                    waits.push(waited.as_secs_f64());
                }
                Some(Ended::Refused { had_rows: false }) => row.failed_before_rows += 1,
                Some(Ended::Refused { had_rows: true }) => row.failed_after_rows += 1,
                None => row.hung += 1,
            }
        }
        row.query_seconds = percentiles(times);
        if row.is_admitted {
            row.wait_seconds = percentiles(waits);
        }
        row
    }
}

impl Row {
    /// Notes what the arbiter of an engine decided.
    pub fn with_counts(self, counts: Option<&Counts>) -> Self {
        Self {
            asked: counts.map(|counts| counts.asked),
            stopped: counts.map(|counts| counts.stopped),
            ..self
        }
    }
}

/// The median and the 99th percentile, by the nearest rank.
fn percentiles(mut numbers: Vec<f64>) -> [Option<f64>; 2] {
    numbers.sort_by(f64::total_cmp);
    [50, 99].map(|percent| {
        let rank = (numbers.len() * percent).div_ceil(100);
        numbers.get(rank.saturating_sub(1)).copied()
    })
}

impl Document {
    pub fn new(
        conditions: Conditions,
        options: &Options,
        tables: &Tables,
        alone: &[f64],
        (memory_bytes, peak_bytes): (u64, Option<u64>),
        pools: Vec<Row>,
    ) -> Self {
        let alone = QUERIES.iter().zip(alone);
        Self {
            schema: 1,
            kind: "tpch-overload",
            conditions,
            scale: options.scale,
            rows: tables.rows(),
            table_bytes: tables.bytes(),
            partitions: options.partitions.count(),
            tenants: options.tenants,
            streams: options.streams,
            seconds: options.time().as_secs_f64(),
            seed: options.seed,
            peak_bytes,
            memory_bytes,
            tenant_percent: options.tenant_percent,
            alone: alone
                .map(|(query, &seconds)| Alone {
                    query: query.name,
                    seconds,
                })
                .collect(),
            pools,
        }
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = (self.rows, self.table_bytes);
        head(f, &self.conditions, self.scale, tables, self.partitions)?;
        let alone: f64 = self.alone.iter().map(|query| query.seconds).sum();
        writeln!(
            f,
            "load: {} tenants with {} streams each, {} s for each pool; the 22 queries take {alone:.1} s alone",
            self.tenants, self.streams, self.seconds
        )?;
        write!(f, "memory: {}", Bytes(self.memory_bytes))?;
        if let Some(peak) = self.peak_bytes {
            write!(
                f,
                ", a quarter of the peak of {} without a limit",
                Bytes(peak)
            )?;
        }
        writeln!(
            f,
            "; a tenant of the tenant engine may have {} % of it\n",
            self.tenant_percent
        )?;
        self.fmt_table(f)?;
        writeln!(
            f,
            "\n22 alone: time of the 22 queries one after the other, before this pool and after it; it shows how steady the machine is. work: the sum\n\
             of the least times alone of the queries that were done. best: of DataFusion's own pools. failed: refused memory, before or after the\n\
             first rows. hung: no end in two minutes. again: done with more than one try. at a time: of those that were done, how many\n\
             ran together, by their times without waits. asked, stopped: queries that were asked to give back memory, or stopped, for others.\n\
             Queries that ran at the end count nowhere."
        )
    }
}

impl Document {
    fn fmt_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rivals = self.pools.iter().filter(|row| row.is_rival);
        let best = rivals.map(|row| row.work_seconds).fold(0.0, f64::max);
        let header = [
            "pool",
            "22 alone, s",
            "work, s",
            "% of best",
            "done",
            "failed before",
            "after",
            "hung",
            "again",
            "at a time",
            "time p50, s",
            "p99, s",
            "wait p50, s",
            "p99, s",
            "asked",
            "stopped",
        ];
        let mut table = table(header, 1..16);
        let count = |count: Option<u64>| count.map_or(String::new(), |count| count.to_string());
        let show = |seconds: Option<f64>| seconds.map_or(String::new(), |at| format!("{at:.2}"));
        for row in &self.pools {
            let percent = row.work_seconds / best * 100.0;
            let percent = Some(percent).filter(|percent| percent.is_finite());
            let [time_p50, time_p99] = row.query_seconds.map(show);
            let [wait_p50, wait_p99] = row.wait_seconds.map(show);
            table.add_row([
                row.pool.to_owned(),
                format!("{:.1} {:.1}", row.alone_seconds[0], row.alone_seconds[1]),
                format!("{:.1}", row.work_seconds),
                percent.map_or(String::new(), |percent| format!("{percent:.0}")),
                row.done.to_string(),
                row.failed_before_rows.to_string(),
                row.failed_after_rows.to_string(),
                row.hung.to_string(),
                row.again.to_string(),
                format!("{:.1}", row.running),
                time_p50,
                time_p99,
                wait_p50,
                wait_p99,
                count(row.asked),
                count(row.stopped),
            ]);
        }
        writeln!(f, "{}", table.trim_fmt())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_work_is_that_of_queries_that_were_done() {
        let done = |query, tries, seconds| Finished {
            query,
            elapsed: Duration::from_secs(seconds),
            ended: Some(Ended::Done {
                tries,
                waited: Duration::from_secs(1),
            }),
        };
        let other = |ended| Finished {
            query: 1,
            elapsed: Duration::from_secs(100),
            ended,
        };
        let finished = [
            done(0, 1, 2),
            done(1, 3, 5),
            done(0, 1, 3),
            other(Some(Ended::Refused { had_rows: false })),
            other(Some(Ended::Refused { had_rows: true })),
            other(Some(Ended::Refused { had_rows: true })),
            other(None),
        ];
        let row = Row::new(Some(Pool::Engine), &finished, &[1.0, 10.0], [11.0; 2], 10.0);
        assert_eq!((row.work_seconds, row.done, row.again), (12.0, 3, 1));
        // 1, 4 and 2 of 10 seconds.
        assert!((row.running - 0.7).abs() < 1e-9);
        assert_eq!(
            (row.failed_before_rows, row.failed_after_rows, row.hung),
            (1, 2, 1)
        );
        assert_eq!(row.query_seconds, [Some(3.0), Some(5.0)]);
        assert_eq!(row.wait_seconds, [Some(1.0), Some(1.0)]);
        let greedy = Row::new(Some(Pool::Greedy), &finished[..1], &[1.0], [11.0; 2], 10.0);
        assert_eq!(
            (greedy.query_seconds[1], greedy.wait_seconds[1]),
            (Some(2.0), None)
        );
    }

    #[test]
    fn percentiles_are_numbers_of_the_list() {
        assert_eq!(percentiles(Vec::new()), [None; 2]);
        let numbers = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentiles(numbers), [Some(100.0), Some(198.0)]);
    }
}
