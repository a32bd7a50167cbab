//! The pools, and one query on one of them.

use std::sync::Arc;
use std::time::Duration;

use bursar::{Group, HighPolicy, Limits, Memory, Ticker};
use bursar_arbiter::{Arbiter, Policy};
use bursar_datafusion::{GroupPool, Tenant, TenantEngine, TenantEngineError};
use bursar_tpch::{Tables, run};
use clap::ValueEnum;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::config::SessionConfig;
use datafusion::execution::context::SessionContext;
use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use futures::StreamExt;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::load::PATIENCE;
use super::options::Options;
use crate::output::Failure;

/// Time between two looks of the arbiter at what time alone changes.
const TICK: Duration = Duration::from_millis(10);

/// A kind of pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pool {
    /// DataFusion's GreedyMemoryPool
    Greedy,
    /// DataFusion's FairSpillPool
    Fair,
    /// A GreedyMemoryPool for each query, with an equal part of the memory
    Fixed,
    /// `TenantEngine`: admission, and queries that run again
    Engine,
    /// The same, and it never knows what a query took before
    NoEstimates,
    /// The same, and it takes a tenth of what a query took before for what it will take
    LowEstimates,
}

impl Pool {
    /// The name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::Fair => "fair",
            Self::Fixed => "fixed parts",
            Self::Engine => "tenant engine",
            Self::NoEstimates => "tenant engine without estimates",
            Self::LowEstimates => "tenant engine, estimates / 10",
        }
    }

    /// Whether it is one of DataFusion's own.
    pub fn is_rival(self) -> bool {
        matches!(self, Self::Greedy | Self::Fair | Self::Fixed)
    }
}

/// A pool that the queries of all streams run on.
pub enum Contender {
    /// Sessions on a pool each: one for all streams, or one for each.
    Pools(Vec<SessionContext>),
    /// An engine.
    Engine {
        tenants: Vec<Tenant>,
        arbiter: Arbiter,
        _ticker: Ticker,
    },
}

/// The end of a query.
pub enum Ended {
    /// All its rows came.
    Done {
        /// From 1 on.
        tries: u32,
        /// Time that all tries waited for admission.
        waited: Duration,
    },
    /// It was refused memory.
    Refused {
        /// Whether rows had come before.
        had_rows: bool,
    },
}

impl Contender {
    /// A pool with so many bytes for the queries of all streams.
    pub fn new(
        pool: Pool,
        bytes: u64,
        tables: &Tables,
        options: &Options,
    ) -> Result<Self, Failure> {
        let partitions = options.partitions.count();
        let limit = usize::try_from(bytes)?;
        let one = |pool: Arc<dyn MemoryPool>| session(tables, partitions, Some(pool));
        let sessions = match pool {
            Pool::Greedy => vec![one(Arc::new(GreedyMemoryPool::new(limit)))?],
            Pool::Fair => vec![one(Arc::new(FairSpillPool::new(limit)))?],
            Pool::Fixed => (0..options.streams())
                .map(|_| one(Arc::new(GreedyMemoryPool::new(limit / options.streams()))))
                .collect::<Result<_, _>>()?,
            Pool::Engine | Pool::NoEstimates | Pool::LowEstimates => {
                let memory = Memory::builder()
                    .max(bytes)
                    .high_policy(HighPolicy::Owe)
                    .ticker(true)
                    .build()?;
                let arbiter = Arbiter::new(&memory, Policy::default());
                let shared = session(tables, partitions, None)?;
                let mut engine = TenantEngine::builder(&shared, &arbiter);
                engine = match pool {
                    Pool::NoEstimates => engine.shapes_max(0),
                    Pool::LowEstimates => engine.estimate(|bytes| bytes / 10),
                    _ => engine,
                };
                let engine = engine.build();
                let limits = Limits::max(bytes * options.tenant_percent / 100);
                let tenant = |number| {
                    let name = format!("tenant-{number}");
                    let _group = memory.root().child(&name, limits)?;
                    Ok(engine.tenant(&name)?)
                };
                let tenants = (1..=options.tenants).map(tenant);
                let tenants = tenants.collect::<Result<_, Failure>>()?;
                return Ok(Self::Engine {
                    tenants,
                    _ticker: arbiter.start_ticker(TICK)?,
                    arbiter,
                });
            }
        };
        Ok(Self::Pools(sessions))
    }

    /// The arbiter of an engine.
    pub fn arbiter(&self) -> Option<Arbiter> {
        match self {
            Self::Pools(_) => None,
            Self::Engine { arbiter, .. } => Some(arbiter.clone()),
        }
    }

    /// A pool without a limit, and the group that counts its bytes.
    pub fn unlimited(tables: &Tables, options: &Options) -> Result<(Self, Group), Failure> {
        let memory = Memory::builder().build()?;
        let group = memory.root().child("all", Limits::none())?;
        let pool = GroupPool::new(group.clone());
        let session = session(tables, options.partitions.count(), Some(pool))?;
        Ok((Self::Pools(vec![session]), group))
    }

    /// Runs a query of a stream, and drops its rows.
    pub async fn query(&self, stream: usize, sql: &str) -> Result<Ended> {
        let mut rows = 0;
        let outcome = match self {
            Self::Pools(sessions) => {
                let session = &sessions[stream % sessions.len()];
                let run = run(session, sql, |batch| rows += batch.num_rows());
                run.await.map(|_| (1, Duration::ZERO))
            }
            Self::Engine { tenants, .. } => {
                run_admitted(&tenants[stream % tenants.len()], sql, &mut rows).await
            }
        };
        match outcome {
            Ok((tries, waited)) => Ok(Ended::Done { tries, waited }),
            Err(error) => match error.find_root() {
                DataFusionError::ResourcesExhausted(_) => Ok(Ended::Refused { had_rows: rows > 0 }),
                _ => Err(error),
            },
        }
    }

    /// Waits until tasks of queries that were given up have ended, and with them all that they had.
    pub async fn settle(&self) -> Result<(), Failure> {
        let settled = async {
            match self {
                Self::Pools(sessions) => {
                    let pool = |session: &SessionContext| session.runtime_env().memory_pool.clone();
                    let pools: Vec<_> = sessions.iter().map(pool).collect();
                    // DataFusion's pools tell nobody.
                    while pools.iter().any(|pool| pool.reserved() > 0) {
                        yield_now().await;
                    }
                }
                Self::Engine { tenants, .. } => {
                    for tenant in tenants {
                        tenant.group().close()?;
                        tenant.group().emptied().await;
                    }
                }
            }
            Ok(())
        };
        timeout(PATIENCE, settled).await?
    }
}

/// A session with the tables, on a pool.
fn session(
    tables: &Tables,
    partitions: usize,
    pool: Option<Arc<dyn MemoryPool>>,
) -> Result<SessionContext> {
    let mut runtime = RuntimeEnvBuilder::new();
    if let Some(pool) = pool {
        runtime = runtime.with_memory_pool(pool);
    }
    let config = SessionConfig::new().with_target_partitions(partitions);
    let session = SessionContext::new_with_config_rt(config, runtime.build_arc()?);
    tables.register(&session)?;
    Ok(session)
}

/// Runs a query of a tenant. Returns its tries and the time that they waited.
async fn run_admitted(tenant: &Tenant, sql: &str, rows: &mut usize) -> Result<(u32, Duration)> {
    let begun = tenant.sql(None, sql).await;
    let mut stream = begun.map_err(|error| match error {
        TenantEngineError::DataFusion(error) => error,
        other => DataFusionError::External(Box::new(other)),
    })?;
    while let Some(batch) = stream.next().await {
        *rows += batch?.num_rows();
    }
    let admitted = stream.admitted();
    Ok((admitted.tries, admitted.waited))
}
