//! Running a query in its group of the twin tree.

use std::pin::Pin;
use std::task::{Context, Poll};

use bursar::Group;
use bursar_alloc::{GroupExt, InGroup, InGroupExt};
use datafusion_common::Result;
use datafusion_common::arrow::array::RecordBatch;
use datafusion_common::arrow::datatypes::SchemaRef;
use datafusion_execution::{RecordBatchStream, SendableRecordBatchStream};
use futures_core::Stream;

use crate::pool::GroupPool;

/// A stream that is in a query's group while it is polled and dropped.
struct InQuery {
    stream: Pin<Box<InGroup<SendableRecordBatchStream>>>,
    schema: SchemaRef,
}

impl Stream for InQuery {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let poll =
            |mut stream: Pin<&mut SendableRecordBatchStream>| stream.as_mut().poll_next(context);
        self.stream.as_mut().poll_with(poll)
    }
}

impl RecordBatchStream for InQuery {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// # Real bytes
impl GroupPool {
    /// The query's group in the twin tree; `None` without [`crate::PoolBuilder::real_bytes`].
    pub fn real_group(&self) -> Option<&Group> {
        self.real().map(|real| &real.group)
    }

    /// Charges what a future allocates to the query's group in the twin tree, with all tasks that DataFusion spawns for it. Make the plan
    /// in it as well. Batches that it returns stay charged until they are dropped. Without [`crate::PoolBuilder::real_bytes`] it
    /// changes nothing.
    pub async fn in_query<F: Future>(&self, future: F) -> F::Output {
        match self.real_group() {
            Some(group) => future.in_group(group).await,
            None => future.await,
        }
    }

    /// Does the same for a stream of batches. `make` executes the plan, because some operators spawn their tasks there:
    /// `pool.stream_in_query(|| execute_stream(plan, context))`.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn stream_in_query(
        &self,
        make: impl FnOnce() -> Result<SendableRecordBatchStream>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(group) = self.real_group() else {
            return make();
        };
        let stream = group.scope(make)?;
        Ok(Box::pin(InQuery {
            schema: stream.schema(),
            stream: Box::pin(stream.in_group(group)),
        }))
    }
}
