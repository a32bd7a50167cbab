//! A request of the arbiter: the query gives back memory. Nobody can make DataFusion's operators spill. But an operator that can spill and is
//! refused a request does so. So the pool refuses each of them once, when it asks for more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bursar_arbiter::Answer;

use crate::spilling::ASKED;

/// A spiller with fewer bytes is not made to spill. 64 KiB is judgement.
pub(crate) const SPILLED_MIN: u64 = 64 << 10;

/// The request of an arbiter, if there is one.
#[derive(Debug)]
pub(crate) struct SpillRequest {
    /// Reasons to refuse spillers: [`ASKED`] is set in it while there is a request.
    asks: Arc<AtomicUsize>,
    pending: Mutex<Option<Pending>>,
}

#[derive(Debug)]
struct Pending {
    /// Bytes that it is asked for.
    bytes: u64,
    /// Bytes that a spiller must hold to be refused: an even part. So the largest one always is.
    from: u64,
    /// Bytes of the query when it was asked.
    reserved: u64,
    answer: Answer,
}

impl SpillRequest {
    pub(crate) fn new(asks: &Arc<AtomicUsize>) -> Self {
        Self {
            asks: asks.clone(),
            pending: Mutex::default(),
        }
    }

    pub(crate) fn is_pending(&self) -> bool {
        // Relaxed: the request itself has a lock.
        self.asks.load(Ordering::Relaxed) & ASKED != 0
    }

    fn lock(&self) -> MutexGuard<'_, Option<Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request, in the place of the one before. `spillers` is the number of those that hold bytes.
    pub(crate) fn begin(&self, bytes: u64, spillers: u64, reserved: u64, answer: Answer) {
        let from = (bytes / spillers.max(1)).max(SPILLED_MIN);
        let pending = Pending {
            bytes,
            from,
            reserved,
            answer,
        };
        let mut place = self.lock();
        let _before = place.replace(pending);
        // Relaxed, here and where it is cleared: changed under the lock, and read as a hint.
        self.asks.fetch_or(ASKED, Ordering::Relaxed);
    }

    fn end(&self, pending: &mut Option<Pending>) -> Option<Pending> {
        self.asks.fetch_and(!ASKED, Ordering::Relaxed);
        pending.take()
    }

    /// The decision for which a spiller with so many bytes is refused now, if it is. Ends the request if the arbiter expects nothing any more.
    pub(crate) fn refuses(&self, held: u64) -> Option<u64> {
        let mut pending = self.lock();
        let one = pending.as_ref().filter(|one| held >= one.from)?;
        if one.answer.is_expected() {
            return Some(one.answer.decision());
        }
        self.end(&mut pending);
        None
    }

    /// Ends the request if the query has given back enough, or `can_more` says that no spiller has as many bytes as it is given. Returns the
    /// bytes that came back, and the answer, to be sent without a lock.
    pub(crate) fn returned(
        &self,
        reserved: u64,
        can_more: impl FnOnce(u64) -> bool,
    ) -> Option<(u64, Answer)> {
        let mut pending = self.lock();
        let one = pending.as_ref()?;
        let freed = one.reserved.saturating_sub(reserved);
        // A spill takes several returns. Before the first has come, nothing is known.
        if freed == 0 || freed < one.bytes && can_more(one.from) {
            return None;
        }
        let one = self.end(&mut pending)?;
        Some((freed, one.answer))
    }
}
