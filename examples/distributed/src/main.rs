//! DataFusion on three workers, with the same limits and reports for tenants on each. Tenant A asks for more than it may have; how long do
//! tenant B's queries take meanwhile?
//!
//! Limits are per worker: each worker has a memory with a group for each tenant. A header of the query carries the path of its group to all
//! workers (datafusion-distributed's passthrough headers), and the pools of a query's parts on one worker are the same.
//!
//! `cargo run --release`, or `cargo run --release -- --processes`, in this directory.

#![forbid(unsafe_code)]

/// Prints a line. A reader that has gone away, as after `| head`, is no error.
macro_rules! println {
    ($($line:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

mod cluster;
mod worker;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bursar::Bytes;
use bursar_tpch::Tables;
use clap::{Parser, Subcommand};
use comfy_table::{CellAlignment, Table, presets};
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use datafusion_distributed::{DistributedExt, SessionStateBuilderExt, WorkerResolver};
use http::{HeaderMap, HeaderValue};
use url::Url;

use cluster::{Cluster, WORKERS};
use worker::{Kind, PATH, Row, TENANTS, WORKER_MAX};

/// A row for each order: as many groups as orders.
const BIG: &str = "SELECT l_orderkey, count(*), sum(l_quantity), max(l_comment) FROM lineitem GROUP BY l_orderkey ORDER BY 3 DESC, 1 LIMIT 5";
/// A row for each supplier.
const SMALL: &str = "SELECT l_suppkey, sum(l_extendedprice) FROM lineitem GROUP BY l_suppkey ORDER BY 2 DESC, 1 LIMIT 5";
/// Queries of tenant A at a time.
const AT_ONCE: usize = 6;
/// Longer than any of these queries takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs two tenants' queries on three workers, under DataFusion's greedy pool and under Bursar
#[derive(Parser)]
struct Cli {
    /// Run each worker as a process of its own, and kill one at the end
    #[arg(long)]
    processes: bool,
    /// Scale of TPC-H's tables
    #[arg(long, default_value_t = 0.2)]
    scale: f64,
    /// Seconds of load for each pool
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Subcommand)]
enum Role {
    /// A worker's process
    #[command(hide = true)]
    Worker { name: String, kind: Kind },
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    let cli = Cli::parse();
    if let Some(Role::Worker { name, kind }) = cli.role {
        return cluster::work(&name, kind).await;
    }
    let directory = tempfile::tempdir()?;
    write_tables(cli.scale, directory.path()).await?;
    let [(a, a_max), (b, b_max)] = TENANTS;
    println!(
        "{} workers{}, each with {}; {a} may have {} on each, {b} {}. Limits are per worker.\nFor {} s {a} runs {AT_ONCE} queries at a time \
         that need more, and {b} one after the other that need little.\n",
        WORKERS.len(),
        if cli.processes {
            " in processes of their own"
        } else {
            " in one process"
        },
        Bytes(WORKER_MAX),
        Bytes(a_max),
        Bytes(b_max),
        cli.seconds,
    );
    let mut tenants = table(
        [
            "pool",
            "tenant B: done",
            "failed",
            "p50, ms",
            "p99, ms",
            "tenant A: done",
            "failed",
        ],
        1,
    );
    let mut bursar_rows = Vec::new();
    for kind in [Kind::Greedy, Kind::Bursar] {
        let mut cluster = Cluster::start(kind, cli.processes).await?;
        let load = load(
            &cluster.urls(),
            directory.path(),
            Duration::from_secs(cli.seconds),
        )
        .await;
        let mut times = load.times;
        times.sort();
        let at = |percent: usize| times.get(times.len().saturating_sub(1) * percent / 100);
        let ms =
            |percent| at(percent).map_or_else(String::new, |time| time.as_millis().to_string());
        tenants.add_row([
            format!("{kind:?}").to_lowercase(),
            times.len().to_string(),
            load.failed[1].to_string(),
            ms(50),
            ms(99),
            load.done.to_string(),
            load.failed[0].to_string(),
        ]);
        if let Some(error) = load.error {
            println!(
                "under {kind:?}, {b}'s first failure: {}\n",
                first_line(&error)
            );
        }
        if kind == Kind::Bursar {
            stranger(&cluster.urls(), directory.path()).await?;
            kill(&mut cluster, directory.path()).await?;
        }
        let (rows, left) = cluster.end().await?;
        if left > 0 {
            return Err(format!("{left} bytes are still reserved on the workers").into());
        }
        bursar_rows.extend(rows);
    }
    println!(
        "{}\n\n{}\n",
        tenants.trim_fmt(),
        queries(&bursar_rows).trim_fmt()
    );
    println!("after the last query: 0 bytes reserved on the workers that live");
    Ok(())
}

fn table<const COLUMNS: usize>(header: [&str; COLUMNS], numbers_from: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(numbers_from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn first_line(error: &str) -> &str {
    error.lines().next().unwrap_or_default()
}

/// Writes the lines of orders as Parquet, a file for each worker.
async fn write_tables(scale: f64, to: &Path) -> std::result::Result<(), Box<dyn Error>> {
    let tables = Tables::generate(scale, WORKERS.len(), |_| ())?;
    let session =
        SessionContext::new_with_config(SessionConfig::new().with_target_partitions(WORKERS.len()));
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

struct Workers(Vec<Url>);

impl WorkerResolver for Workers {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.clone())
    }
}

/// Runs a query on the workers, for the group at a path.
async fn run(workers: &[Url], tables: &Path, path: &str, sql: &str) -> Result<usize> {
    let mut headers = HeaderMap::new();
    let value =
        HeaderValue::from_str(path).map_err(|error| DataFusionError::External(Box::new(error)))?;
    headers.insert(PATH, value);
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(SessionConfig::new().with_target_partitions(WORKERS.len()))
        .with_distributed_worker_resolver(Workers(workers.to_vec()))
        .with_distributed_planner()
        .with_distributed_passthrough_headers(headers)?
        // The tables are small: as many tasks as there are workers.
        .with_distributed_file_scan_config_bytes_per_partition(1)?
        .build();
    let session = SessionContext::from(state);
    let lines = tables.join("lineitem");
    session
        .register_parquet(
            "lineitem",
            lines.to_string_lossy(),
            ParquetReadOptions::default(),
        )
        .await?;
    let query = async { session.sql(sql).await?.collect().await };
    let late = |_| DataFusionError::Execution(format!("no end in {PATIENCE:?}"));
    let batches = tokio::time::timeout(PATIENCE, query)
        .await
        .map_err(late)??;
    Ok(batches.iter().map(|batch| batch.num_rows()).sum())
}

/// The outcome of a load: tenant A's queries and failures of both; times of tenant B's, and its first error.
#[derive(Default)]
struct Load {
    done: usize,
    failed: [usize; 2],
    times: Vec<Duration>,
    error: Option<String>,
}

async fn load(workers: &[Url], tables: &Path, time: Duration) -> Load {
    let is_over = Arc::new(AtomicBool::new(false));
    let number = Arc::new(AtomicUsize::new(0));
    let mut tenant_a = tokio::task::JoinSet::new();
    for _ in 0..AT_ONCE {
        let (workers, tables) = (workers.to_vec(), tables.to_path_buf());
        let (is_over, number) = (is_over.clone(), number.clone());
        tenant_a.spawn(async move {
            let mut outcomes = [0, 0];
            // Relaxed, here and below: one look more or less.
            while !is_over.load(Ordering::Relaxed) {
                let path = format!(
                    "{}/big-{}",
                    TENANTS[0].0,
                    number.fetch_add(1, Ordering::Relaxed)
                );
                let is_done = run(&workers, &tables, &path, BIG).await.is_ok();
                outcomes[usize::from(!is_done)] += 1;
            }
            outcomes
        });
    }
    let mut load = Load::default();
    let begin = Instant::now();
    let mut number = 0;
    while begin.elapsed() < time {
        let path = format!("{}/small-{number}", TENANTS[1].0);
        number += 1;
        let start = Instant::now();
        match run(workers, tables, &path, SMALL).await {
            Ok(_) => load.times.push(start.elapsed()),
            Err(error) => {
                load.failed[1] += 1;
                load.error.get_or_insert(error.to_string());
            }
        }
    }
    is_over.store(true, Ordering::Relaxed);
    for [done, failed] in tenant_a.join_all().await {
        load.done += done;
        load.failed[0] += failed;
    }
    load
}

/// A path of nobody's: each worker refuses it.
async fn stranger(workers: &[Url], tables: &Path) -> std::result::Result<(), Box<dyn Error>> {
    for path in ["nobody/query", "tenant-a/../tenant-b", "tenant-a"] {
        match run(workers, tables, path, SMALL).await {
            Ok(_) => return Err(format!("the path {path} was taken").into()),
            Err(error) => println!("path {path:?}: {}", first_line(&error.to_string())),
        }
    }
    println!();
    Ok(())
}

/// Kills a worker while tenant A's queries run.
async fn kill(cluster: &mut Cluster, tables: &Path) -> std::result::Result<(), Box<dyn Error>> {
    let mut queries = tokio::task::JoinSet::new();
    for number in 0..AT_ONCE {
        let (urls, tables) = (cluster.urls(), tables.to_path_buf());
        queries.spawn(async move {
            let path = format!("{}/killed-{number}", TENANTS[0].0);
            run(&urls, &tables, &path, BIG).await
        });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let is_killed = cluster.kill_last().await?;
    let mut errors = Vec::new();
    for outcome in queries.join_all().await {
        errors.extend(outcome.err().map(|error| error.to_string()));
    }
    if let Some(error) = errors.first().filter(|_| is_killed) {
        let failed = errors.len();
        println!(
            "a worker killed: {failed} of {AT_ONCE} queries failed, the first with: {}",
            first_line(error)
        );
    }
    if is_killed {
        let done = after(&cluster.urls(), tables).await?;
        println!(
            "{} on the {} workers that live: {done} queries\n",
            TENANTS[1].0,
            WORKERS.len() - 1
        );
    }
    Ok(())
}

/// Tenant B's queries for a second. A worker frees what a failed query left there when it is called next, and not each time.
async fn after(workers: &[Url], tables: &Path) -> Result<usize> {
    let begin = Instant::now();
    let mut done = 0;
    while begin.elapsed() < Duration::from_secs(1) {
        let path = format!("{}/after-{done}", TENANTS[1].0);
        run(workers, tables, &path, SMALL).await?;
        done += 1;
    }
    Ok(done)
}

/// A row for each worker, tenant and kind of query.
fn queries(rows: &[Row]) -> Table {
    let mut kinds: BTreeMap<(String, String, String), (usize, Row)> = BTreeMap::new();
    for row in rows {
        let names = row.path.trim_start_matches('/');
        let (tenant, query) = names.split_once('/').unwrap_or((names, ""));
        let kind = query.split('-').next().unwrap_or(query);
        let key = (row.worker.clone(), tenant.to_owned(), kind.to_owned());
        let (count, sum) = kinds.entry(key).or_default();
        *count += 1;
        sum.peak = sum.peak.max(row.peak);
        sum.spills += row.spills;
        sum.refused += row.refused;
    }
    let mut table = table(
        [
            "worker",
            "tenant",
            "query",
            "parts",
            "peak of one",
            "spilled",
            "refused",
        ],
        3,
    );
    for ((worker, tenant, query), (count, sum)) in kinds {
        table.add_row([
            worker,
            tenant,
            query,
            count.to_string(),
            Bytes(sum.peak).to_string(),
            sum.spills.to_string(),
            sum.refused.to_string(),
        ]);
    }
    table
}
