//! A try as the arbiter talks to it: it may be told to stop, so that others can go on.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use bursar::{Bytes, printable};
use bursar_arbiter::{Answer, Engine, Grant, GrowError, Room, Stop, Widener};
use datafusion::error::DataFusionError;

use crate::pool::GroupPool;

/// Fewest bytes that a source waits for. 64 KiB is judgement.
const WAIT_MIN: u64 = 64 << 10;
/// Part of the bytes of a query that its next request may need, however little it grew with its last batch: a join makes its table when it has
/// all rows of its build side. A quarter is judgement. In DataFusion 55.2 that table takes some 20 to 40 bytes a row: it asked for 1,114,168 bytes for
/// 30,000 rows.
const PART_WAITED: u64 = 4;
/// Most bytes that a source waits for. 64 MiB is judgement.
const WAIT_MAX: u64 = 64 << 20;

/// The side of a try that an arbiter talks to. The arbiter keeps it until the grant ends, so it keeps nothing of the query.
pub(super) struct Yielder {
    widener: Widener,
    pool: Weak<GroupPool>,
    stop: OnceLock<Arc<Stop>>,
    /// Whether its operators may write files.
    may_spill: bool,
    /// Sources that wait.
    waits: AtomicU64,
    /// Bytes of the query when a source waited in vain.
    vain_at: AtomicU64,
    /// The task that polls the rows of the query.
    waker: Mutex<Option<Waker>>,
}

impl Yielder {
    pub(super) fn new(grant: &Grant, pool: &Arc<GroupPool>, may_spill: bool) -> Self {
        Self {
            may_spill,
            widener: grant.widener(),
            pool: Arc::downgrade(pool),
            stop: OnceLock::new(),
            waits: AtomicU64::new(0),
            vain_at: AtomicU64::new(0),
            waker: Mutex::new(None),
        }
    }

    /// Looks whether a source may make a batch.
    ///
    /// # Errors
    /// That of a try that was stopped, or that really held more than its limit.
    pub(super) fn check(&self) -> Result<(), DataFusionError> {
        if let Some(stop) = self.stopped() {
            return Err(stopped(&stop));
        }
        #[cfg(feature = "real-bytes")]
        if let Some(pool) = self.pool.upgrade() {
            pool.check_real_peak()?;
        }
        Ok(())
    }

    /// Returns why the try was told to stop, if it was.
    pub(super) fn stopped(&self) -> Option<Arc<Stop>> {
        self.stop.get().cloned()
    }

    /// Does the same. The task is woken when that changes.
    pub(super) fn poll_stopped(&self, context: &Context<'_>) -> Option<Arc<Stop>> {
        // Runs the runtime's code, so before the lock; and so does the drop of the one before.
        let waker = Some(context.waker().clone());
        let _before = self.exchange_waker(waker);
        self.stopped()
    }

    fn exchange_waker(&self, waker: Option<Waker>) -> Option<Waker> {
        let mut place = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut place, waker)
    }

    /// Returns a wait for memory, if the query has grown since the last call, when it had `reserved_before` bytes, and has too little room for
    /// what it may need next. Sets `reserved_before` to what it has now.
    pub(super) fn wait_for_room(
        self: &Arc<Self>,
        reserved_before: &mut Option<u64>,
    ) -> Option<SourceWait> {
        let pool = self.pool.upgrade()?;
        let reserved = pool.group().reserved();
        let grown = reserved.saturating_sub(reserved_before.replace(reserved)?);
        let part = (reserved / PART_WAITED).clamp(WAIT_MIN, WAIT_MAX);
        let next = grown.max(part).min(WAIT_MAX);
        // Relaxed: a hint.
        let vain_at = self.vain_at.load(Ordering::Relaxed);
        let may_wait = grown > 0 && (vain_at == 0 || reserved >= vain_at.saturating_add(part));
        (may_wait && !pool.has_room(next)).then(|| {
            // Relaxed: see `reclaimable`.
            self.waits.fetch_add(1, Ordering::Relaxed);
            SourceWait {
                room: self.widener.wait_for_room(next),
                yielder: self.clone(),
            }
        })
    }

    /// Notes how a wait of a source ended. After one in vain the pool decides, as it does without a wait, and sources wait again only when the
    /// query has grown by the part that they look for.
    ///
    /// # Errors
    /// That of a try that was stopped.
    pub(super) fn end_wait(&self, waited: Result<(), GrowError>) -> Result<(), DataFusionError> {
        match waited {
            Ok(()) => Ok(()),
            Err(GrowError::Stopped(stop)) => {
                // The wait may tell it before the arbiter calls `stop`.
                self.note_stop(&stop);
                Err(stopped(&stop))
            }
            Err(_) => {
                let reserved = self
                    .pool
                    .upgrade()
                    .map_or(0, |pool| pool.group().reserved());
                // Relaxed: a hint.
                self.vain_at.store(reserved.max(1), Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn note_stop(&self, stop: &Arc<Stop>) {
        // The first one counts.
        let _ = self.stop.set(stop.clone());
        if let Some(waker) = self.exchange_waker(None) {
            waker.wake();
        }
    }
}

/// A source that waits for room.
pub(super) struct SourceWait {
    room: Room,
    yielder: Arc<Yielder>,
}

impl SourceWait {
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), GrowError>> {
        Pin::new(&mut self.room).poll(context)
    }
}

impl Drop for SourceWait {
    fn drop(&mut self) {
        // Relaxed: see `reclaimable`.
        self.yielder.waits.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine for Yielder {
    fn reclaimable(&self) -> u64 {
        // Relaxed: a hint. Operators whose source waits ask for nothing, so none could be refused.
        if !self.may_spill || self.waits.load(Ordering::Relaxed) > 0 {
            return 0;
        }
        self.pool.upgrade().map_or(0, |pool| pool.reclaimable())
    }

    fn ask(&self, bytes: u64, answer: Answer) {
        match self.pool.upgrade() {
            Some(pool) => pool.ask(bytes, answer),
            None => answer.cannot(),
        }
    }

    fn stop(&self, stop: &Arc<Stop>) {
        self.note_stop(stop);
    }
}

/// The error of a try that was stopped. It does not name the query that needed memory, which may be another tenant's.
pub(super) fn stopped(stop: &Stop) -> DataFusionError {
    DataFusionError::ResourcesExhausted(format!(
        "the query was stopped so that others can go on\n{} was stopped with {} (decision {})",
        printable(&stop.query),
        Bytes(stop.charged),
        stop.decision
    ))
}
