//! DataFusion's memory pools as Bursar's groups: every tenant, query and operator of an engine, with limits that hold.
//!
//! DataFusion tells a pool which consumer wants memory, and nothing of queries or tenants. So **the pool is a group**: a
//! tenant's group is made once, each query gets a group below it, and the query's group is the pool of that query, on a runtime
//! that all queries share:
//!
//! ```
//! use bursar::{Limits, Memory};
//! use bursar_datafusion::{FairShare, GroupPool, History};
//! use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool};
//! use datafusion_execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
//! use std::sync::Arc;
//!
//! let memory = Memory::builder().max(8 << 30).build()?;
//! let tenant = memory.root().child("tenant-a", Limits::max(2 << 30))?;
//! let share = FairShare::new(&tenant);      // those of its operators that spill share what it has
//! let history = History::new(100);          // of the last queries
//! let shared = RuntimeEnv::default();       // disk, caches, object stores: one for all
//!
//! let query = tenant.child("query-7", Limits::none())?;
//! let pool = GroupPool::builder(query)
//!     .share(&share)
//!     .never_refuse(["RepartitionExec"])    // which may hang in DataFusion 55.2, if it is
//!     .history(&history)
//!     .build();
//! let runtime = RuntimeEnvBuilder::from_runtime_env(&shared).with_memory_pool(pool).build_arc()?;
//! // let context = SessionContext::new_with_config_rt(config, runtime), and so on
//! if let Some(pool) = runtime.memory_pool.downcast_ref::<GroupPool>() {
//!     println!("{}", pool.report());
//! }
//! # let pool: Arc<dyn MemoryPool> = Arc::clone(&runtime.memory_pool);
//! # let sorter = MemoryConsumer::new("ExternalSorter[0]").with_can_spill(true).register(&pool);
//! # sorter.try_grow(1 << 20)?;
//! # assert_eq!(tenant.find("query-7").and_then(|query| query.find("ExternalSorter")).map(|o| o.path()).as_deref(),
//! #     Some("/tenant-a/query-7/ExternalSorter"));
//! # drop((pool, runtime, sorter));
//! for query in history.finished() {
//!     println!("{query}");
//! }
//! # assert_eq!(history.finished().len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * Below the query's group each operator has one of its own ([`Operators`]), which costs a call half a nanosecond more (BENCHMARKS.md).
//! * A refused request fails with `ResourcesExhausted`, so operators that can spill do. The text names the group whose
//!   limit refused and the users of the memory ([`GroupPool`] shows one). [`RefusalText`] takes it apart.
//! * [`FairShare`] divides a tenant's limit among the spillers that hold memory, in all its queries.
//! * [`PoolBuilder::spill_from`] makes operators spill before the limit is reached.
//! * [`PoolBuilder::never_refuse`] exempts operators that fail to handle a refusal, such as `RepartitionExec` of
//!   DataFusion 55.2: its query may then never end, under any pool.
//! * [`History`] keeps the figures of finished queries.
//! * With the feature `sql`, `TenantEngine` does this for each query of a server. It admits queries, so that they wait instead of being
//!   refused, and runs those again that memory was too little for.
//! * With the feature `sql`, `View` makes groups and queries tables: `SELECT * FROM bursar_memory()`.
//! * A request seldom leaves its CPU, unless a limit is near: a CPU holds enough stock of an operator's group for 32 requests
//!   of the size that it sees, up to [`bursar::Builder::stock_max`].
//! * For Arrow, a pool is also an [`arrow_buffer::MemoryPool`].
//!
//! # On an async runtime
//! Do not build the memory with [`bursar::HighPolicy::Throttle`]. With it, a request above a group's `high` sleeps in
//! its thread for up to 2 s, and delays all tasks of that thread. By default no request sleeps. To slow queries down
//! above `high`, take the debt ([`bursar::Group::take_debt`], of each operator's group) between batches, and wait as
//! the runtime does.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// The guides whose examples need this crate: they are compiled and run.
#[cfg(all(doctest, feature = "sql"))]
mod guides {
    #[doc = include_str!("../../../docs/guides/datafusion.md")]
    mod datafusion {}
    #[doc = include_str!("../../../docs/guides/sql.md")]
    mod sql {}
}

mod arrow;
mod builder;
mod chain;
mod engine_version;
mod file_caches;
mod history;
#[cfg(feature = "real-bytes")]
mod in_query;
mod names;
mod operators;
#[cfg(feature = "parquet")]
mod parquet_sink;
mod pool;
mod pools;
#[cfg(feature = "real-bytes")]
mod real;
mod refusal;
mod report;
mod share;
mod sort;
mod spill_request;
mod spill_space;
mod spilling;
#[cfg(feature = "sql")]
mod sql;
mod table;
#[cfg(feature = "sql")]
mod tenant_engine;
#[cfg(feature = "sql")]
mod tenant_session;

use std::sync::Arc;

use bursar::Group;

pub use builder::PoolBuilder;
pub use file_caches::charged_caches;
pub use history::History;
pub use operators::Operators;
#[cfg(feature = "parquet")]
pub use parquet_sink::ChargedParquet;
pub use pool::GroupPool;
pub use pools::{Pools, UnknownPath};
#[cfg(feature = "real-bytes")]
pub use real::{FollowQuery, InstallError, RealBytes, RealReport};
pub use refusal::{RefusalText, Resource};
pub use report::{Leftover, OperatorReport, QueryReport};
pub use share::FairShare;
pub use spill_space::SpillSpace;
#[cfg(feature = "sql")]
pub use sql::View;
#[cfg(feature = "sql")]
pub use tenant_engine::{
    Admitted, PreparedQuery, Repeat, Tenant, TenantEngine, TenantEngineBuilder, TenantEngineError,
    TenantStream,
};
#[cfg(feature = "sql")]
pub use tenant_session::{TenantSession, TenantSqlError};

/// Pools of groups. Its name differs from `bursar_alloc`'s `GroupExt`, because programs use both.
pub trait PoolExt {
    /// Makes the pool for this group, with a group for each operator below it: [`GroupPool::new`].
    fn pool(&self) -> Arc<GroupPool>;
}

impl PoolExt for Group {
    fn pool(&self) -> Arc<GroupPool> {
        GroupPool::new(self.clone())
    }
}
