//! A query of DataFusion in a group.

use std::error::Error;
use std::time::Instant;

use bursar::{Bytes, Freshness, Group, Limits};
use bursar_datafusion::{GroupPool, History};
use bursar_tpch::{Tables, named};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;

pub const MIB: u64 = 1 << 20;

pub fn usage(group: &Group) -> u64 {
    let reading = group.read(Freshness::Exact);
    reading.map_or(0, |reading| reading.usage_bytes())
}

/// Runs a join that cannot spill, in a group of that name.
pub async fn query(parent: &Group, name: &str, tables: &Tables) -> Result<String, Box<dyn Error>> {
    let history = History::new(1);
    let group = parent.child(name, Limits::none())?;
    let pool = GroupPool::builder(group)
        .never_refuse(["RepartitionExec"])
        .history(&history)
        .build();
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(pool.clone())
        .build_arc()?;
    let config = SessionConfig::new().with_target_partitions(2);
    let session = SessionContext::new_with_config_rt(config, runtime);
    tables.register(&session)?;
    let sql = named("q18").ok_or("no q18")?.sql(tables.scale());
    let begin = Instant::now();
    let mut stream = session.sql(&sql).await?.execute_stream().await?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        rows += batch?.num_rows();
    }
    drop((stream, session, pool));
    let report = history.finished().pop().ok_or("the query has not ended")?;
    let elapsed = begin.elapsed();
    Ok(format!(
        "TPC-H q18: {rows} rows in {elapsed:.1?}, peak {}.",
        Bytes(report.peak)
    ))
}
