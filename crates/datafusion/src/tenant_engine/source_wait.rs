//! Waits at the sources of a query. A request of DataFusion's cannot wait, because it would hold a thread of the runtime. A source can: it
//! stays pending until there is memory for what its next batch will need.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties,
};
use futures_core::Stream;

use super::yielder::{SourceWait, Yielder};
use crate::engine_version::KEEPS_ITS_PLACE;

/// Wraps each source of a plan.
pub(super) fn wait_at_sources(
    plan: Arc<dyn ExecutionPlan>,
    yielder: &Arc<Yielder>,
) -> Arc<dyn ExecutionPlan> {
    let children = plan.children();
    if children.is_empty() {
        return match plan.name() {
            KEEPS_ITS_PLACE => plan,
            _ => Arc::new(WaitForMemoryExec {
                source: plan,
                yielder: yielder.clone(),
            }),
        };
    }
    let children = children
        .into_iter()
        .map(|child| wait_at_sources(child.clone(), yielder));
    let children = children.collect();
    // A wrapped source has the properties of the source.
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    // A node that takes no other children keeps its own, and waits at none of them.
    let wrapped = plan.clone().replace_children(children, options);
    wrapped.unwrap_or(plan)
}

/// A source that waits for memory before each batch, and ends when its query is stopped.
struct WaitForMemoryExec {
    source: Arc<dyn ExecutionPlan>,
    yielder: Arc<Yielder>,
}

impl fmt::Debug for WaitForMemoryExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WaitForMemoryExec")
            .field(&self.source)
            .finish()
    }
}

impl DisplayAs for WaitForMemoryExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("WaitForMemoryExec")
    }
}

impl ExecutionPlan for WaitForMemoryExec {
    fn name(&self) -> &str {
        "WaitForMemoryExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.source.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.source]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let [source] = &children[..] else {
            unreachable!("a source that waits has one child");
        };
        Ok(Arc::new(Self {
            source: source.clone(),
            yielder: self.yielder.clone(),
        }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        Ok(Box::pin(WaitingStream {
            source: self.source.execute(partition, context)?,
            yielder: self.yielder.clone(),
            reserved_before: None,
            wait: None,
            may_read: false,
        }))
    }
}

struct WaitingStream {
    source: SendableRecordBatchStream,
    yielder: Arc<Yielder>,
    /// Bytes that the query had before the last batch.
    reserved_before: Option<u64>,
    wait: Option<SourceWait>,
    /// Whether there is memory for the next batch.
    may_read: bool,
}

impl WaitingStream {
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.wait.is_none() {
            self.wait = self.yielder.wait_for_room(&mut self.reserved_before);
        }
        if let Some(wait) = &mut self.wait {
            let waited = ready!(wait.poll(context));
            self.wait = None;
            return Poll::Ready(self.yielder.end_wait(waited));
        }
        Poll::Ready(Ok(()))
    }
}

impl Stream for WaitingStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Err(error) = this.yielder.check() {
            return Poll::Ready(Some(Err(error)));
        }
        if !this.may_read {
            if let Err(error) = ready!(this.poll_room(context)) {
                return Poll::Ready(Some(Err(error)));
            }
            this.may_read = true;
        }
        let batch = ready!(this.source.as_mut().poll_next(context));
        this.may_read = false;
        Poll::Ready(batch)
    }
}

impl RecordBatchStream for WaitingStream {
    fn schema(&self) -> SchemaRef {
        self.source.schema()
    }
}
