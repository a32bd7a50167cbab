//! The rows of a query, whichever of its tries they are of.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::mem::{replace, take};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::physical_plan::common::collect;
use futures_core::Stream;

use super::attempt::{Attempt, Query, Refused};
use crate::report::QueryReport;

/// The rows of a query that was admitted. All that the query has is given back at the end of the stream, at an error, and when the stream
/// is dropped.
#[must_use = "a stream runs only while it is polled"]
pub struct TenantStream {
    query: Arc<Query>,
    schema: SchemaRef,
    admitted: Admitted,
    state: State,
}

/// Terms on which a query was admitted; see [`TenantStream::admitted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Admitted {
    /// Tries of the query so far, from 1 on.
    pub tries: u32,
    /// Bytes that the last try was granted when it began; `u64::MAX` if no limit was on its way. It may have got more since.
    pub bytes: u64,
    /// Number of partitions of the last try.
    pub width: u32,
    /// Time that all tries waited for admission.
    pub waited: Duration,
}

enum State {
    /// No row was delivered. Rows that are held go before the try that has paid for them.
    Holding(Held, Attempt),
    /// The try before was refused memory.
    Again(Pin<Box<dyn Future<Output = Result<Attempt>> + Send>>),
    /// The stream has ended if the last is true.
    Delivering(Held, Attempt, bool),
    Ended,
}

/// Rows that were not delivered yet.
#[derive(Default)]
struct Held {
    batches: VecDeque<RecordBatch>,
    reservation: Option<MemoryReservation>,
}

impl Held {
    /// Takes a batch. Returns whether more can be held.
    fn hold(&mut self, batch: RecordBatch, attempt: &Attempt, bytes_max: usize) -> bool {
        let bytes = batch.get_array_memory_size();
        self.batches.push_back(batch);
        if bytes_max == 0 {
            return false;
        }
        let reservation = self.reservation.get_or_insert_with(|| {
            let pool: Arc<dyn MemoryPool> = attempt.pool.clone();
            MemoryConsumer::new("HeldRows").register(&pool)
        });
        reservation.size() + bytes < bytes_max && reservation.try_grow(bytes).is_ok()
    }

    fn next(&mut self) -> Option<RecordBatch> {
        let batch = self.batches.pop_front();
        if self.batches.is_empty() {
            self.reservation = None;
        }
        batch
    }
}

impl fmt::Debug for TenantStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenantStream")
            .field("admitted", &self.admitted)
            .finish_non_exhaustive()
    }
}

impl TenantStream {
    pub(super) fn new(query: Arc<Query>, first: Attempt) -> Self {
        let mut stream = Self {
            query,
            schema: first.stream.schema(),
            admitted: Admitted {
                tries: 0,
                bytes: 0,
                width: 0,
                waited: Duration::ZERO,
            },
            state: State::Ended,
        };
        stream.start(first);
        stream
    }

    fn start(&mut self, attempt: Attempt) {
        self.admitted = Admitted {
            tries: attempt.turn.number,
            bytes: attempt.granted,
            width: attempt.grant.width(),
            waited: self.admitted.waited + attempt.grant.waited(),
        };
        // Until the client polls for rows.
        attempt.grant.set_idle(true);
        self.state = State::Holding(Held::default(), attempt);
    }

    /// Terms on which the query was admitted.
    pub fn admitted(&self) -> Admitted {
        self.admitted
    }

    /// The figures of the running try; `None` while it waits to run again, and after the end. Then they are in the history.
    pub fn report(&self) -> Option<QueryReport> {
        match &self.state {
            State::Holding(_, attempt) | State::Delivering(_, attempt, _) => {
                Some(attempt.pool.report())
            }
            State::Again(_) | State::Ended => None,
        }
    }

    /// Collects all rows. They are charged to nobody.
    ///
    /// # Errors
    /// DataFusion's.
    pub async fn collect(self) -> Result<Vec<RecordBatch>> {
        collect(Box::pin(self)).await
    }

    fn run_again(&mut self, refused: Refused) {
        let again = self.query.clone().again(refused);
        self.state = State::Again(Box::pin(again));
    }
}

impl From<TenantStream> for SendableRecordBatchStream {
    fn from(stream: TenantStream) -> Self {
        Box::pin(stream)
    }
}

impl RecordBatchStream for TenantStream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Stream for TenantStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            // If the poll of a try panics, the try is dropped here.
            match replace(&mut this.state, State::Ended) {
                State::Holding(held, attempt) => {
                    if let Some(result) = ready!(this.poll_first(held, attempt, context)) {
                        return Poll::Ready(Some(Err(result)));
                    }
                }
                State::Again(mut again) => match again.as_mut().poll(context) {
                    Poll::Ready(Ok(attempt)) => this.start(attempt),
                    Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                    Poll::Pending => {
                        this.state = State::Again(again);
                        return Poll::Pending;
                    }
                },
                State::Delivering(mut held, mut attempt, has_ended) => {
                    attempt.grant.set_idle(false);
                    let batch = match held.next() {
                        Some(batch) => Some(Ok(batch)),
                        None if has_ended => None,
                        None => match attempt.stream.as_mut().poll_next(context) {
                            Poll::Ready(batch) => batch,
                            Poll::Pending => {
                                this.state = State::Delivering(held, attempt, has_ended);
                                return Poll::Pending;
                            }
                        },
                    };
                    match &batch {
                        Some(Ok(_)) => {
                            attempt.grant.set_idle(true);
                            this.state = State::Delivering(held, attempt, has_ended);
                        }
                        Some(Err(_)) => {}
                        None => this.query.record(&attempt),
                    }
                    return Poll::Ready(batch);
                }
                State::Ended => return Poll::Ready(None),
            }
        }
    }
}

impl TenantStream {
    /// Polls a try that has delivered no row, until it has rows to deliver, runs again, or fails for good.
    fn poll_first(
        &mut self,
        mut held: Held,
        mut attempt: Attempt,
        context: &mut Context<'_>,
    ) -> Poll<Option<DataFusionError>> {
        attempt.grant.set_idle(false);
        let bytes_max = self.query.tenant.engine.hold_first;
        loop {
            if let Some(stop) = attempt.yielder.poll_stopped(context) {
                drop(held);
                self.run_again(attempt.stopped(&stop));
                return Poll::Ready(None);
            }
            match attempt.stream.as_mut().poll_next(context) {
                Poll::Pending => {
                    self.state = State::Holding(held, attempt);
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(batch))) if batch.num_rows() == 0 => {}
                Poll::Ready(Some(Ok(batch))) => {
                    if !held.hold(batch, &attempt, bytes_max) {
                        // If it was told to stop, no row was delivered yet.
                        if let Err(stop) = attempt.grant.grow_first() {
                            drop(held);
                            self.run_again(attempt.stopped(&stop));
                            return Poll::Ready(None);
                        }
                        self.state = State::Delivering(held, attempt, false);
                        return Poll::Ready(None);
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    drop(take(&mut held));
                    match attempt.refused(&self.query, error) {
                        Ok(refused) => {
                            self.run_again(refused);
                            return Poll::Ready(None);
                        }
                        Err(error) => return Poll::Ready(Some(error)),
                    }
                }
                Poll::Ready(None) => {
                    // It has all its rows, so a stop comes too late.
                    let _ = attempt.grant.grow_first();
                    self.state = State::Delivering(held, attempt, true);
                    return Poll::Ready(None);
                }
            }
        }
    }
}
