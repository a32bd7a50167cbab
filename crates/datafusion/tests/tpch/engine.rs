//! One DataFusion for all tests of a process: the tables take longer to make than most queries to run.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bursar::{Freshness, Group, HighPolicy, Limits, Memory};
use bursar_datafusion::{FairShare, GroupPool, History};
use bursar_tpch::{Answer, EXTRA, Query, Spilled, Tables, run};
use datafusion::error::Result;
use datafusion::execution::config::SessionConfig;
use datafusion::execution::context::SessionContext;
use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};

pub const MIB: u64 = 1 << 20;
const SCALE: f64 = 0.1;
const PARTITIONS: usize = 2;
/// Longest wait for something that happens soon or never.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tables, a runtime that all queries share, and the books of all tenants.
pub struct Engine {
    tables: Tables,
    runtime: RuntimeEnv,
    memory: Memory,
}

static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine {
    tables: Tables::generate(SCALE, 1, |_| ()).unwrap(),
    runtime: RuntimeEnvBuilder::new().build().unwrap(),
    memory: Memory::builder()
        .high_policy(HighPolicy::Owe)
        .build()
        .unwrap(),
});

impl Engine {
    pub fn get() -> &'static Self {
        &ENGINE
    }

    pub fn scale(&self) -> f64 {
        self.tables.scale()
    }

    pub fn tenant(&self, name: &str, limit: u64) -> Tenant {
        let group = self.memory.root().child(name, Limits::max(limit)).unwrap();
        Tenant {
            share: FairShare::new(&group),
            history: History::new(100),
            group,
        }
    }

    pub fn unlimited(&self) -> Arc<dyn MemoryPool> {
        Arc::new(UnboundedMemoryPool::default())
    }

    /// A session on that pool; all else it shares with the others.
    pub fn session(&self, query: Query, pool: Arc<dyn MemoryPool>) -> SessionContext {
        let runtime = RuntimeEnvBuilder::from_runtime_env(&self.runtime)
            .with_memory_pool(pool)
            .build_arc()
            .unwrap();
        // Sorts of several partitions under one limit race for what merging needs, and the loser gives up: by chance, under
        // DataFusion's pools.
        let is_extra = EXTRA.iter().any(|extra| extra.name == query.name);
        let partitions = if is_extra { 1 } else { PARTITIONS };
        let config = SessionConfig::new()
            .with_target_partitions(partitions)
            // Merging holds some batches of each file that was spilled: small ones, as the limits are small.
            .with_batch_size(2048)
            .with_sort_spill_reservation_bytes(1 << 20);
        let session = SessionContext::new_with_config_rt(config, runtime);
        self.tables.register(&session).unwrap();
        session
    }

    /// A query's rows on that pool, and what it spilled.
    pub async fn answer(
        &self,
        query: Query,
        pool: Arc<dyn MemoryPool>,
    ) -> Result<(Answer, Spilled)> {
        let session = self.session(query, pool);
        let mut batches = Vec::new();
        let sql = query.sql(self.scale());
        let spilled = run(&session, &sql, |batch| batches.push(batch)).await?;
        Ok((Answer::of(&batches)?, spilled))
    }
}

/// A tenant's group, what its spilling queries share of it, and its finished queries.
#[derive(Clone)]
pub struct Tenant {
    pub group: Group,
    pub share: FairShare,
    pub history: History,
}

impl Tenant {
    /// A pool for a query, which is a group of its own.
    pub fn pool(&self, query: Query) -> Arc<GroupPool> {
        let group = self.group.child(query.name, Limits::none()).unwrap();
        GroupPool::builder(group)
            .share(&self.share)
            // In DataFusion 55.2 a refused repartition may hang its query: apache/datafusion#24883.
            .never_refuse(["RepartitionExec"])
            .history(&self.history)
            .build()
    }

    /// A query's rows, and what it spilled. Its group is removed, and empty.
    pub async fn query(&self, query: Query) -> Result<(Answer, Spilled)> {
        let pool = self.pool(query);
        let (group, end) = (pool.group().clone(), Arc::downgrade(&pool));
        let outcome = Engine::get().answer(query, pool).await;
        // Tasks that a query spawned end when the runtime drops them, which it does soon. The count is zero before the pool's groups
        // are gone, if another thread drops it.
        let is_gone = async {
            while end.strong_count() > 0 || !group.children().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(PATIENCE, is_gone).await.is_err() {
            panic!("somebody keeps {group}: {:?}", group.children());
        }
        group.remove().expect("operators' groups are gone");
        assert_eq!(usage(&group), 0, "{group}");
        outcome
    }
}

/// Exact bytes of a group and all below it.
pub fn usage(group: &Group) -> i64 {
    group.read(Freshness::Exact).unwrap().usage().value
}
