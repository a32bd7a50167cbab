//! The pools, and one query on one of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bursar::{Group, HighPolicy, Limits, Memory as Books};
use bursar_datafusion::{FairShare, GroupPool, RealBytes};
use bursar_tpch::{Spilled, Tables, run};
use clap::ValueEnum;
use datafusion::execution::config::SessionConfig;
use datafusion::execution::context::SessionContext;
use datafusion::execution::memory_pool::{
    FairSpillPool, GreedyMemoryPool, MemoryPool, TrackConsumersPool, UnboundedMemoryPool,
};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};

use super::options::Memory;
use crate::output::Failure;
use crate::real_bytes;

/// Longest time of a query, far more than any of these takes: a longer one does not end.
const PATIENCE: Duration = Duration::from_secs(300);

/// A kind of pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pool {
    /// A group for each query below a tenant's; repartitions are counted and not refused, as DataFusion 55.2 may hang otherwise
    Ours,
    /// The same, and what the queries really take is counted by the program's allocator
    Real,
    /// The same as ours with a share of the tenant's memory for each of those that spill
    Sharing,
    /// DataFusion's GreedyMemoryPool
    Greedy,
    /// DataFusion's FairSpillPool
    Fair,
    /// DataFusion's TrackConsumersPool over a GreedyMemoryPool: what it makes of a memory limit
    Tracked,
    /// DataFusion's UnboundedMemoryPool, which has no limit whatever `--memory` says
    Unbounded,
}

impl Pool {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Real => "real",
            Self::Sharing => "sharing",
            Self::Greedy => "greedy",
            Self::Fair => "fair",
            Self::Tracked => "tracked",
            Self::Unbounded => "unbounded",
        }
    }
}

/// A pool that runs queries one after the other.
pub struct Contender {
    /// Its name.
    pub name: &'static str,
    runtime: Arc<RuntimeEnv>,
    /// The tenant, if each query gets a group.
    tenant: Option<Group>,
    /// Share of its spillers, if they have one.
    share: Option<FairShare>,
    /// The twin tree, if real bytes are counted.
    real: Option<RealBytes>,
}

/// Cost of one query.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// From the query's text to its last row, with the making and the end of its pool, if it has one of its own.
    pub elapsed: Duration,
    /// Spills of the query.
    pub spilled: Spilled,
}

impl Contender {
    /// A pool with that limit, on a runtime of its own.
    pub fn new(pool: Pool, memory: Memory) -> Result<Self, Failure> {
        let limit = memory.0.map_or(usize::MAX, |bytes| {
            usize::try_from(bytes).unwrap_or(usize::MAX)
        });
        let tracked = || {
            let shown = std::num::NonZeroUsize::MIN.saturating_add(4);
            TrackConsumersPool::new(GreedyMemoryPool::new(limit), shown)
        };
        let mut tenant = None;
        let mut share = None;
        let mut real = None;
        let shared: Option<Arc<dyn MemoryPool>> = match pool {
            Pool::Ours | Pool::Real | Pool::Sharing => {
                let books = Books::builder().high_policy(HighPolicy::Owe).build()?;
                let limits = memory.0.map_or(Limits::none(), Limits::max);
                let group = books.root().child("tenant", limits)?;
                share = (pool == Pool::Sharing).then(|| FairShare::new(&group));
                if pool == Pool::Real {
                    real = Some(real_bytes()?);
                }
                tenant = Some(group);
                None
            }
            Pool::Greedy => Some(Arc::new(GreedyMemoryPool::new(limit))),
            Pool::Fair => Some(Arc::new(FairSpillPool::new(limit))),
            Pool::Tracked => Some(Arc::new(tracked())),
            Pool::Unbounded => Some(Arc::new(UnboundedMemoryPool::default())),
        };
        let mut builder = RuntimeEnvBuilder::new();
        if let Some(pool) = shared {
            builder = builder.with_memory_pool(pool);
        }
        Ok(Self {
            name: pool.name(),
            runtime: builder.build_arc()?,
            tenant,
            share,
            real,
        })
    }

    /// Runs a query and drops its rows. Making the session is not timed: it is the same for all.
    #[expect(clippy::disallowed_methods, reason = "this measures the host")]
    pub async fn run(
        &self,
        tables: &Tables,
        sql: &str,
        partitions: usize,
    ) -> Result<Took, Failure> {
        let before = Instant::now();
        let mut counted = None;
        let runtime = match &self.tenant {
            None => self.runtime.clone(),
            Some(tenant) => {
                let query = tenant.child("query", Limits::none())?;
                let mut pool = GroupPool::builder(query).never_refuse(["RepartitionExec"]);
                if let Some(share) = &self.share {
                    pool = pool.share(share);
                }
                if let Some(real) = &self.real {
                    pool = pool.real_bytes(real)?;
                }
                let pool = pool.build();
                counted = self.real.is_some().then(|| pool.clone());
                RuntimeEnvBuilder::from_runtime_env(&self.runtime)
                    .with_memory_pool(pool)
                    .build_arc()?
            }
        };
        let making = before.elapsed();

        let config = SessionConfig::new().with_target_partitions(partitions);
        let session = SessionContext::new_with_config_rt(config, runtime);
        tables.register(&session)?;

        let before = Instant::now();
        // In DataFusion 55.2 a refused repartition may hang its query (apache/datafusion#24883).
        let run = run(&session, sql, drop);
        let spilled = match &counted {
            Some(pool) => tokio::time::timeout(PATIENCE, pool.in_query(run)).await,
            None => tokio::time::timeout(PATIENCE, run).await,
        };
        let spilled = spilled.map_err(|_| format!("no end in {PATIENCE:?}"))??;
        drop((session, counted));
        Ok(Took {
            elapsed: making + before.elapsed(),
            spilled,
        })
    }

    /// Waits until tasks of a query that failed have ended, and with them what they had reserved.
    pub fn settle(&self) -> Result<(), Failure> {
        const TRIES: usize = 10_000;
        for _ in 0..TRIES {
            if self.reserved()? == 0
                && self
                    .tenant
                    .iter()
                    .all(|tenant| tenant.children().is_empty())
            {
                return Ok(());
            }
            // DataFusion's pools tell nobody; all contenders wait in the same way, untimed.
            std::thread::sleep(Duration::from_millis(1));
        }
        let reserved = self.reserved()?;
        Err(format!("{}: {reserved} bytes are still reserved", self.name).into())
    }

    fn reserved(&self) -> Result<u64, Failure> {
        let Some(tenant) = &self.tenant else {
            return Ok(self.runtime.memory_pool.reserved() as u64);
        };
        let usage = tenant.read(bursar::Freshness::Exact)?.usage().value;
        u64::try_from(usage).map_err(|_| format!("{}: a usage of {usage}", self.name).into())
    }
}
