//! Statements that are planned once and run with different parameters.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bursar::Charge;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::ParamValues;
use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::{LogicalPlan, Statement};

use super::error::TenantEngineError;
use super::settings::Tenant;
use super::stream::TenantStream;
use crate::refusal::no_plan;
use crate::tenant_session::{References, TenantSqlError, on_stack, prepared_bytes};

/// A statement that a tenant has prepared. It may have parameters: `$1`, `$2` and so on. Its plan is charged to the tenant until the last
/// clone is dropped: 4 bytes for each byte of its text, and 512 for each node and expression. To clone it is cheap.
#[derive(Clone)]
pub struct PreparedQuery(Arc<Prepared>);

struct Prepared {
    plan: LogicalPlan,
    references: References,
    parameters: BTreeMap<usize, Option<DataType>>,
    _charge: Charge,
}

impl fmt::Debug for PreparedQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedQuery")
            .field("parameters", &self.0.parameters)
            .finish_non_exhaustive()
    }
}

impl PreparedQuery {
    /// The types of its parameters, `$1` first. `None` where the statement says nothing about the type.
    pub fn parameters(&self) -> Vec<Option<DataType>> {
        let known = &self.0.parameters;
        let last = known.keys().next_back().copied().unwrap_or(0);
        let parameters = (1..=last).map(|number| known.get(&number).cloned().flatten());
        parameters.collect()
    }

    /// The columns of its rows.
    pub fn schema(&self) -> SchemaRef {
        self.0.plan.schema().inner().clone()
    }

    /// Its plan, with its parameters.
    pub fn plan(&self) -> &LogicalPlan {
        &self.0.plan
    }
}

/// # Prepared statements
impl Tenant {
    /// Plans a statement that will run with parameters, as [`Tenant::sql`] plans one without. Statements that change a session are forbidden.
    ///
    /// # Errors
    /// [`TenantEngineError`]. A plan that the tenant has no memory for is refused as a request of a query is.
    pub async fn prepare(
        &self,
        context: Option<&SessionContext>,
        text: &str,
    ) -> Result<PreparedQuery, TenantEngineError> {
        let state = self.state(context);
        let rules = &self.engine.rules;
        let planned = on_stack(rules.planning_stack_bytes, async {
            let (plan, shape) = rules.plan(&state, text).await?;
            let references = References::of(&plan)?;
            Ok((plan, shape, references))
        });
        let (plan, shape, references) = planned.await.map_err(TenantEngineError::Statement)?;
        if let LogicalPlan::Statement(statement) = &plan {
            let what = match statement {
                Statement::Prepare(_) => "PREPARE",
                Statement::Execute(_) => "EXECUTE",
                _ => "statements that change the session",
            };
            let what = format!("{what} inside a prepared statement");
            return Err(TenantEngineError::Statement(TenantSqlError::Forbidden {
                what,
            }));
        }
        let bytes = prepared_bytes(text, shape);
        let charge = self.group.try_charge(bytes as u64);
        let charge =
            charge.map_err(|refusal| DataFusionError::ResourcesExhausted(no_plan(&refusal)))?;
        let mut parameters = BTreeMap::new();
        for (name, kind) in plan.get_parameter_types()? {
            let number = name
                .strip_prefix('$')
                .and_then(|number| number.parse().ok());
            match number {
                Some(number @ 1..=PARAMETERS_MAX) => parameters.insert(number, kind),
                _ => {
                    let text = format!("parameters are $1 to ${PARAMETERS_MAX}, not {name}");
                    return Err(DataFusionError::Plan(text).into());
                }
            };
        }
        Ok(PreparedQuery(Arc::new(Prepared {
            references,
            plan,
            parameters,
            _charge: charge,
        })))
    }

    /// Runs a prepared statement, as [`Tenant::sql`] runs one without parameters.
    ///
    /// # Errors
    /// [`TenantEngineError`].
    pub async fn execute(
        &self,
        context: Option<&SessionContext>,
        prepared: &PreparedQuery,
        values: ParamValues,
    ) -> Result<TenantStream, TenantEngineError> {
        let state = self.state(context);
        let plan = prepared.0.plan.clone();
        let rules = &self.engine.rules;
        let bound = on_stack(rules.planning_stack_bytes, async {
            let checked = rules.check_parameters(&prepared.0.references, &values);
            checked.map_err(TenantEngineError::Statement)?;
            let bound = plan.replace_params_with_values(&values)?;
            let checked = rules.check_values(&bound, &state);
            checked.map_err(TenantEngineError::Statement)?;
            Ok::<_, TenantEngineError>(bound)
        });
        let bound = bound.await?;
        self.run(DataFrame::new(state, bound)).await
    }
}

/// As many as PostgreSQL's protocol can count.
const PARAMETERS_MAX: usize = 65_535;
