//! One query, from its text to its last row.

use datafusion::arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::context::SessionContext;
use datafusion::physical_plan::execute_stream;
use futures::StreamExt;

use crate::Spilled;

/// Plans `sql`, hands each batch of its answer to `each`, and returns what the query spilled.
///
/// # Errors
/// DataFusion's, of planning or running. Earlier batches were handed on already.
pub async fn run(
    session: &SessionContext,
    sql: &str,
    mut each: impl FnMut(RecordBatch),
) -> Result<Spilled> {
    let plan = session.sql(sql).await?.create_physical_plan().await?;
    let mut stream = execute_stream(plan.clone(), session.task_ctx())?;
    while let Some(batch) = stream.next().await {
        each(batch?);
    }
    Ok(Spilled::by(plan.as_ref()))
}
