//! Bytes that each query reserves and that it really takes, without a limit.

use bursar::{Bytes, Limits, Memory};
use bursar_datafusion::{GroupPool, QueryReport, RealBytes};
use bursar_tpch::{EXTRA, QUERIES, Query, Tables, named, run};
use clap::Args;
use datafusion::execution::config::SessionConfig;
use datafusion::execution::context::SessionContext;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;

use crate::files::Files;
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
    /// Reads the tables from Parquet files, without and with charges for what is fetched and for cached metadata
    #[arg(long)]
    files: bool,
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
    let runtime = options.partitions.runtime()?;
    let measured = Measured {
        tables,
        partitions,
        memory,
        real,
    };
    if options.files {
        return show_files(&measured, &queries, &runtime);
    }
    output::write(&format!(
        "TPC-H at scale {}: {} in tables that belong to no query; {partitions} partitions and threads; no limit\n\n",
        options.scale,
        Bytes(measured.tables.bytes() as u64),
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
    for query in queries {
        let report = runtime.block_on(measured.run(query, Source::Memory))?;
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

/// The same from files, with the bytes that nobody has charged.
fn show_files(
    measured: &Measured,
    queries: &[Query],
    runtime: &tokio::runtime::Runtime,
) -> Result<(), Stopped> {
    let files = runtime.block_on(Files::write(&measured.tables))?;
    output::write(&format!(
        "TPC-H at scale {} from a Parquet file for each table; {} partitions and threads; no limit\n\n",
        measured.tables.scale(),
        measured.partitions,
    ))?;
    let header = [
        "query",
        "reserved, peak",
        "with wrappers, peak",
        "held, peak",
        "hole",
        "with wrappers",
    ];
    let mut rows = table(header, 1..6);
    let mut holes = [0, 0];
    for query in queries {
        let plain = runtime.block_on(measured.run(*query, Source::Files(&files)))?;
        let charged = runtime.block_on(measured.run(*query, Source::ChargedFiles(&files)))?;
        // Of each run its own.
        let hole = |report: &QueryReport| {
            let held = report.real.as_ref().map_or(0, |real| real.peak);
            held.saturating_sub(report.peak)
        };
        holes[0] += hole(&plain);
        holes[1] += hole(&charged);
        let held = plain.real.as_ref().ok_or("a query without real bytes")?;
        rows.add_row([
            query.name.to_owned(),
            Bytes(plain.peak).to_string(),
            Bytes(charged.peak).to_string(),
            Bytes(held.peak).to_string(),
            Bytes(hole(&plain)).to_string(),
            Bytes(hole(&charged)).to_string(),
        ]);
    }
    output::write(&format!("{}\n", rows.trim_fmt()))?;
    output::write(&format!(
        "\nAll holes: {} without wrappers, {} with them.\n\
         with wrappers: what operators reserved, what was fetched and not dropped yet, and cached metadata. hole: held above that, or 0; of runs of \
         their own. All peaks include stock, as above.\n",
        Bytes(holes[0]),
        Bytes(holes[1]),
    ))
}

/// Source of the tables of a query.
#[derive(Clone, Copy)]
enum Source<'a> {
    Memory,
    Files(&'a Files),
    ChargedFiles(&'a Files),
}

struct Measured {
    tables: Tables,
    partitions: usize,
    memory: Memory,
    real: RealBytes,
}

impl Measured {
    /// Runs a query, and returns its report when its tasks have ended.
    async fn run(&self, query: Query, source: Source<'_>) -> Result<QueryReport, Failure> {
        let group = self.memory.root().child(query.name, Limits::none())?;
        let pool = GroupPool::builder(group.clone())
            .real_bytes(&self.real)?
            .build();
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool.clone());
        let config = SessionConfig::new().with_target_partitions(self.partitions);
        let fetched = group.child("fetched", Limits::none())?;
        let sql = query.sql(self.tables.scale());
        let ran = pool.in_query(async {
            let session = match source {
                Source::Memory => {
                    let session = SessionContext::new_with_config_rt(config, runtime.build_arc()?);
                    self.tables.register(&session)?;
                    session
                }
                Source::Files(files) => files.session(config, runtime, None).await?,
                Source::ChargedFiles(files) => {
                    files.session(config, runtime, Some(&fetched)).await?
                }
            };
            run(&session, &sql, drop).await?;
            Ok::<_, Failure>(())
        });
        ran.await?;
        // Tasks end soon after their query: then there is room for a byte.
        group.set_max(1);
        drop(group.charge_async(1).await?);
        Ok(pool.report())
    }
}
