//! Bytes that each query reserves and that it really takes, without a limit.

use bursar::{Bytes, Limits, Memory};
use bursar_datafusion::{GroupPool, QueryReport, RealBytes};
use bursar_tpch::{EXTRA, QUERIES, Query, Tables, named, run};
use clap::Args;
use datafusion::execution::config::SessionConfig;
use datafusion::execution::context::SessionContext;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;

use crate::output::{self, Failure, Stopped, table};
use crate::{Partitions, real_bytes};

/// Shows the bytes that each query reserves, and the bytes that it really takes
#[derive(Debug, Args)]
pub struct Options {
    /// Scale of TPC-H: 1 is 1 GB
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Queries, such as q1,q18; all of TPC-H and two that spill well if not given
    #[arg(long, value_delimiter = ',', value_parser = query)]
    queries: Vec<Query>,
    #[command(flatten)]
    partitions: Partitions,
}

fn query(name: &str) -> Result<Query, String> {
    named(name).ok_or_else(|| {
        format!("{name} is no query of TPC-H, nor lines_by_price or lines_per_order")
    })
}

pub fn show(options: &Options) -> Result<(), Stopped> {
    let partitions = options.partitions.count();
    let tables = Tables::generate(options.scale, partitions, |_| ())?;
    let all = QUERIES.into_iter().chain(EXTRA);
    let queries: Vec<Query> = match options.queries.is_empty() {
        true => all.collect(),
        false => options.queries.clone(),
    };
    let memory = Memory::builder().build()?;
    let real = real_bytes()?;
    output::write(&format!(
        "TPC-H at scale {}: {} in tables that belong to no query; {partitions} partitions and threads; no limit\n\n",
        options.scale,
        Bytes(tables.bytes() as u64),
    ))?;
    let header = [
        "query",
        "reserved, peak",
        "held, peak",
        "held / reserved",
        "held at the end",
        "biggest operators, reserved",
    ];
    let mut rows = table(header, 1..5);
    let runtime = options.partitions.runtime()?;
    for query in queries {
        let report = runtime.block_on(measure(&tables, query, partitions, &memory, &real))?;
        let held = report.real.ok_or("a query without real bytes")?;
        let mut operators = report.operators;
        operators.sort_by_key(|operator| std::cmp::Reverse(operator.peak));
        let biggest = operators
            .iter()
            .take(2)
            .filter(|operator| operator.peak > 1 << 20);
        let biggest: Vec<String> = biggest
            .map(|operator| format!("{} {}", operator.name, Bytes(operator.peak)))
            .collect();
        rows.add_row([
            query.name.to_owned(),
            Bytes(report.peak).to_string(),
            Bytes(held.peak).to_string(),
            match report.peak >> 20 {
                0 => String::new(),
                _ => format!("{:.2}", held.peak as f64 / report.peak as f64),
            },
            Bytes(held.held).to_string(),
            biggest.join(", "),
        ]);
    }
    output::write(&format!("{}\n", rows.trim_fmt()))?;
    output::write(
        "\nreserved: what operators asked the pool for. held: what the heap gave to the query's tasks, batches of its answer included. \
         Both include stock: up to 256 KiB for each CPU, and for reservations also for each operator.\n",
    )
}

/// Runs a query, and returns its report when its tasks have ended.
async fn measure(
    tables: &Tables,
    query: Query,
    partitions: usize,
    memory: &Memory,
    real: &RealBytes,
) -> Result<QueryReport, Failure> {
    let group = memory.root().child(query.name, Limits::none())?;
    let pool = GroupPool::builder(group.clone()).real_bytes(real)?.build();
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(pool.clone())
        .build_arc()?;
    let config = SessionConfig::new().with_target_partitions(partitions);
    let session = SessionContext::new_with_config_rt(config, runtime);
    tables.register(&session)?;
    let sql = query.sql(tables.scale());
    pool.in_query(run(&session, &sql, drop)).await?;
    drop(session);
    // Tasks end soon after their query: then there is room for a byte.
    group.set_max(1);
    drop(group.charge_async(1).await?);
    Ok(pool.report())
}
