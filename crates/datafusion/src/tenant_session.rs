//! Sessions whose SQL cannot leave its group.

mod depth;
mod error;
mod prepared;
mod readings;
mod rules;
mod tables;
mod values;

use std::fmt;
use std::sync::Arc;

use datafusion::dataframe::DataFrame;
use datafusion::execution::context::{SQLOptions, SessionContext};
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{LogicalPlan, Statement};

use crate::pool::GroupPool;
use prepared::Prepared;

pub(crate) use depth::on_stack;
pub use error::TenantSqlError;
pub(crate) use prepared::prepared_bytes;
pub(crate) use rules::Rules;
pub(crate) use values::References;

/// A session for the statements of a tenant that is not trusted. No statement leaves the tenant's pool, or overflows the stack.
///
/// In DataFusion 55.2, `SET datafusion.runtime.memory_limit` puts another pool in the place of the session's, and `RESET` one without a limit.
/// Other statements move the spill directory, or keep rows in memory that no pool is charged for. Deep statements overflow the stack, which
/// ends the process. A tenant session looks at each statement and at its plan, and runs it only if it leaves the tenant in its group:
///
/// * The options of the runtime are never changed.
/// * Other options are changed if they are on a list: time zone, text formats, `EXPLAIN`, and how the parser reads text.
///   [`TenantSession::may_set`] adds to it. Sizes of batches and numbers of partitions are not on it: each partition takes memory that it
///   does not reserve.
/// * DDL and DML need [`TenantSession::allow`]. `CREATE TABLE t AS SELECT` keeps rows that belong to no pool, and `COPY` and
///   `CREATE EXTERNAL TABLE` name files of the server.
/// * `PREPARE` needs [`TenantSession::prepared_max`], and the group pays for each plan that is kept.
/// * The length and the depth of a statement are bounded: [`TenantSession::statement_bytes_max`], [`TenantSession::depth_max`]. So is the
///   parser's work. The statement is planned on a stack of stated size: [`TenantSession::planning_stack_bytes`].
/// * Values that functions make from lengths in the statement are bounded, as in `repeat('x', 1000000000)`:
///   [`TenantSession::value_bytes_max`].
/// * Before and after each statement the session must have the runtime that it began with.
///
/// A tenant can still use CPU time, the memory of planning, and memory that operators and functions take without reserving it: lengths
/// that `repeat`, `lpad` and `range` read from columns are not bounded, and a function makes a value for each row of a batch.
/// [`crate::PoolBuilder`] has a gate for operators, `refuse_by_real_bytes`. The guide has numbers and remedies for functions. With `information_schema` on, a tenant reads all options of the server by `SHOW ALL`.
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
    rules: Rules,
    prepared: Prepared,
}

impl fmt::Debug for TenantSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantSession")
            .field("pool", &self.runtime.memory_pool)
            .field("rules", &self.rules)
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
            rules: Rules::default(),
            prepared: Prepared::new(0),
        }
    }

    /// Sets whether DDL, DML and statements such as `SET` are allowed; only the last are unless set. The runtime's options stay
    /// forbidden, and `PREPARE` needs [`TenantSession::prepared_max`] as well.
    pub fn allow(mut self, options: SQLOptions) -> Self {
        self.rules.options = options;
        self
    }

    /// Adds options that the tenant may set, by name, or by a beginning with a dot at the end. The runtime's options stay forbidden.
    pub fn may_set(mut self, name: impl Into<String>) -> Self {
        self.rules.add_may_set(name);
        self
    }

    /// Bounds the bytes of a statement; 65,536 unless set. Its literals are part of it. Planning takes memory that no pool is charged
    /// for, about 40 bytes for each byte of a list of literals.
    pub fn statement_bytes_max(mut self, bytes: usize) -> Self {
        self.rules.statement_bytes_max = bytes;
        self
    }

    /// Bounds the levels of a statement; 100 unless set. An operator is a level, and so is each part of its longest expression.
    ///
    /// A stack of 2 MiB, as workers of tokio have it, is twice what 100 levels take in the dev profile. To allow more, give
    /// more stack to the threads that run queries, and to [`TenantSession::planning_stack_bytes`].
    pub fn depth_max(mut self, levels: usize) -> Self {
        self.rules.depth_max = levels;
        self
    }

    /// Sets the size of the stack on which statements are parsed and planned; 64 MiB unless set. Only the pages that planning touches take
    /// memory, until it ends. Collecting the frame uses the stack of its caller.
    pub fn planning_stack_bytes(mut self, bytes: usize) -> Self {
        self.rules.planning_stack_bytes = bytes;
        self
    }

    /// Bounds the bytes of the values that functions of a statement make from lengths and texts in it, together; 16 MiB unless set, a `range` of
    /// two million numbers. These functions reserve nothing, so the bound holds before one runs. A cast to a type of fixed length counts as
    /// well, as in `NULL::BIGINT[1000000000]`.
    ///
    /// Each call counts once, with its constant arguments: literals, parameters with values, and expressions of these. Of a text or list that is
    /// not constant, the constant parts count, as in `s || repeat('x', 1000)`, and one byte at least. A value takes
    ///
    /// * `repeat`: the bytes of its text times its number. `array_repeat`: the same, but an element counts as 8 bytes or more.
    /// * `array_resize`: its number of elements, of 8 bytes or more. One of a list that is not constant counts as 8.
    /// * `CAST`, `arrow_cast` and a parameter of `PREPARE`: the bytes of the type's fixed lengths, with elements of 8 bytes or
    ///   more. A list of such elements has no bound, as in `BIGINT[5][]`, and is refused.
    /// * `lpad` and `rpad`: 4 bytes for each character of the length, whatever the text.
    /// * `replace`: the bytes of its text, and those of the new text at each place that the text has room for.
    /// * `regexp_replace`: the same, with a place before each byte and at the end, and what references add. Without the flag `g` there is one place.
    /// * `array_to_string`: its list, and for each element the separator, the text for null, and the longest text of its type.
    ///   `concat_ws`: its texts, and a separator for each.
    /// * `array_replace_all`, `array_replace_n`: the list, and the new value for each element. `arrays_zip`: its lists, each as long as the longest.
    /// * `range` and `generate_series`: 8 bytes for each element, if all arguments are constant. An interval of months and days with
    ///   different signs counts as without end. After `FROM`, both are tables: these make batches, and have no bound.
    ///
    /// **Not bounded** are lengths and texts that are not constant, such as columns, also those of subqueries and views. So texts that are joined with
    /// themselves in subqueries of subqueries have no bound, nor has what a lambda makes for each element of a list, nor the compiled
    /// patterns of a function with a pattern from a column. A call whose arguments are not all constant makes such a value for each row of a
    /// batch. Arguments of table functions are evaluated while the statement is planned, so none of these functions may be there, and no cast
    /// to a list. For a bound of what queries really take see `TenantEngineBuilder::end_by_real_bytes`.
    pub fn value_bytes_max(mut self, bytes: u64) -> Self {
        self.rules.value_bytes_max = bytes;
        self
    }

    /// Lets the tenant keep this many prepared statements; none unless set. Each is charged to the group until `DEALLOCATE`, or until the
    /// session goes: 4 bytes for each byte of its text, and 512 for each node and expression of its plan.
    pub fn prepared_max(mut self, statements: usize) -> Self {
        self.prepared = Prepared::new(statements);
        self
    }

    /// Plans a statement, and runs it if it leaves the tenant in its group. A query runs when the frame is collected.
    ///
    /// # Errors
    /// [`TenantSqlError`].
    pub async fn sql(&self, text: &str) -> Result<DataFrame, TenantSqlError> {
        self.check_runtime()?;
        on_stack(self.rules.planning_stack_bytes, self.start(text)).await
    }

    /// Runs on the stack for planning, where all that a refused statement left is dropped as well.
    async fn start(&self, text: &str) -> Result<DataFrame, TenantSqlError> {
        let (plan, shape) = self.rules.plan(&self.context.state(), text).await?;
        let is_executed = matches!(&plan, LogicalPlan::Statement(Statement::Execute(_)));
        if let LogicalPlan::Statement(Statement::Execute(execute)) = &plan
            && let Some(references) = self.prepared.references(&execute.name)
        {
            let arguments = &execute.parameters;
            self.rules
                .check_arguments(&references, arguments, &self.context.state())?;
        }
        let (mut kept, mut freed) = (None, None);
        if let LogicalPlan::Statement(Statement::Prepare(prepare)) = &plan {
            self.prepared.charge(
                &prepare.name,
                text,
                (&prepare.input, shape),
                &self.runtime.memory_pool,
            )?;
            kept = Some(prepare.name.clone());
        } else if let LogicalPlan::Statement(Statement::Deallocate(deallocate)) = &plan {
            freed = Some(deallocate.name.clone());
        }
        let outcome = self.context.execute_logical_plan(plan).await;
        let unpaid = match outcome {
            Ok(_) => freed,
            Err(_) => kept,
        };
        if let Some(name) = unpaid {
            self.prepared.uncharge(&name);
        }
        let frame = outcome?;
        if is_executed {
            self.rules
                .check_values(frame.logical_plan(), &self.context.state())?;
        }
        self.check_runtime()?;
        Ok(frame)
    }

    fn check_runtime(&self) -> Result<(), TenantSqlError> {
        match Arc::ptr_eq(&self.context.runtime_env(), &self.runtime) {
            true => Ok(()),
            false => Err(TenantSqlError::RuntimeChanged),
        }
    }
}
