//! The shape of a query: its plan without its literals.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::mem::discriminant;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan, WindowFunctionDefinition};

/// Key of a tenant's queries that differ only in their literals. A list of `IN` with more elements is another shape.
pub(super) fn key(tenant: &str, plan: &LogicalPlan) -> u64 {
    let mut hasher = DefaultHasher::new();
    tenant.hash(&mut hasher);
    let walked = plan.apply_with_subqueries(|node| {
        discriminant(node).hash(&mut hasher);
        node.inputs().len().hash(&mut hasher);
        match node {
            LogicalPlan::TableScan(scan) => {
                (&scan.table_name, &scan.projection).hash(&mut hasher);
            }
            LogicalPlan::Join(join) => join.join_type.hash(&mut hasher),
            _ => {}
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                hash_expression(expr, &mut hasher);
                Ok(TreeNodeRecursion::Continue)
            })
        })
    });
    // Without errors, as no closure has one.
    walked.is_ok().hash(&mut hasher);
    hasher.finish()
}

fn hash_expression(expr: &Expr, hasher: &mut DefaultHasher) {
    discriminant(expr).hash(hasher);
    match expr {
        Expr::Column(column) => (&column.relation, &column.name).hash(hasher),
        Expr::Literal(value, _) => value.data_type().hash(hasher),
        Expr::BinaryExpr(binary) => binary.op.hash(hasher),
        Expr::Cast(cast) => cast.field.data_type().hash(hasher),
        Expr::ScalarFunction(call) => call.func.name().hash(hasher),
        Expr::AggregateFunction(call) => call.func.name().hash(hasher),
        Expr::HigherOrderFunction(call) => call.func.name().hash(hasher),
        Expr::WindowFunction(call) => match &call.fun {
            WindowFunctionDefinition::AggregateUDF(fun) => fun.name().hash(hasher),
            WindowFunctionDefinition::WindowUDF(fun) => fun.name().hash(hasher),
        },
        _ => {}
    }
}
