//! A worker: its memory, and a pool for each query that a coordinator sends parts of.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bursar::{Level, Memory};
use bursar_datafusion::{FairShare, History, Pools};
use clap::ValueEnum;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{FairSpillPool, GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion_distributed::{Worker, WorkerQueryContext};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use crate::load::{AT_ONCE, SETTLE, WORKER_MAX, memory_of_tenants, settle};

/// The part of a worker's memory that each of the queries that run at a time has, if parts are fixed.
pub const PART: u64 = WORKER_MAX / (AT_ONCE as u64 + 1);

/// The header with a query's path, such as `tenant-a/query-7`.
pub const PATH: &str = "bursar-path";
/// The header with the bytes that a query was granted on each worker.
pub const GRANTED: &str = "bursar-granted";

/// Pool that gives memory to queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// DataFusion's GreedyMemoryPool, one for all queries of a worker
    Greedy,
    /// DataFusion's FairSpillPool, one for all queries of a worker
    FairSpill,
    /// A GreedyMemoryPool for each query, with a fixed part of the worker's memory
    Fixed,
    /// A group for each tenant and each query, and the tenants' limits, but no admission
    Limits,
    /// The same with admission at the coordinator
    Bursar,
    /// Groups without limits, for one query at a time
    Alone,
}

/// Figures of one query on one worker.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub worker: String,
    pub path: String,
    pub peak: u64,
    pub spills: u64,
    pub refused: u64,
}

/// A worker in this process.
#[derive(Clone)]
pub struct Node {
    name: String,
    kind: Kind,
    memory: Memory,
    pools: Pools,
    /// The pool of all queries, of the kinds that have one.
    shared_pool: Arc<dyn MemoryPool>,
    /// Pools with a fixed part, by the query's path.
    parts: Arc<Mutex<BTreeMap<String, Weak<dyn MemoryPool>>>>,
    history: History,
    /// Spill files, caches, object stores: one for all queries.
    shared: Arc<RuntimeEnv>,
}

impl Node {
    pub fn new(name: &str, kind: Kind) -> std::result::Result<Self, Box<dyn std::error::Error>> {
        // Limits are the worker's own: nobody adds up what a tenant has on other workers.
        let memory = memory_of_tenants(kind != Kind::Alone)?;
        let history = History::new(10_000);
        let kept = history.clone();
        let pools = Pools::below(memory.root()).settings(move |builder, group| {
            // In DataFusion 55.2 a refused repartition may hang its query: apache/datafusion#24883.
            let builder = builder.never_refuse(["RepartitionExec"]).history(&kept);
            Ok(match kind {
                Kind::Bursar => builder
                    .share(&FairShare::new(group))
                    .spill_from(Level::Critical),
                _ => builder,
            })
        });
        let shared_pool: Arc<dyn MemoryPool> = match kind {
            Kind::FairSpill => Arc::new(FairSpillPool::new(WORKER_MAX as usize)),
            _ => Arc::new(GreedyMemoryPool::new(WORKER_MAX as usize)),
        };
        Ok(Self {
            name: name.to_owned(),
            kind,
            pools,
            shared_pool,
            parts: Arc::default(),
            history,
            shared: Arc::new(RuntimeEnv::default()),
            memory,
        })
    }

    /// Listens on a free port of this machine, and serves until the process ends.
    pub async fn serve(&self) -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let node = self.clone();
        let worker = Worker::from_session_builder(move |query: WorkerQueryContext| {
            let node = node.clone();
            async move {
                let pool = node.pool(&query)?;
                let runtime =
                    RuntimeEnvBuilder::from_runtime_env(&node.shared).with_memory_pool(pool);
                Ok(query.builder.with_runtime_env(runtime.build_arc()?).build())
            }
        });
        let server = Server::builder().add_service(worker.into_worker_server());
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Ok(address)
    }

    /// The pool of a query. Its parts come as calls of their own, and find the same pool.
    fn pool(&self, query: &WorkerQueryContext) -> Result<Arc<dyn MemoryPool>> {
        let path = header(query, PATH)?;
        match self.kind {
            Kind::Greedy | Kind::FairSpill => Ok(self.shared_pool.clone()),
            Kind::Fixed => Ok(self.part(path)),
            Kind::Limits | Kind::Alone => Ok(self.pools.get_or_create(path).map_err(refused)?),
            Kind::Bursar => {
                let bytes = header(query, GRANTED)?.parse().map_err(refused)?;
                let pool = self.pools.get_or_create(path).map_err(refused)?;
                pool.group().set_max(bytes);
                Ok(pool)
            }
        }
    }

    fn part(&self, path: &str) -> Arc<dyn MemoryPool> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|_, pool| pool.strong_count() > 0);
        if let Some(pool) = parts.get(path).and_then(Weak::upgrade) {
            return pool;
        }
        let part: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(PART as usize));
        parts.insert(path.to_owned(), Arc::downgrade(&part));
        part
    }

    /// Figures of the queries that have ended here.
    pub fn rows(&self) -> Vec<Row> {
        let row = |report: bursar_datafusion::QueryReport| Row {
            worker: self.name.clone(),
            path: report.path,
            peak: report.peak,
            spills: report.spills,
            refused: report.refused,
        };
        self.history.finished().into_iter().map(row).collect()
    }

    /// Ends the worker's groups, and waits until the tasks of queries that have ended have returned all. Returns the bytes that are left.
    pub async fn settle(&self) -> u64 {
        // DataFusion's pools tell nobody of a return.
        let shared = async {
            while self.shared_pool.reserved() > 0 {
                tokio::task::yield_now().await;
            }
        };
        let _ = tokio::time::timeout(SETTLE, shared).await;
        self.shared_pool.reserved() as u64 + settle(&self.memory).await
    }
}

fn header<'a>(query: &'a WorkerQueryContext, name: &str) -> Result<&'a str> {
    let value = query.headers.get(name);
    let value = value.ok_or_else(|| refused(format!("the request has no header {name}")))?;
    let text = value.to_str();
    text.map_err(|_| refused(format!("the header {name} is no text")))
}

fn refused(why: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::Plan(format!("this worker takes no such query: {why}"))
}
