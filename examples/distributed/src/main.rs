//! DataFusion on three workers, with the same limits and reports for tenants on each. Tenant A asks for more than it may have. The table
//! shows how many of its queries end, and how long tenant B's take meanwhile.
//!
//! Limits are per worker: each worker has a memory with a group for each tenant. A query is admitted once, at the coordinator, for all
//! workers: see `admission.rs`. Headers of the query carry the path of its group and its bytes to all workers (datafusion-distributed's
//! passthrough headers), and the pools of a query's parts on one worker are the same.
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

mod admission;
mod cluster;
mod load;
mod worker;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bursar::Bytes;
use clap::{Parser, Subcommand, ValueEnum};
use comfy_table::Table;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{DistributedExt, SessionStateBuilderExt, WorkerResolver};
use http::{HeaderMap, HeaderValue};
use url::Url;

use admission::{Coordinator, Part};
use cluster::{Cluster, WORKERS};
use load::{
    AT_ONCE, COLUMNS, Load, QUERIES, TENANTS, WORKER_MAX, collect, first_line, load, row, table,
    write_tables,
};
use worker::{GRANTED, Kind, PART, PATH, Row};

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
    /// Runs of each pool, in turn
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Subcommand)]
enum Role {
    /// A worker's process
    #[command(hide = true)]
    Worker { name: String, kind: Kind },
}

/// Pools that are compared.
const COMPARED: [Kind; 5] = [
    Kind::Greedy,
    Kind::FairSpill,
    Kind::Fixed,
    Kind::Limits,
    Kind::Bursar,
];
#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    let cli = Cli::parse();
    if let Some(Role::Worker { name, kind }) = cli.role {
        return cluster::work(&name, kind).await;
    }
    let directory = tempfile::tempdir()?;
    let tables = directory.path();
    write_tables(cli.scale, tables).await?;
    let [(_, a_max), (_, b_max)] = TENANTS;
    println!(
        "{} workers{}, each with {}. Tenant A may have {} on each, tenant B {}. Limits are per worker.\nFor {} s A runs {AT_ONCE} queries at a \
         time that need much memory, and B one after the other that need little.",
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
    let peaks = alone(cli.processes, tables).await?;
    println!(
        "Alone, a query of A takes {} on a worker, and one of B {}. With fixed parts each query has {}.\n",
        Bytes(peaks[0]),
        Bytes(peaks[1]),
        Bytes(PART),
    );
    let mut loads: [Vec<Load>; COMPARED.len()] = Default::default();
    let mut bursar_rows = Vec::new();
    for round in 1..=cli.runs {
        for (at, kind) in COMPARED.into_iter().enumerate() {
            eprintln!("run {round} of {}: {}", cli.runs, name(kind));
            let mut cluster = Cluster::start(kind, cli.processes).await?;
            let is_admitted = kind == Kind::Bursar;
            let coordinator = Arc::new(Coordinator::new(is_admitted, WORKERS.len(), peaks)?);
            let (workers, files) = (cluster.urls(), tables.to_path_buf());
            let query = move |tenant| {
                let (coordinator, workers) = (coordinator.clone(), workers.clone());
                let files = files.clone();
                async move {
                    let run = |part| run(&workers, &files, part, QUERIES[tenant]);
                    coordinator.query(tenant, run).await
                }
            };
            loads[at].push(load(query, Duration::from_secs(cli.seconds)).await);
            let is_last = round == cli.runs && kind == Kind::Bursar;
            if is_last {
                stranger(&cluster.urls(), tables).await?;
                kill(&mut cluster, tables).await?;
            }
            let (rows, left) = cluster.end().await?;
            if left > 0 {
                return Err(format!("{left} bytes are still reserved on the workers").into());
            }
            if is_last {
                bursar_rows = rows;
            }
        }
    }
    let mut compared = table(COLUMNS, 1);
    for (kind, loads) in COMPARED.into_iter().zip(&loads) {
        compared.add_row(row(name(kind), loads));
        if let Some(error) = loads.iter().find_map(|load| load.error.as_ref()) {
            println!("{}: a first failure: {}", name(kind), first_line(error));
        }
    }
    println!(
        "\n{}\n\n\"again\": queries that were refused memory, and ran once more.\n\nUnder bursar, on each worker:\n\n{}\n",
        compared.trim_fmt(),
        queries(&bursar_rows).trim_fmt()
    );
    println!("after the last query: 0 bytes reserved on the workers that live");
    Ok(())
}

fn name(kind: Kind) -> String {
    let value = kind.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Runs of a query alone. A worker frees the plan of a query, and knows its peak, when it is called again, and not each time.
const RUNS_ALONE: usize = 10;

/// The most bytes that a query of each tenant takes on a worker, when it is alone and has no limit.
async fn alone(as_processes: bool, tables: &Path) -> std::result::Result<[u64; 2], Box<dyn Error>> {
    let cluster = Cluster::start(Kind::Alone, as_processes).await?;
    for (sql, (tenant, _)) in QUERIES.into_iter().zip(TENANTS) {
        for at in 0..RUNS_ALONE {
            let part = whole(format!("{tenant}/query-{at}"));
            run(&cluster.urls(), tables, part, sql).await?;
        }
    }
    let (rows, _) = cluster.end().await?;
    let peaks = TENANTS.map(|(tenant, _)| {
        let of_tenant = rows.iter().filter(|row| row.path.contains(tenant));
        of_tenant.map(|row| row.peak).max().unwrap_or_default()
    });
    if peaks.contains(&0) {
        return Err(format!("no worker knows the peak of a query alone: {peaks:?}").into());
    }
    Ok(peaks)
}

struct Workers(Vec<Url>);

impl WorkerResolver for Workers {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.clone())
    }
}

/// Runs a query on the workers.
async fn run(workers: &[Url], tables: &Path, part: Part, sql: &str) -> Result<()> {
    let mut headers = HeaderMap::new();
    let external = |error| DataFusionError::External(Box::new(error));
    let path = HeaderValue::from_str(&part.path).map_err(external)?;
    headers.insert(PATH, path);
    headers.insert(GRANTED, HeaderValue::from(part.bytes));
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(SessionConfig::new().with_target_partitions(part.width))
        .with_distributed_worker_resolver(Workers(workers.to_vec()))
        .with_distributed_planner()
        .with_distributed_passthrough_headers(headers)?
        // The tables are small: as many tasks as there are workers.
        .with_distributed_file_scan_config_bytes_per_partition(1)?
        .build();
    let session = SessionContext::from(state);
    collect(&session, tables, sql).await
}

/// A query that may have all that its tenant may have.
fn whole(path: String) -> Part {
    Part {
        path,
        bytes: u64::MAX,
        width: WORKERS.len(),
    }
}

/// A path of nobody's: each worker refuses it.
async fn stranger(workers: &[Url], tables: &Path) -> std::result::Result<(), Box<dyn Error>> {
    for path in ["nobody/query", "tenant-a/../tenant-b", "tenant-a"] {
        match run(workers, tables, whole(path.to_owned()), QUERIES[1]).await {
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
            let part = whole(format!("{}/killed-{number}", TENANTS[0].0));
            run(&urls, &tables, part, QUERIES[0]).await
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
        let part = whole(format!("{}/after-{done}", TENANTS[1].0));
        run(workers, tables, part, QUERIES[1]).await?;
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
