//! An engine that runs the queries of tenants: admitted, charged, and run again if memory was too little.

mod attempt;
mod error;
mod prepared;
mod repeat;
mod settings;
mod shape;
mod source_wait;
mod stream;
mod yielder;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar::{Group, Memory};
use bursar_arbiter::{Arbiter, Shapes};
use datafusion::dataframe::DataFrame;
use datafusion::execution::context::{SQLOptions, SessionContext, SessionState};
use datafusion::logical_expr::{DdlStatement, EmptyRelation, LogicalPlan, Statement};

use crate::history::History;
use crate::tenant_session::{Rules, TenantSqlError, on_stack};
use attempt::Query;
use settings::Engine;

pub use error::TenantEngineError;
pub use prepared::PreparedQuery;
pub use repeat::Repeat;
pub use settings::Tenant;
pub use stream::{Admitted, TenantStream};

/// Shapes whose peaks are known.
const SHAPES_MAX: usize = 4096;

/// Runs the queries of tenants. Each waits for its turn, gets a part of its tenant's memory, and loses no rows to a limit that it could
/// have kept.
///
/// It is made once, from a session with the tables of all, and the arbiter of a memory. Cloning makes another handle. For each query it
///
/// 1. checks and plans the statement as [`TenantSession`](crate::TenantSession) does,
/// 2. asks the arbiter for memory: as much as queries of its shape took before, or a part of the tenant's
///    ([`bursar_arbiter::Policy::default_percent`]), and waits until it can have that, perhaps with fewer partitions,
/// 3. plans and runs it with as many partitions as it was granted, in a [`GroupPool`](crate::GroupPool) of the grant's group. Its spillers
///    share that grant, unless its shape is known: then nothing is refused until the grant is used up. `RepartitionExec` is never refused.
///    A request that the grant is too small for makes it larger, while nobody waits; if its consumer cannot spill, also while others wait,
/// 4. gives back all at the end of the stream, and when it is dropped.
///
/// **Again.** If it is refused memory before its first rows were delivered, all that it had is given back, and it waits until it can have
/// a quarter more than it turned out to need, or three times as much if its shape was not known. The third time it runs with one partition,
/// alone in its tenant, with all that the tenant may have; earlier if it is known to need as much. See [`Repeat`] for the queries that never
/// run twice. `now()` keeps its value.
///
/// **Waits.** A query that grows looks for memory at its sources, before each batch. If there is little left, and its spillers hold less than it may need
/// next, its sources stay pending until others give memory back, at most [`bursar_arbiter::Yielding::room_max`]. It keeps what it has. If queries wait for each other, the arbiter stops one
/// ([`bursar_arbiter`'s page](bursar_arbiter#yielding) has the order), and that one runs again. A query that cannot run again is never stopped.
/// A stopped query gives its memory back at the next poll of its stream, so a client must poll.
/// [`Arbiter::decisions`] tells who was stopped, and for whom.
///
/// The groups of tenants are the program's: it makes them before, with their limits, and keeps their handles. The arbiter needs a ticker
/// ([`Arbiter::start_ticker`]): it notices the end of waits that time alone ends.
///
/// ```
/// use bursar::{Limits, Memory};
/// use bursar_arbiter::{Arbiter, Policy};
/// use bursar_datafusion::{TenantEngine, TenantEngineError};
/// use datafusion::prelude::SessionContext;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = Memory::builder().max(8 << 30).build()?;
/// let acme = memory.root().child("acme", Limits::max(1 << 30))?;      // kept as long as the tenant
/// let engine = TenantEngine::new(&SessionContext::new(), &Arbiter::new(&memory, Policy::default()));
/// let batches = engine.tenant("acme")?.sql(None, "SELECT 1").await?.collect().await?;
/// assert_eq!(batches[0].num_rows(), 1);
/// assert!(matches!(engine.tenant("nobody"), Err(TenantEngineError::NoTenant { .. })));
/// # assert_eq!(acme.reserved(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TenantEngine {
    engine: Arc<Engine>,
}

/// Settings of a [`TenantEngine`]; see [`TenantEngine::builder`].
#[must_use = "a builder makes nothing until it builds"]
pub struct TenantEngineBuilder(Engine);

impl fmt::Debug for TenantEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantEngine")
            .field("arbiter", &self.engine.arbiter)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TenantEngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantEngineBuilder")
            .field("arbiter", &self.0.arbiter)
            .finish_non_exhaustive()
    }
}

impl TenantEngine {
    /// Makes the engine of a session, which runs no query itself, and of an arbiter.
    ///
    /// The session has the tables, functions and settings of all. Its `target_partitions` are the most that a query runs with.
    pub fn new(shared: &SessionContext, arbiter: &Arbiter) -> Self {
        Self::builder(shared, arbiter).build()
    }

    /// Returns the settings of an engine.
    pub fn builder(shared: &SessionContext, arbiter: &Arbiter) -> TenantEngineBuilder {
        TenantEngineBuilder(Engine {
            shared: shared.clone(),
            arbiter: arbiter.clone(),
            disk: None,
            history: None,
            #[cfg(feature = "real-bytes")]
            real: None,
            #[cfg(feature = "real-bytes")]
            ends_by_real_bytes: false,
            rules: Rules::default(),
            repeat: Repeat::Auto,
            hold_first: 0,
            patience: None,
            percent: 90,
            estimate: Box::new(|bytes| bytes),
            shapes: Mutex::new(Shapes::new(SHAPES_MAX)),
            biases: Mutex::default(),
        })
    }

    /// Finds a tenant by the path of its group, such as `acme` or `europe/acme`. The handle keeps the group.
    ///
    /// # Errors
    /// [`TenantEngineError::NoTenant`]. A name from a request never makes a group.
    pub fn tenant(&self, path: &str) -> Result<Tenant, TenantEngineError> {
        let found = find(self.engine.arbiter.memory(), path);
        let group = found.ok_or_else(|| TenantEngineError::NoTenant {
            path: path.to_owned(),
        })?;
        let disk = self.engine.disk.as_ref();
        let disk = disk.map(|disk| find(disk, path).unwrap_or_else(|| disk.root()));
        Ok(Tenant {
            engine: self.engine.clone(),
            group,
            disk,
            score: 0,
        })
    }
}

/// The group at a path of names; none for the root.
fn find(memory: &Memory, path: &str) -> Option<Group> {
    let names = path.strip_prefix('/').unwrap_or(path);
    let mut group = memory.root();
    for name in names.split('/') {
        group = group.find(name)?;
    }
    Some(group)
}

impl TenantEngineBuilder {
    /// Charges spill files to a tree of disk space; to none unless set. A tenant's files are charged to the group with the path of
    /// its group, or to the root if there is none. See [`SpillSpace`](crate::SpillSpace).
    pub fn disk(mut self, disk: &Memory) -> Self {
        self.0.disk = Some(disk.clone());
        self
    }

    /// Sets the history that the report of each try goes to; none unless set.
    pub fn history(mut self, history: &History) -> Self {
        self.0.history = Some(history.clone());
        self
    }

    /// Counts the bytes that queries really take, beside those that they reserve, and refuses requests of queries that take more than
    /// their grant or a limit; see [`PoolBuilder::refuse_by_real_bytes`](crate::PoolBuilder::refuse_by_real_bytes). A grant becomes larger
    /// first, if that is possible, and queries of a shape ask for what the last ones really took.
    #[cfg(feature = "real-bytes")]
    pub fn real_bytes(mut self, real: &crate::real::RealBytes) -> Self {
        self.0.real = Some(real.clone());
        self
    }

    /// Ends a query that has really held more than its limit, before the next batch of one of its tables; none is ended unless set. Its grant
    /// becomes larger first, if that is possible. The error is a refusal: before its first rows the query waits for what it held, and runs
    /// again.
    ///
    /// This is for memory that nothing reserves, such as the value of a function, or a copy that a join makes: the next request of the query
    /// would be refused, but there may be none. One batch is never interrupted. Without
    /// [`TenantEngineBuilder::real_bytes`] it has no effect.
    #[cfg(feature = "real-bytes")]
    pub fn end_by_real_bytes(mut self) -> Self {
        self.0.ends_by_real_bytes = true;
        self
    }

    /// Sets whether DDL, DML and statements such as `SET` are allowed; see [`TenantSession::allow`](crate::TenantSession::allow).
    pub fn allow(mut self, options: SQLOptions) -> Self {
        self.0.rules.options = options;
        self
    }

    /// Adds options that tenants may set in sessions of their own; see [`TenantSession::may_set`](crate::TenantSession::may_set).
    pub fn may_set(mut self, name: impl Into<String>) -> Self {
        self.0.rules.add_may_set(name);
        self
    }

    /// Bounds the bytes of the values that functions of a statement make from lengths in it; see
    /// [`TenantSession::value_bytes_max`](crate::TenantSession::value_bytes_max).
    pub fn value_bytes_max(mut self, bytes: u64) -> Self {
        self.0.rules.value_bytes_max = bytes;
        self
    }

    /// Sets which queries run again; [`Repeat::Auto`] unless set.
    pub fn repeat(mut self, repeat: Repeat) -> Self {
        self.0.repeat = repeat;
        self
    }

    /// Holds the first rows of each query until they take so many bytes, or it ends; 0 unless set. Until then it can run again. Rows
    /// that are held are charged to the query. If they are refused, they are delivered.
    pub fn hold_first(mut self, bytes: usize) -> Self {
        self.0.hold_first = bytes;
        self
    }

    /// Bounds the time that a query waits for admission; without end unless set. See [`bursar_arbiter::Ask::patience`] for who notices.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.0.patience = Some(patience);
        self
    }

    /// Sets which of the last peaks of its shape a query asks for, percent; 90 unless set. With 100 it is the largest of the last eight.
    pub fn percent(mut self, percent: u32) -> Self {
        self.0.percent = percent;
        self
    }

    /// Changes what a query asks for, from the bytes that queries of its shape took. For example, it adds a margin. If queries turn out to take more
    /// than that, the next ones ask for more ([`bursar_arbiter::Bias`]).
    pub fn estimate(mut self, estimate: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Self {
        self.0.estimate = Box::new(estimate);
        self
    }

    /// Bounds the shapes of queries whose peaks are known; 4096 unless set. With 0 each query asks for a part of its tenant's memory.
    pub fn shapes_max(mut self, shapes: usize) -> Self {
        self.0.shapes = Mutex::new(Shapes::new(shapes));
        self
    }

    /// Makes the engine.
    pub fn build(self) -> TenantEngine {
        TenantEngine {
            engine: Arc::new(self.0),
        }
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tenant").field(&self.group).finish()
    }
}

/// Number of the next query, of all engines: they may have groups of one tenant.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl Tenant {
    /// The tenant's group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Sets the score of the queries that this handle runs, among those of the tenant; 0 unless set. Higher ones come first.
    pub fn score(mut self, score: i32) -> Self {
        self.score = score;
        self
    }

    /// Plans a statement, waits until it is admitted, and begins to run it. Dropping the future gives up. `SET`, and statements about functions,
    /// take effect when they are admitted.
    ///
    /// `context` is the session of the tenant's client, with its settings and perhaps tables of its own; without one it is the session
    /// of all, which `SET` cannot change. Its memory pool is not used. `PREPARE` is forbidden, because nothing would be charged for what
    /// it keeps; `EXECUTE` runs what the program has prepared, and [`Tenant::prepare`] is for protocols that prepare by themselves.
    ///
    /// # Errors
    /// [`TenantEngineError`].
    pub async fn sql(
        &self,
        context: Option<&SessionContext>,
        text: &str,
    ) -> Result<TenantStream, TenantEngineError> {
        let stack = self.engine.rules.planning_stack_bytes;
        let planned = on_stack(stack, self.plan(context, text)).await;
        let (frame, change) = planned.map_err(TenantEngineError::Statement)?;
        let stream = self.run(frame).await?;
        // Not if the statement was not admitted.
        if let Some((context, plan)) = change {
            let changed = on_stack(stack, context.execute_logical_plan(plan)).await;
            changed.map_err(|error| TenantEngineError::Statement(error.into()))?;
        }
        Ok(stream)
    }

    /// The state of a session, or of all.
    fn state(&self, context: Option<&SessionContext>) -> SessionState {
        context.unwrap_or(&self.engine.shared).state()
    }

    /// Returns also the change of a session that the statement makes, which has no rows.
    async fn plan<'a>(
        &self,
        context: Option<&'a SessionContext>,
        text: &str,
    ) -> Result<(DataFrame, Option<(&'a SessionContext, LogicalPlan)>), TenantSqlError> {
        let of_all = &self.engine.shared;
        let state = self.state(context);
        let (plan, _) = self.engine.rules.plan(&state, text).await?;
        let forbidden = |what: &str| {
            Err(TenantSqlError::Forbidden {
                what: what.to_owned(),
            })
        };
        match &plan {
            LogicalPlan::Statement(Statement::Prepare(_)) => forbidden("PREPARE"),
            LogicalPlan::Statement(Statement::Deallocate(_)) => forbidden("DEALLOCATE"),
            LogicalPlan::Statement(Statement::Execute(_)) => {
                let frame = context.unwrap_or(of_all).execute_logical_plan(plan).await?;
                self.engine
                    .rules
                    .check_values(frame.logical_plan(), &state)?;
                Ok((frame, None))
            }
            LogicalPlan::Statement(_)
            | LogicalPlan::Ddl(DdlStatement::CreateFunction(_) | DdlStatement::DropFunction(_)) => {
                let Some(context) = context else {
                    return forbidden("SET, or functions, without a session of its own");
                };
                let nothing = LogicalPlan::EmptyRelation(EmptyRelation {
                    produce_one_row: false,
                    schema: plan.schema().clone(),
                });
                Ok((DataFrame::new(state, nothing), Some((context, plan))))
            }
            _ => Ok((DataFrame::new(state, plan), None)),
        }
    }

    /// Does the same for a plan of the program, which is not checked.
    ///
    /// # Errors
    /// [`TenantEngineError`].
    pub async fn run(&self, frame: DataFrame) -> Result<TenantStream, TenantEngineError> {
        // Relaxed: only unique.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let query = Arc::new(Query::new(self.clone(), format!("query-{number}"), frame));
        let (turn, ask) = query.first_ask();
        let first = query.clone().begin(turn, ask).await?;
        Ok(TenantStream::new(query, first))
    }
}
