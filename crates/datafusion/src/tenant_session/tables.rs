//! Number of a statement's references to tables, and the arguments of table functions, before it is planned.
//!
//! Planning copies a common table expression for each reference. Thirty expressions that each refer twice to the one before are 2^30 tables.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, ObjectName, Query, TableFactor, TypedString, Visit, Visitor,
    visit_expressions,
};

use super::TenantSqlError;
use super::values::is_bounded;

/// References to tables that a statement may have, after each reference to a common table expression is a copy of it.
const TABLES_MAX: usize = 1_000;
/// Queries with common table expressions inside each other. DataFusion looks for tables twice in each.
const WITHS_MAX: usize = 8;

/// Tables of a query, and queries that refer to each other.
#[derive(Clone, Copy, Default)]
struct Cost {
    tables: usize,
    levels: usize,
}

#[derive(Default)]
struct Tables {
    levels_max: usize,
    /// Names of common table expressions by the address of their query.
    names: BTreeMap<usize, String>,
    /// The most costly one of each name, in whatever part of the statement.
    costs: BTreeMap<String, Cost>,
    /// Queries around the place of the visit, each with its cost so far, and whether it has common table expressions.
    around: Vec<(Cost, bool)>,
}

/// Refuses a statement whose common table expressions make too many tables or levels.
pub(super) fn check_tables(statement: &Statement, levels_max: usize) -> Result<(), TenantSqlError> {
    let mut statement = statement;
    while let Statement::Explain(explain) = statement {
        statement = &explain.statement;
    }
    let mut tables = Tables {
        levels_max,
        ..Tables::default()
    };
    let end = match statement {
        Statement::Statement(statement) => statement.visit(&mut tables),
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => query.visit(&mut tables),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        _ => ControlFlow::Continue(()),
    };
    match end {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The last part of a name, in lower case.
fn last_name(name: &ObjectName) -> Option<String> {
    let last = name.0.last().and_then(|part| part.as_ident());
    last.map(|ident| ident.value.to_lowercase())
}

fn address(query: &Query) -> usize {
    std::ptr::from_ref(query).addr()
}

impl Tables {
    /// Adds a table or a query to the query around it.
    fn add(&mut self, cost: Cost) -> ControlFlow<TenantSqlError> {
        let Some((around, _)) = self.around.last_mut() else {
            return ControlFlow::Continue(());
        };
        around.tables = around.tables.saturating_add(cost.tables);
        around.levels = around.levels.max(cost.levels + 1);
        if around.tables > TABLES_MAX {
            return ControlFlow::Break(TenantSqlError::TooLarge { max: TABLES_MAX });
        }
        if around.levels > self.levels_max {
            return ControlFlow::Break(TenantSqlError::TooDeep {
                max: self.levels_max,
            });
        }
        ControlFlow::Continue(())
    }
}

impl Visitor for Tables {
    type Break = TenantSqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        let ctes = query
            .with
            .as_ref()
            .map(|with| with.cte_tables.as_slice())
            .unwrap_or_default();
        for cte in ctes {
            let name = cte.alias.name.value.to_lowercase();
            self.names.insert(address(&cte.query), name);
        }
        self.around.push((Cost::default(), !ctes.is_empty()));
        let withs = self.around.iter().filter(|(_, has_ctes)| *has_ctes).count();
        match withs > WITHS_MAX {
            true => ControlFlow::Break(TenantSqlError::TooDeep { max: WITHS_MAX }),
            false => ControlFlow::Continue(()),
        }
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        let (cost, _) = self.around.pop().unwrap_or_default();
        if let Some(name) = self.names.get(&address(query)) {
            let most = self.costs.entry(name.clone()).or_default();
            most.tables = most.tables.max(cost.tables);
            most.levels = most.levels.max(cost.levels);
        }
        self.add(cost)
    }

    /// Refuses functions of long values among arguments that DataFusion evaluates while it plans, before their values are checked.
    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Self::Break> {
        let args: &Vec<FunctionArg> = match table {
            TableFactor::Table {
                args: Some(args), ..
            } => &args.args,
            TableFactor::Function { args, .. } => args,
            _ => return ControlFlow::Continue(()),
        };
        visit_expressions(args, |expr| match expr {
            // Perhaps of a fixed length.
            Expr::Cast { data_type, .. } | Expr::TypedString(TypedString { data_type, .. })
                if data_type.to_string().contains('[') =>
            {
                ControlFlow::Break(TenantSqlError::Forbidden {
                    what: "a cast to a list in an argument of a table function".to_owned(),
                })
            }
            Expr::Function(call) => match last_name(&call.name).filter(|name| is_bounded(name)) {
                Some(name) => ControlFlow::Break(TenantSqlError::Forbidden {
                    what: format!("{name} in an argument of a table function"),
                }),
                None => ControlFlow::Continue(()),
            },
            _ => ControlFlow::Continue(()),
        })
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<Self::Break> {
        let name = last_name(relation);
        let cost = name
            .and_then(|name| self.costs.get(&name).copied())
            .unwrap_or_default();
        self.add(Cost {
            tables: cost.tables.max(1),
            ..cost
        })
    }
}
