//! Whether a query may run twice.

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::listing::ListingTable;
use datafusion::datasource::{MemTable, ViewTable, source_as_provider};
use datafusion::error::Result;
use datafusion::functions_table::generate_series::GenerateSeriesTable;
use datafusion::logical_expr::{
    Expr, LogicalPlan, ScalarUDF, TableScan, Volatility, WindowFunctionDefinition,
};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

/// Choice of the queries that run again when they were refused memory before their first rows.
///
/// Whatever is set, these run once: `COPY`, `INSERT` and other DML, DDL, `EXPLAIN ANALYZE`, and plans with a source that never ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeat {
    /// Those that surely return the same when they run again. All their tables are known to be readable again: `MemTable`,
    /// `ListingTable`, views of these, `generate_series`, and tables without rows. A provider of another type may be a stream, whose second
    /// reader would find it empty. All their functions are DataFusion's own, or not volatile. They have no nodes that an extension defines.
    #[default]
    Auto,
    /// None.
    Never,
    /// All. The program promises that each table can be read again, and that functions have no lasting effect.
    Always,
}

impl Repeat {
    /// Whether a plan may run twice, as far as the logical plan shows.
    pub(super) fn allows(self, plan: &LogicalPlan) -> bool {
        self != Self::Never && self.allows_all_of(plan).unwrap_or(false)
    }

    fn allows_all_of(self, plan: &LogicalPlan) -> Result<bool> {
        let mut may = true;
        plan.apply_with_subqueries(|node| {
            let has_effect = matches!(
                node,
                LogicalPlan::Dml(_)
                    | LogicalPlan::Ddl(_)
                    | LogicalPlan::Copy(_)
                    | LogicalPlan::Analyze(_)
                    | LogicalPlan::Statement(_)
            );
            may &= !has_effect && (self == Self::Always || is_known(node)?);
            Ok(match may {
                true => TreeNodeRecursion::Continue,
                false => TreeNodeRecursion::Stop,
            })
        })?;
        Ok(may)
    }
}

/// Whether a node is sure to return the same when it runs again, if those below do.
fn is_known(node: &LogicalPlan) -> Result<bool> {
    let mut is_known = match node {
        LogicalPlan::Extension(_) => false,
        LogicalPlan::TableScan(scan) => is_readable_again(scan)?,
        _ => true,
    };
    node.apply_expressions(|expr| {
        expr.apply(|expr| {
            is_known &= !is_volatile(expr);
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(is_known)
}

fn is_readable_again(scan: &TableScan) -> Result<bool> {
    let Ok(provider) = source_as_provider(&scan.source) else {
        return Ok(false);
    };
    let provider: &dyn TableProvider = provider.as_ref();
    if let Some(view) = provider.downcast_ref::<ViewTable>() {
        return Repeat::Auto.allows_all_of(view.logical_plan());
    }
    Ok(provider.is::<MemTable>()
        || provider.is::<ListingTable>()
        || provider.is::<EmptyTable>()
        || provider.is::<CteWorkTable>()
        || provider.is::<GenerateSeriesTable>())
}

/// Whether an expression calls a volatile function that is not DataFusion's own.
fn is_volatile(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => {
            call.func.signature().volatility == Volatility::Volatile && !is_own(&call.func)
        }
        Expr::AggregateFunction(call) => call.func.signature().volatility == Volatility::Volatile,
        Expr::WindowFunction(call) => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(fun) => {
                fun.signature().volatility == Volatility::Volatile
            }
            WindowFunctionDefinition::WindowUDF(fun) => {
                fun.signature().volatility == Volatility::Volatile
            }
        },
        Expr::HigherOrderFunction(call) => call.func.signature().volatility == Volatility::Volatile,
        _ => false,
    }
}

/// Whether a volatile function is DataFusion's own, by its type: a program may give its own function such a name.
fn is_own(function: &ScalarUDF) -> bool {
    let shown = format!("{:?}", function.inner());
    shown.starts_with("RandomFunc ") || shown.starts_with("UuidFunc ")
}

/// Whether some part of a physical plan never ends.
pub(super) fn is_endless(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let mut is_endless = false;
    let walked = plan.apply(|node| {
        is_endless |= node.boundedness().is_unbounded();
        Ok(TreeNodeRecursion::Continue)
    });
    is_endless || walked.is_err()
}
