//! The same load on Ballista: one executor with one budget for all tasks, beside Ballista's own fixed part for each task.
//!
//! An executor's memory is the memory of one worker. The client admits each query, as the coordinator does in `main.rs`, and names the
//! path of its group and its bytes as the name of the job. The executor's `override_runtime_producer` gives all tasks of a query the same pool.
//!
//! `cargo run --release --features ballista --bin ballista`, in this directory.

#![forbid(unsafe_code)]

/// Prints a line. A reader that has gone away, as after `| head`, is no error.
macro_rules! println {
    ($($line:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($line)*);
    }};
}

#[path = "../admission.rs"]
mod admission;
#[path = "../load.rs"]
mod load;

use std::error::Error;
use std::fmt;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ballista::prelude::SessionContextExt;
use ballista_core::JobId;
use ballista_core::config::{BALLISTA_JOB_NAME, TaskSchedulingPolicy};
use ballista_core::extension::SessionConfigExt;
use ballista_core::serde::protobuf::{
    RuntimeStatsReport, ShuffleWritePartition, TaskColumnStats, WindowStateReport,
};
use ballista_executor::execution_engine::{
    DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor,
};
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_scheduler::standalone::new_standalone_scheduler;
use bursar::{Bytes, Memory};
use bursar_datafusion::{FairShare, GroupPool, History, Pools};
use clap::Parser;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionStateBuilder, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::prelude::{SessionConfig, SessionContext};

use admission::{Coordinator, Part};
use load::{
    AT_ONCE, COLUMNS, Load, QUERIES, TENANTS, WORKER_MAX, collect, first_line, load,
    memory_of_tenants, row, settle, table, write_tables,
};

const HOST: &str = "127.0.0.1";
/// Runs of a query alone.
const RUNS_ALONE: usize = 3;
/// Tasks that the executor runs at a time.
const TASKS: usize = 4;

/// Runs two tenants' queries on a Ballista executor, with a fixed part for each task and under Bursar
#[derive(Parser)]
struct Cli {
    /// Scale of TPC-H's tables
    #[arg(long, default_value_t = 0.2)]
    scale: f64,
    /// Seconds of load for each pool
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Runs of each pool, in turn
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Ballista's own: a FairSpillPool for each task, with a fixed part.
    Parts,
    /// A group for each tenant and each query, and admission.
    Bursar,
    /// Groups without limits, for one query at a time.
    Alone,
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    let cli = Cli::parse();
    let directory = tempfile::tempdir()?;
    let tables = directory.path();
    write_tables(cli.scale, tables).await?;
    let [(_, a_max), (_, b_max)] = TENANTS;
    println!(
        "A Ballista executor with {} that runs {TASKS} tasks at a time. Ballista's own pool has {} for each. Under Bursar tenant A may have {}, \
         and B {}.\nFor {} s A runs {AT_ONCE} queries at a time that need much memory, and B one after the other that need little.",
        Bytes(WORKER_MAX),
        Bytes(WORKER_MAX / TASKS as u64),
        Bytes(a_max),
        Bytes(b_max),
        cli.seconds,
    );
    let peaks = alone(tables).await?;
    println!(
        "Alone, a query of A takes {}, and one of B {}.\n",
        Bytes(peaks[0]),
        Bytes(peaks[1])
    );
    let mut loads: [Vec<Load>; 2] = Default::default();
    for round in 1..=cli.runs {
        for (at, kind) in [Kind::Parts, Kind::Bursar].into_iter().enumerate() {
            eprintln!("run {round} of {}: {}", cli.runs, name(kind));
            let node = Node::start(kind).await?;
            let coordinator = Arc::new(Coordinator::new(kind == Kind::Bursar, TASKS, peaks)?);
            let (url, files) = (node.url.clone(), tables.to_path_buf());
            let query = move |tenant| {
                let (coordinator, url, files) = (coordinator.clone(), url.clone(), files.clone());
                async move {
                    let run = |part| run_query(&url, &files, part, QUERIES[tenant]);
                    coordinator.query(tenant, run).await
                }
            };
            loads[at].push(load(query, Duration::from_secs(cli.seconds)).await);
            node.end().await?;
        }
    }
    let mut compared = table(COLUMNS, 1);
    for (kind, loads) in [Kind::Parts, Kind::Bursar].into_iter().zip(&loads) {
        compared.add_row(row(name(kind).to_owned(), loads));
        if let Some(error) = loads.iter().find_map(|load| load.error.as_ref()) {
            println!("{}: a first failure: {}", name(kind), first_line(error));
        }
    }
    println!("\n{}\n", compared.trim_fmt());
    println!("after the last query: 0 bytes reserved on the executor");
    Ok(())
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Parts => "part for each task",
        Kind::Bursar => "bursar",
        Kind::Alone => "alone",
    }
}

/// The most bytes that a query of each tenant takes, when it is alone and has no limit.
async fn alone(tables: &Path) -> std::result::Result<[u64; 2], Box<dyn Error>> {
    let node = Node::start(Kind::Alone).await?;
    for (sql, (tenant, _)) in QUERIES.into_iter().zip(TENANTS) {
        for at in 0..RUNS_ALONE {
            let part = Part {
                path: format!("{tenant}/query-{at}"),
                bytes: u64::MAX,
                width: TASKS,
            };
            run_query(&node.url, tables, part, sql).await?;
        }
    }
    let reports = node.history.finished();
    node.end().await?;
    Ok(TENANTS.map(|(tenant, _)| {
        let of_tenant = reports.iter().filter(|query| query.path.contains(tenant));
        of_tenant.map(|query| query.peak).max().unwrap_or_default()
    }))
}

/// Runs a query on the executor.
async fn run_query(url: &str, tables: &Path, part: Part, sql: &str) -> Result<()> {
    let config = SessionConfig::new_with_ballista()
        .with_target_partitions(part.width)
        .with_ballista_job_name(&format!("{} {}", part.path, part.bytes));
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .build();
    let session = SessionContext::remote_with_state(url, state).await?;
    collect(&session, tables, sql).await
}

/// A scheduler and an executor.
struct Node {
    url: String,
    memory: Memory,
    history: History,
    tasks: Arc<AtomicUsize>,
    kind: Kind,
    executor: tokio::task::JoinHandle<()>,
}

impl Node {
    async fn start(kind: Kind) -> std::result::Result<Self, Box<dyn Error>> {
        let memory = memory_of_tenants(kind != Kind::Alone)?;
        let history = History::new(10_000);
        let kept = history.clone();
        let pools = Pools::below(memory.root()).settings(move |builder, group| {
            // In DataFusion 55.2 a refused repartition may hang its query: apache/datafusion#24883.
            let builder = builder.never_refuse(["RepartitionExec"]).history(&kept);
            Ok(builder.share(&FairShare::new(group)))
        });
        let shared = Arc::new(RuntimeEnv::default());
        let scheduler = new_standalone_scheduler().await?;
        let tasks = Arc::new(AtomicUsize::new(0));
        let mut config = ExecutorProcessConfig {
            bind_host: HOST.to_owned(),
            // The scheduler of one process knows no addresses of callers.
            external_host: Some(HOST.to_owned()),
            port: free_port()?,
            grpc_port: free_port()?,
            scheduler_host: scheduler.ip().to_string(),
            scheduler_port: scheduler.port(),
            vcores: TASKS,
            task_scheduling_policy: TaskSchedulingPolicy::PullStaged,
            memory_pool_size: Some(WORKER_MAX),
            ..ExecutorProcessConfig::default()
        };
        if kind != Kind::Parts {
            // No pool of Ballista's own, and no environment that outlives its query.
            config.memory_pool_size = Some(0);
            config.session_runtime_cache_capacity = 0;
            config.override_runtime_producer = Some(Arc::new(move |config| {
                let (path, bytes) = granted(config)?;
                let pool = pools.get_or_create(&path).map_err(refused)?;
                pool.group().set_max(bytes);
                let runtime = RuntimeEnvBuilder::from_runtime_env(&shared).with_memory_pool(pool);
                runtime.build_arc()
            }));
            config.override_execution_engine = Some(Arc::new(Engine {
                engine: DefaultExecutionEngine::new(),
                tasks: tasks.clone(),
            }));
        }
        let executor = tokio::spawn(async move {
            if let Err(error) = start_executor_process(Arc::new(config)).await {
                eprintln!("the executor has ended: {error}");
            }
        });
        Ok(Self {
            url: format!("df://{}:{}", scheduler.ip(), scheduler.port()),
            memory,
            history,
            tasks,
            kind,
            executor,
        })
    }

    /// Ends the executor. All bytes must have come back.
    async fn end(self) -> std::result::Result<(), Box<dyn Error>> {
        let left = settle(&self.memory).await;
        self.executor.abort();
        if left > 0 {
            return Err(format!("{left} bytes are still reserved on the executor").into());
        }
        // Relaxed: all tasks have ended.
        if self.kind != Kind::Parts && self.tasks.load(Ordering::Relaxed) == 0 {
            return Err("no task ran under Bursar's pool".into());
        }
        Ok(())
    }
}

/// The path of a query's group and the bytes that it was granted, from the name of its job.
fn granted(config: &SessionConfig) -> Result<(String, u64)> {
    let ballista = config.ballista_config();
    let name = ballista.settings().get(BALLISTA_JOB_NAME);
    let parts = name.and_then(|name| name.split_once(' '));
    let (path, bytes) = parts.ok_or_else(|| refused("the job's name is not a path and bytes"))?;
    Ok((path.to_owned(), bytes.parse().map_err(refused)?))
}

fn refused(why: impl fmt::Display) -> DataFusionError {
    DataFusionError::Plan(format!("this executor takes no such query: {why}"))
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((HOST, 0))?.local_addr()?.port())
}

/// Ballista's engine, which checks in each task that its pool is that of its query.
struct Engine {
    engine: DefaultExecutionEngine,
    tasks: Arc<AtomicUsize>,
}

impl ExecutionEngine for Engine {
    fn create_query_stage_exec(
        &self,
        job_id: JobId,
        stage_id: usize,
        task_id: usize,
        global_output_partition_ids: Vec<usize>,
        plan: Arc<dyn ExecutionPlan>,
        work_dir: &str,
        config: &SessionConfig,
    ) -> Result<Arc<dyn QueryStageExecutor>> {
        let stage = self.engine.create_query_stage_exec(
            job_id,
            stage_id,
            task_id,
            global_output_partition_ids,
            plan,
            work_dir,
            config,
        )?;
        Ok(Arc::new(Checked {
            stage,
            path: granted(config)?.0,
            tasks: self.tasks.clone(),
        }))
    }
}

#[derive(Debug)]
struct Checked {
    stage: Arc<dyn QueryStageExecutor>,
    path: String,
    tasks: Arc<AtomicUsize>,
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stage.fmt(f)
    }
}

#[async_trait]
impl QueryStageExecutor for Checked {
    async fn execute_query_stage(
        &self,
        task_id: usize,
        context: Arc<TaskContext>,
    ) -> Result<Vec<ShuffleWritePartition>> {
        let pool = context.memory_pool().downcast_ref::<GroupPool>();
        let path = pool.map(|pool| pool.group().path());
        assert_eq!(path, Some(format!("/{}", self.path)), "a task's pool");
        // Relaxed: a count.
        self.tasks.fetch_add(1, Ordering::Relaxed);
        self.stage.execute_query_stage(task_id, context).await
    }

    fn collect_plan_metrics(&self) -> Vec<MetricsSet> {
        self.stage.collect_plan_metrics()
    }

    fn collect_runtime_stats_reports(&self) -> Vec<RuntimeStatsReport> {
        self.stage.collect_runtime_stats_reports()
    }

    fn collect_window_state_reports(&self) -> Result<Vec<WindowStateReport>> {
        self.stage.collect_window_state_reports()
    }

    fn collect_column_stats(&self) -> Vec<TaskColumnStats> {
        self.stage.collect_column_stats()
    }
}
