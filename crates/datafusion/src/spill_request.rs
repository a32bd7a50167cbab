//! A request of the arbiter: the query gives back memory. Nobody can make DataFusion's operators spill. But an operator that can spill and is
//! refused a request does so. So the pool refuses those with most bytes, each once, when they ask for more.

use std::collections::BTreeSet;
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
    /// Spillers that were refused for it.
    refused: BTreeSet<usize>,
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

    /// Notes a request, in the place of the one before; returns whether there was none. `spillers` is the number of those that hold bytes.
    pub(crate) fn begin(&self, bytes: u64, spillers: u64, reserved: u64, answer: Answer) -> bool {
        let pending = Pending {
            bytes,
            from: (bytes / spillers.max(1)).max(SPILLED_MIN),
            reserved,
            refused: BTreeSet::new(),
            answer,
        };
        let mut place = self.lock();
        let before = place.replace(pending);
        // Relaxed, here and where it is cleared: changed under the lock, and read as a hint.
        self.asks.fetch_or(ASKED, Ordering::Relaxed);
        before.is_none()
    }

    fn end(&self, pending: &mut Option<Pending>) -> Option<Pending> {
        self.asks.fetch_and(!ASKED, Ordering::Relaxed);
        pending.take()
    }

    /// The decision for which a spiller that holds so many bytes is refused now, if it is: once for each decision, as what it asks for next may be
    /// what its spill needs.
    pub(crate) fn refuses(&self, spiller: usize, held: u64) -> Option<u64> {
        let mut pending = self.lock();
        let one = pending.as_mut().filter(|one| held >= one.from)?;
        let may = one.answer.is_expected() && one.refused.insert(spiller);
        may.then(|| one.answer.decision())
    }

    /// Looks how far the query is. `can_more` says whether a spiller with as many bytes as it is given may give them back yet.
    pub(crate) fn look(&self, reserved: u64, can_more: impl FnOnce(u64) -> bool) -> Progress {
        let mut pending = self.lock();
        let Some(one) = pending.as_ref() else {
            return Progress::Goes;
        };
        let freed = one.reserved.saturating_sub(reserved);
        if !one.answer.is_expected() {
            self.end(&mut pending);
            return Progress::Late;
        }
        // Before the first return nothing is known.
        if freed == 0 || freed < one.bytes && can_more(one.from) {
            return Progress::Goes;
        }
        let one = self.end(&mut pending).expect("just seen");
        Progress::Done(freed, one.answer)
    }
}

/// State of a request.
pub(crate) enum Progress {
    Goes,
    /// It ended just now: so many bytes came back. Send the answer without a lock.
    Done(u64, Answer),
    /// It ended just now: the arbiter expects nothing any more.
    Late,
}
