//! Sessions whose SQL cannot leave its group.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::context::{SQLOptions, SessionContext};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{LogicalPlan, Statement};

use crate::pool::GroupPool;

/// Options that a tenant may set: those that change how text is read and shown, and nothing that runs.
const MAY_SET: [&str; 4] = [
    "datafusion.execution.time_zone",
    "datafusion.explain.",
    "datafusion.format.",
    "datafusion.sql_parser.",
];

/// The options of the runtime: its pool, its disk and its caches.
const RUNTIME: &str = "datafusion.runtime.";

/// A session for statements of a tenant, whom nobody trusts.
///
/// In DataFusion 55.2, `SET datafusion.runtime.memory_limit` puts another pool in the place of the session's, and `RESET` one without a limit.
/// Other statements move the spill directory, or keep rows in memory that no pool is charged for. A tenant session plans each statement,
/// looks at the plan, and runs it only if it leaves the tenant in its group:
///
/// * The options of the runtime are never changed.
/// * Other options are changed if they are on a list: time zone, text formats, `EXPLAIN`, and the parser. [`TenantSession::may_set`] adds
///   to it. Sizes of batches and numbers of partitions are not on it: each partition takes memory that it does not reserve.
/// * DDL and DML need [`TenantSession::allow`]. `CREATE TABLE t AS SELECT` keeps rows that belong to no pool, and `COPY` and
///   `CREATE EXTERNAL TABLE` name files of the server.
/// * Before and after each statement the session must have the runtime that it began with.
///
/// A tenant can still use CPU time, and what operators take without reserving it: [`crate::PoolBuilder`] has a gate for the latter,
/// `refuse_by_real_bytes`.
///
/// ```
/// use bursar::{Limits, Memory};
/// use bursar_datafusion::{GroupPool, TenantSession, TenantSqlError};
/// use datafusion::execution::runtime_env::RuntimeEnvBuilder;
/// use datafusion::prelude::{SessionConfig, SessionContext};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = Memory::builder().build()?;
/// let tenant = memory.root().child("tenant-a", Limits::max(1 << 30))?;
/// let pool = GroupPool::new(tenant.child("query-7", Limits::none())?);
/// let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool.clone()).build_arc()?;
/// let context = SessionContext::new_with_config_rt(SessionConfig::new(), runtime);
/// // Register the tenant's tables here.
/// let session = TenantSession::new(context, &pool);
/// session.sql("SELECT 1").await?.collect().await?;
/// let escape = session.sql("SET datafusion.runtime.memory_limit = '64G'").await;
/// assert!(matches!(escape, Err(TenantSqlError::Forbidden { .. })));
/// # Ok(())
/// # }
/// ```
pub struct TenantSession {
    context: SessionContext,
    runtime: Arc<RuntimeEnv>,
    options: SQLOptions,
    may_set: Vec<String>,
}

/// Error of [`TenantSession::sql`].
#[non_exhaustive]
pub enum TenantSqlError {
    /// The statement might leave the group, and was not run.
    Forbidden {
        /// The part of the statement that is forbidden.
        what: String,
    },
    /// Code of the program has changed the session's runtime, so the session may have another pool. No statement runs any more.
    RuntimeChanged,
    /// DataFusion's, of planning or of running.
    DataFusion(DataFusionError),
}

impl fmt::Display for TenantSqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden { what } => write!(f, "a tenant may not use {what}"),
            Self::RuntimeChanged => f.write_str(
                "the session has another runtime than at its start, and so perhaps another memory pool: make a new session",
            ),
            Self::DataFusion(error) => error.fmt(f),
        }
    }
}

bursar::debug_as_message!(enum TenantSqlError { Forbidden { what }, RuntimeChanged, DataFusion(error) });

impl std::error::Error for TenantSqlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::DataFusion(error) => Some(error),
            _ => None,
        }
    }
}

impl From<DataFusionError> for TenantSqlError {
    fn from(error: DataFusionError) -> Self {
        Self::DataFusion(error)
    }
}

impl fmt::Debug for TenantSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantSession")
            .field("pool", &self.runtime.memory_pool)
            .field("options", &self.options)
            .field("may_set", &self.may_set)
            .finish_non_exhaustive()
    }
}

impl TenantSession {
    /// Makes a session of a context with tables, which the program has made.
    ///
    /// # Panics
    /// If the context's pool is not `pool`: then the tenant would be outside of its group from the start.
    pub fn new(context: SessionContext, pool: &Arc<GroupPool>) -> Self {
        let runtime = context.runtime_env();
        let has_pool = std::ptr::addr_eq(Arc::as_ptr(&runtime.memory_pool), Arc::as_ptr(pool));
        assert!(
            has_pool,
            "the session's pool is {}, not {pool}",
            runtime.memory_pool
        );
        Self {
            context,
            runtime,
            options: SQLOptions::new()
                .with_allow_ddl(false)
                .with_allow_dml(false),
            may_set: MAY_SET.map(str::to_owned).to_vec(),
        }
    }

    /// Sets whether DDL, DML and statements such as `SET` and `PREPARE` are allowed; only the last are unless set. The runtime's
    /// options stay forbidden.
    pub fn allow(mut self, options: SQLOptions) -> Self {
        self.options = options;
        self
    }

    /// Adds options that the tenant may set, by name, or by a beginning with a dot at the end. The runtime's options stay forbidden.
    pub fn may_set(mut self, name: impl Into<String>) -> Self {
        self.may_set.push(name.into().to_lowercase());
        self
    }

    /// Plans a statement, and runs it if it leaves the tenant in its group. A query runs when the frame is collected.
    ///
    /// # Errors
    /// [`TenantSqlError`].
    pub async fn sql(&self, text: &str) -> Result<DataFrame, TenantSqlError> {
        self.check_runtime()?;
        let plan = self.context.state().create_logical_plan(text).await?;
        self.check(&plan)?;
        let frame = self.context.execute_logical_plan(plan).await?;
        self.check_runtime()?;
        Ok(frame)
    }

    fn check_runtime(&self) -> Result<(), TenantSqlError> {
        match Arc::ptr_eq(&self.context.runtime_env(), &self.runtime) {
            true => Ok(()),
            false => Err(TenantSqlError::RuntimeChanged),
        }
    }

    fn check(&self, plan: &LogicalPlan) -> Result<(), TenantSqlError> {
        let verified = self.options.verify_plan(plan);
        verified.map_err(|refusal| TenantSqlError::Forbidden {
            what: refusal.strip_backtrace(),
        })?;
        let mut forbidden = None;
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::Statement(statement) = node {
                forbidden = self.forbidden(statement);
            }
            Ok(match forbidden {
                Some(_) => TreeNodeRecursion::Stop,
                None => TreeNodeRecursion::Continue,
            })
        })?;
        match forbidden {
            Some(what) => Err(TenantSqlError::Forbidden { what }),
            None => Ok(()),
        }
    }

    /// The option that a statement may not change. A kind of statement that an upgrade adds does not compile here.
    fn forbidden(&self, statement: &Statement) -> Option<String> {
        let (verb, variable) = match statement {
            Statement::SetVariable(set) => ("SET", &set.variable),
            Statement::ResetVariable(reset) => ("RESET", &reset.variable),
            Statement::TransactionStart(_)
            | Statement::TransactionEnd(_)
            | Statement::Prepare(_)
            | Statement::Execute(_)
            | Statement::Deallocate(_) => return None,
        };
        let name = variable.to_lowercase();
        let is_listed = |listed: &String| match listed.ends_with('.') {
            true => name.starts_with(listed),
            false => name == *listed,
        };
        let may = !name.starts_with(RUNTIME) && self.may_set.iter().any(is_listed);
        (!may).then(|| format!("{verb} {}", bursar::printable(variable)))
    }
}
