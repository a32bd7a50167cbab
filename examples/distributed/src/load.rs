//! The load: two tenants, their limits and queries, and what becomes of them.

use std::error::Error;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bursar::{Freshness, HighPolicy, Limits, Memory};
use bursar_tpch::Tables;
use comfy_table::{CellAlignment, Table, presets};
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};

/// The memory of a worker, bytes, and the part of it that a tenant may have.
pub const WORKER_MAX: u64 = 48 << 20;
pub const TENANTS: [(&str, u64); 2] = [("tenant-a", 24 << 20), ("tenant-b", 8 << 20)];
/// The query of each tenant. A: a row for each order, so as many groups as orders. B: a row for each supplier.
pub const QUERIES: [&str; 2] = [
    "SELECT l_orderkey, count(*), sum(l_quantity), max(l_comment) FROM lineitem GROUP BY l_orderkey ORDER BY 3 DESC, 1 LIMIT 5",
    "SELECT l_suppkey, sum(l_extendedprice) FROM lineitem GROUP BY l_suppkey ORDER BY 2 DESC, 1 LIMIT 5",
];
/// Queries of tenant A at a time.
pub const AT_ONCE: usize = 6;
/// Longer than any of these queries takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than the tasks of a query that has ended take to return its bytes.
pub const SETTLE: Duration = Duration::from_secs(10);

/// Files of the table, one for each worker.
pub const FILES: usize = 3;

/// Columns of the table.
pub const COLUMNS: [&str; 8] = [
    "pool",
    "A: done",
    "failed",
    "again",
    "B: done",
    "failed",
    "p50, ms",
    "slowest, ms",
];

/// Writes the lines of orders as Parquet, several files.
pub async fn write_tables(scale: f64, to: &Path) -> std::result::Result<(), Box<dyn Error>> {
    let tables = Tables::generate(scale, FILES, |_| ())?;
    let session =
        SessionContext::new_with_config(SessionConfig::new().with_target_partitions(FILES));
    tables.register(&session)?;
    let path = to.join("lineitem");
    let path = path
        .to_str()
        .ok_or("the temporary directory's name is no text")?;
    let lines = session.table("lineitem").await?;
    lines
        .write_parquet(path, DataFrameWriteOptions::new(), None)
        .await?;
    Ok(())
}

/// Runs a query on the tables, as its session says, and collects its rows.
pub async fn collect(session: &SessionContext, tables: &Path, sql: &str) -> Result<()> {
    let lines = tables.join("lineitem");
    session
        .register_parquet(
            "lineitem",
            lines.to_string_lossy(),
            ParquetReadOptions::default(),
        )
        .await?;
    let rows = async { session.sql(sql).await?.collect().await };
    let late = |_| DataFusionError::Execution(format!("no end in {PATIENCE:?}"));
    tokio::time::timeout(PATIENCE, rows).await.map_err(late)??;
    Ok(())
}

/// The memory of a worker, with a group for each tenant.
pub fn memory_of_tenants(are_limited: bool) -> std::result::Result<Memory, Box<dyn Error>> {
    let builder = Memory::builder().max(WORKER_MAX);
    let memory = builder.high_policy(HighPolicy::Owe).build()?;
    for (tenant, max) in TENANTS {
        let limits = match are_limited {
            true => Limits::max(max),
            false => Limits::none(),
        };
        // A group lives as long as a handle, and this one until [`settle`] closes it.
        std::mem::forget(memory.root().child(tenant, limits)?);
    }
    Ok(memory)
}

/// Closes the tenants' groups, and waits until their bytes are back. Returns those that are not.
pub async fn settle(memory: &Memory) -> u64 {
    for tenant in memory.root().children() {
        tenant.close().expect("it is not the root");
        // Late or not, the bytes that are left tell.
        let _ = tokio::time::timeout(SETTLE, tenant.emptied()).await;
    }
    let reading = memory.root().read(Freshness::Exact);
    reading.map_or(0, |reading| reading.usage_bytes())
}

/// The outcome of a load: tenant A's queries, failures of both; times of tenant B's queries; the first error.
#[derive(Default)]
pub struct Load {
    pub done: usize,
    pub failed: [usize; 2],
    /// Queries that ran more than once.
    pub again: usize,
    /// Sorted.
    pub times: Vec<Duration>,
    pub error: Option<String>,
}

impl Load {
    fn ms(&self, percent: usize) -> u128 {
        let at = rank(self.times.len(), percent);
        self.times.get(at).map_or(0, Duration::as_millis)
    }

    fn note<T, E: Display>(&mut self, tenant: usize, outcome: &std::result::Result<T, E>) {
        if let Err(error) = outcome {
            self.failed[tenant] += 1;
            self.error
                .get_or_insert_with(|| format!("{}: {error}", TENANTS[tenant].0));
        }
    }
}

/// Runs the queries of both tenants for a time, which ends with a query of tenant B. A query of tenant A that ends later does not
/// count. `query` runs one of a tenant, and returns its tries.
pub async fn load<F, R>(query: F, time: Duration) -> Load
where
    F: Fn(usize) -> R + Clone + Send + 'static,
    R: Future<Output = Result<usize>> + Send,
{
    let is_over = Arc::new(AtomicBool::new(false));
    let mut tenant_a = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let (query, is_over) = (query.clone(), is_over.clone());
        tenant_a.spawn(async move {
            let mut load = Load::default();
            // Relaxed, here and below: one look more or less.
            while !is_over.load(Ordering::Relaxed) {
                let outcome = query(0).await;
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                load.note(0, &outcome);
                if let Ok(tries) = outcome {
                    load.done += 1;
                    load.again += usize::from(tries > 1);
                }
            }
            load
        });
    }
    let mut load = Load::default();
    let begin = Instant::now();
    while begin.elapsed() < time {
        let start = Instant::now();
        let outcome = query(1).await;
        load.note(1, &outcome);
        if outcome.is_ok() {
            load.times.push(start.elapsed());
        }
    }
    is_over.store(true, Ordering::Relaxed);
    for of_one in tenant_a.join_all().await {
        load.done += of_one.done;
        load.failed[0] += of_one.failed[0];
        load.again += of_one.again;
        load.error = load.error.or(of_one.error);
    }
    load.times.sort();
    load
}

/// Index of a percentile in sorted numbers: that of the smallest one that is no less than this share of all.
fn rank(count: usize, percent: usize) -> usize {
    (count * percent).div_ceil(100).max(1) - 1
}

/// Median of sorted numbers: of an even count, the mean of the two middle ones.
fn median(sorted: &[u128]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        count => (sorted[(count - 1) / 2] + sorted[count / 2]) as f64 / 2.0,
    }
}

/// The figures of a pool's runs: a median, and the range of several runs.
pub fn row(name: String, loads: &[Load]) -> [String; COLUMNS.len()] {
    let of = |figure: &dyn Fn(&Load) -> u128| {
        let mut figures: Vec<u128> = loads.iter().map(figure).collect();
        figures.sort_unstable();
        let median = median(&figures);
        match (figures.first(), figures.last()) {
            (Some(least), Some(most)) if figures.len() > 1 => format!("{median} ({least}-{most})"),
            _ => median.to_string(),
        }
    };
    [
        name,
        of(&|load| load.done as u128),
        of(&|load| load.failed[0] as u128),
        of(&|load| load.again as u128),
        of(&|load| load.times.len() as u128),
        of(&|load| load.failed[1] as u128),
        of(&|load| load.ms(50)),
        // Too few queries for a 99th percentile.
        of(&|load| load.ms(100)),
    ]
}

pub fn table<const COLUMNS: usize>(header: [&str; COLUMNS], numbers_from: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(numbers_from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

pub fn first_line(error: &str) -> &str {
    error.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_nearest() {
        for (count, percent, expected) in [
            (0, 99, 0),
            (1, 50, 0),
            (20, 50, 9),
            (21, 50, 10),
            (21, 99, 20),
            (21, 100, 20),
            (100, 99, 98),
            (101, 99, 99),
            (200, 99, 197),
        ] {
            assert_eq!(rank(count, percent), expected, "{count} {percent}");
        }
    }

    #[test]
    fn the_median_of_an_even_count_is_between_the_middle_ones() {
        let cases: [(&[u128], f64); 5] = [
            (&[], 0.0),
            (&[7], 7.0),
            (&[1, 4], 2.5),
            (&[1, 2, 9], 2.0),
            (&[1, 2, 4, 9], 3.0),
        ];
        for (sorted, expected) in cases {
            assert_eq!(median(sorted), expected, "{sorted:?}");
        }
    }
}
