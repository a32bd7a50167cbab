//! Queries on pools of their own, on a runtime that all share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bursar::{Freshness, Group, HighPolicy, Limits, Memory};
use bursar_datafusion::{FairShare, History, Pools, QueryReport, View};
use bursar_tpch::{Query, Spilled, Tables, run};
use datafusion::error::DataFusionError;
use datafusion::execution::config::SessionConfig;
use datafusion::execution::context::SessionContext;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use futures::{StreamExt, TryStreamExt};

use super::list::Tenant;
use crate::output::Stopped;
use crate::real_bytes;

/// SQL by which the example looks at its own groups.
const BIGGEST: &str = "SELECT path, usage, peak, max, pressure, refused FROM bursar_memory() ORDER BY reserved DESC LIMIT 8";

/// More queries than end at a time.
const HISTORY_MAX: usize = 1_000;

/// DataFusion, and the books of all that its queries use.
pub struct Engine {
    memory: Memory,
    tenants: Vec<Group>,
    pools: Pools,
    /// The reports of queries that have ended.
    history: History,
    /// One disk manager, one cache, one registry of object stores for everybody.
    runtime: Arc<RuntimeEnv>,
    tables: Tables,
    partitions: usize,
}

/// A query that has ended.
pub struct Finished {
    /// Number of its tenant.
    pub tenant: usize,
    /// Its name in the tree.
    pub name: String,
    /// Its group, removed by now. As long as there is a handle it can be asked.
    pub group: Group,
    /// From its text to its last row.
    pub elapsed: Duration,
    /// Rows of its answer, as far as they came.
    pub rows: usize,
    /// Spills of its plan, or the reason for its failure.
    pub outcome: Result<Spilled, DataFusionError>,
    /// Report of its pool, at its end.
    pub report: QueryReport,
}

impl Engine {
    /// An engine with a group for each tenant, below a root that has room for all of them.
    pub fn new(tables: Tables, tenants: &[Tenant], partitions: usize) -> Result<Self, Stopped> {
        let memory = Memory::builder()
            .max(tenants.iter().map(|tenant| tenant.limit).sum())
            // Nobody blocks a thread of an asynchronous runtime.
            .high_policy(HighPolicy::Owe)
            .build()?;
        let root = memory.root();
        let tenants: Vec<Group> = tenants
            .iter()
            .map(|tenant| root.child(&tenant.name, Limits::max(tenant.limit)))
            .collect::<Result<_, _>>()?;
        let shares: Vec<FairShare> = tenants.iter().map(FairShare::new).collect();
        // Counts the real bytes of the queries.
        let real = real_bytes()?;
        let history = History::new(HISTORY_MAX);
        let kept = history.clone();
        let pools = Pools::below(root).settings(move |mut builder, query| {
            let is_above = |share: &&FairShare| query.parent().as_ref() == Some(share.group());
            if let Some(share) = shares.iter().find(is_above) {
                builder = builder.share(share);
            }
            // In DataFusion 55.2 a refused repartition may hang its query.
            builder
                .never_refuse(["RepartitionExec"])
                .history(&kept)
                .real_bytes(&real)
        });
        Ok(Self {
            memory,
            tenants,
            pools,
            history,
            runtime: RuntimeEnvBuilder::new().build_arc()?,
            tables,
            partitions,
        })
    }

    /// Runs the queries of one tenant, some at a time.
    pub async fn run(
        engine: Arc<Self>,
        tenant: usize,
        queries: Vec<(String, Query)>,
        at_once: usize,
    ) -> Result<Vec<Finished>, Stopped> {
        futures::stream::iter(queries)
            .map(|(name, query)| {
                let engine = engine.clone();
                let query = tokio::spawn(async move { engine.query(tenant, name, query).await });
                async move { query.await? }
            })
            .buffer_unordered(at_once)
            .try_collect()
            .await
    }

    /// Runs a query in a group of its own.
    #[expect(clippy::disallowed_methods, reason = "a time to be shown")]
    async fn query(&self, tenant: usize, name: String, query: Query) -> Result<Finished, Stopped> {
        let path = format!("{}/{name}", self.tenants[tenant].path());
        let pool = self.pools.get_or_create(&path)?;
        let group = pool.group().clone();
        let runtime = RuntimeEnvBuilder::from_runtime_env(&self.runtime)
            .with_memory_pool(pool.clone())
            .build_arc()?;
        let session = SessionContext::new_with_config_rt(self.config(), runtime);
        self.tables.register(&session)?;

        let start = Instant::now();
        let mut rows = 0;
        let sql = query.sql(self.tables.scale());
        let run = run(&session, &sql, |batch| rows += batch.num_rows());
        let outcome = pool.in_query(run).await;
        let elapsed = start.elapsed();
        drop(session);
        // Tasks of a query that failed end soon after it. When they have returned all, and not before, there is room for a byte.
        group.set_max(1);
        drop(group.charge_async(1).await?);
        // The name is free from here on; what was counted stays readable.
        pool.remove()?;
        let report = self
            .history
            .finished()
            .into_iter()
            .rfind(|report| report.path == path);
        Ok(Finished {
            tenant,
            name,
            group,
            elapsed,
            rows,
            outcome,
            report: report.ok_or("a query without a report")?,
        })
    }

    fn config(&self) -> SessionConfig {
        SessionConfig::new()
            .with_target_partitions(self.partitions)
            // Bytes that a sort keeps for the merge of its spills. The default of 10 MiB for each partition
            // is meant for more memory.
            .with_sort_spill_reservation_bytes(4 << 20)
    }

    /// The tree of tenants and queries, with usage and limits; without the queries' operators, which may be many.
    pub fn tree(&self) -> String {
        let tree = self.memory.to_string();
        let shown = tree.lines().filter(|line| !line.starts_with("      "));
        shown.map(|line| format!("{line}\n")).collect()
    }

    /// The biggest groups, as SQL shows them.
    pub async fn table(&self) -> Result<String, DataFusionError> {
        let session = SessionContext::new();
        View::new(&self.memory).register(&session);
        let biggest = session.sql(BIGGEST).await?;
        Ok(format!("{BIGGEST}\n{}\n", biggest.to_string().await?))
    }

    /// The tenants' groups.
    pub fn tenants(&self) -> impl Iterator<Item = &Group> {
        self.tenants.iter()
    }

    /// Whether everything that was charged to anybody is back.
    pub fn check(&self, queries: &[Finished]) -> Result<(), Stopped> {
        let root = self.memory.root();
        let groups = queries.iter().map(|query| &query.group);
        for group in groups.chain(self.tenants()).chain([&root]) {
            let usage = group.read(Freshness::Exact)?.usage().value;
            if usage != 0 {
                return Err(format!("{usage} bytes are still charged to {group}").into());
            }
        }
        Ok(())
    }
}
