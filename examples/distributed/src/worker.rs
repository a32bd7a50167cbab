//! A worker: its memory, and a pool for each query that a coordinator sends parts of.

use std::net::SocketAddr;
use std::sync::Arc;

use bursar::{Freshness, HighPolicy, Limits, Memory};
use bursar_datafusion::{History, Pools};
use clap::ValueEnum;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion_distributed::{Worker, WorkerQueryContext};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

/// The header with a query's path, such as `tenant-a/query-7`.
pub const PATH: &str = "bursar-path";
/// The memory of a worker, bytes, and the part of it that a tenant may have.
pub const WORKER_MAX: u64 = 48 << 20;
pub const TENANTS: [(&str, u64); 2] = [("tenant-a", 24 << 20), ("tenant-b", 8 << 20)];

/// Pool that gives memory to queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// DataFusion's GreedyMemoryPool, one for all queries of a worker
    Greedy,
    /// A group for each tenant and each query
    Bursar,
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
    memory: Memory,
    /// `None` for a greedy one.
    pools: Option<Pools>,
    greedy: Arc<dyn MemoryPool>,
    history: History,
    /// Spill files, caches, object stores: one for all queries.
    shared: Arc<RuntimeEnv>,
}

impl Node {
    pub fn new(name: &str, kind: Kind) -> std::result::Result<Self, Box<dyn std::error::Error>> {
        // Limits are the worker's own: nobody adds up what a tenant has on other workers.
        let memory = Memory::builder()
            .max(WORKER_MAX)
            .high_policy(HighPolicy::Owe)
            .build()?;
        let history = History::new(10_000);
        let kept = history.clone();
        let pools = Pools::below(memory.root()).settings(move |builder, _| {
            // In DataFusion 55.2 a refused repartition may hang its query: apache/datafusion#24883.
            Ok(builder.never_refuse(["RepartitionExec"]).history(&kept))
        });
        for (tenant, max) in TENANTS {
            // A group lives as long as a handle, and this one as long as the process.
            std::mem::forget(memory.root().child(tenant, Limits::max(max))?);
        }
        Ok(Self {
            name: name.to_owned(),
            pools: (kind == Kind::Bursar).then_some(pools),
            greedy: Arc::new(GreedyMemoryPool::new(WORKER_MAX as usize)),
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
        let Some(pools) = &self.pools else {
            return Ok(self.greedy.clone());
        };
        let header = query.headers.get(PATH);
        let path = header.ok_or_else(|| refused("the request has no header bursar-path"))?;
        let path = path
            .to_str()
            .map_err(|_| refused("the header bursar-path is no text"))?;
        Ok(pools.get_or_create(path).map_err(refused)?)
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

    /// Bytes that are reserved now.
    pub fn reserved(&self) -> u64 {
        let greedy = self.greedy.reserved() as u64;
        let reading = self.memory.root().read(Freshness::Exact);
        greedy + reading.map_or(0, |reading| reading.usage_bytes())
    }

    /// Waits until the tasks of queries that have ended have returned all.
    pub async fn settle(&self) -> u64 {
        for _ in 0..200 {
            if self.reserved() == 0 {
                return 0;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        self.reserved()
    }
}

fn refused(why: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::Plan(format!("this worker takes no such query: {why}"))
}
