//! Bounds of what the statements of a tenant may do.

use datafusion::common::ParamValues;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::SessionState;
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::{Expr, LogicalPlan, Statement};

use super::TenantSqlError;
use super::depth::{Shape, check_plan, parse};
use super::error::words;
use super::tables::check_tables;
use super::values::{References, check_values};
use crate::engine_version::{MAY_SET, RUNTIME};

const STATEMENT_BYTES_MAX: usize = 64 << 10;
const DEPTH_MAX: usize = 100;
const PLANNING_STACK_BYTES: usize = 64 << 20;
/// A `range` of two million numbers.
const VALUE_BYTES_MAX: u64 = 16 << 20;

/// Bounds of a tenant's statements; see [`TenantSession`](super::TenantSession).
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) options: SQLOptions,
    may_set: Vec<String>,
    pub(super) statement_bytes_max: usize,
    pub(super) depth_max: usize,
    pub(crate) planning_stack_bytes: usize,
    pub(crate) value_bytes_max: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            options: SQLOptions::new()
                .with_allow_ddl(false)
                .with_allow_dml(false),
            may_set: MAY_SET.map(str::to_owned).to_vec(),
            statement_bytes_max: STATEMENT_BYTES_MAX,
            depth_max: DEPTH_MAX,
            planning_stack_bytes: PLANNING_STACK_BYTES,
            value_bytes_max: VALUE_BYTES_MAX,
        }
    }
}

impl Rules {
    pub(crate) fn add_may_set(&mut self, name: impl Into<String>) {
        self.may_set.push(name.into().to_lowercase());
    }

    /// Plans a statement, unless a rule forbids it. To be polled on the stack for planning.
    pub(crate) async fn plan(
        &self,
        state: &SessionState,
        text: &str,
    ) -> Result<(LogicalPlan, Shape), TenantSqlError> {
        let (bytes, max) = (text.len(), self.statement_bytes_max);
        if bytes > max {
            return Err(TenantSqlError::TooLong { bytes, max });
        }
        let dialect = state.config_options().sql_parser.dialect;
        let statement = parse(text, dialect, self.depth_max)?;
        check_tables(&statement, self.depth_max)?;
        let plan = state.statement_to_plan(statement).await?;
        let shape = check_plan(&plan, self.depth_max)?;
        self.check(&plan)?;
        self.check_values(&plan, state)?;
        Ok((plan, shape))
    }

    /// Checks the values of a plan, once more when its parameters have got values. The optimizer must not have seen these.
    pub(crate) fn check_values(
        &self,
        plan: &LogicalPlan,
        state: &SessionState,
    ) -> Result<(), TenantSqlError> {
        check_values(plan, state, self.value_bytes_max)
    }

    /// Checks the values that parameters are about to get.
    pub(crate) fn check_parameters(
        &self,
        references: &References,
        values: &ParamValues,
    ) -> Result<(), TenantSqlError> {
        references.check(self.value_bytes_max, |name| {
            let value = values.get_placeholders_with_values(name).ok()?;
            Some(value.value().size())
        })
    }

    /// The same for the arguments of an `EXECUTE`.
    pub(super) fn check_arguments(
        &self,
        references: &References,
        arguments: &[Expr],
        state: &SessionState,
    ) -> Result<(), TenantSqlError> {
        references.check_arguments(self.value_bytes_max, arguments, state)
    }

    fn check(&self, plan: &LogicalPlan) -> Result<(), TenantSqlError> {
        let mut forbidden = None;
        plan.apply_with_subqueries(|node| {
            if let Some(words) = words(node) {
                // Verification looks at the nodes below as well, so the last one that fails is the one that is forbidden.
                if self.options.verify_plan(node).is_err() {
                    forbidden = Some(words.to_owned());
                } else if let LogicalPlan::Statement(statement) = node {
                    forbidden = forbidden.take().or_else(|| self.forbidden(statement));
                }
            }
            Ok(TreeNodeRecursion::Continue)
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
            // `PREPARE` is counted and charged where it runs.
            Statement::Prepare(_)
            | Statement::TransactionStart(_)
            | Statement::TransactionEnd(_)
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
