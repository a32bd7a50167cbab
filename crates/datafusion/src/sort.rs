//! A sort of DataFusion, and the bytes that are kept for it.
//!
//! A sort of one partition has two consumers. `ExternalSorter` holds the rows, and can spill. `ExternalSorterMerge` holds what a
//! merge needs, and cannot. To spill, the sort returns bytes of both before the merge requests them again, a batch at a time. Other
//! consumers could take them meanwhile. After a limit is lowered below the usage, each of these requests would be refused. Then the
//! sort would fail, although it uses no more memory than before.
//!
//! A sort whose rows fit does the same once, before it merges them for its output.
//!
//! So what a sort returns stays charged, to the query's group, for the requests of that sort alone: while it merges, and while a
//! limit is exceeded. The usage does not rise, because bytes above a limit are never charged anew. At most as many bytes are kept
//! as the sort still holds, with the batches that left the rows and have not come to the merge. A sort that spills keeps as many
//! more as it needs next: the merge's bytes and the request that was refused. So the kept bytes go with the rows that are written
//! or put out. They also go when the sort goes on, and when it ends.
//!
//! A merge for the output may last as long as a client reads. So others get its kept bytes at need, by a reclaimer, as long as no
//! limit is exceeded.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bursar::{Charge, Group, Registration};

use crate::chain::Chain;
use crate::share::{FairShare, Held};

/// A sort of one partition, from the registration of its second consumer on.
pub(crate) struct Sort {
    state: Mutex<State>,
    /// The sort's place in a share, for both consumers and the kept bytes.
    in_share: Option<(FairShare, Arc<Held>)>,
}

/// The consumers of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Rows,
    Merge,
}

#[derive(Default)]
struct State {
    /// Bytes that the consumers hold.
    rows: u64,
    merge: u64,
    /// Bytes that the merge held when the last request for rows was refused.
    merge_at_refusal: u64,
    /// Size of that request; 0 if there was none.
    refused: u64,
    /// Whether rows are sorted and merged, to be written or put out, and the sort has not gone on yet.
    is_merging: bool,
    /// Bytes that rows returned since, and that the merge has not requested.
    between: u64,
    /// Bytes of the query's group that neither holds.
    kept: Option<Charge>,
    /// Gives kept bytes to others.
    lender: Option<Registration>,
    /// Consumers that have ended.
    ended: Vec<Part>,
}

impl State {
    fn of(&mut self, part: Part) -> &mut u64 {
        match part {
            Part::Rows => &mut self.rows,
            Part::Merge => &mut self.merge,
        }
    }

    /// Returns whether it merges rows that were never refused, for the output.
    fn puts_out(&self) -> bool {
        self.is_merging && self.refused == 0
    }

    /// Records a granted request. Returns kept bytes that are no longer needed.
    fn grow(&mut self, part: Part, bytes: u64) -> Option<Charge> {
        *self.of(part) += bytes;
        self.between = self.between.saturating_sub(bytes);
        let goes_on = part == Part::Rows && self.merge == self.merge_at_refusal;
        if !goes_on || !self.is_merging || self.puts_out() {
            return None;
        }
        self.is_merging = false;
        self.kept.take()
    }

    /// Records that bytes were returned.
    fn shrink(&mut self, part: Part, bytes: u64) {
        let held = self.of(part);
        *held = held.saturating_sub(bytes);
        // A sort that has spilled once also spills its last rows.
        let begins = match part {
            Part::Merge => self.merge == 0 && self.rows > 0,
            Part::Rows => self.refused == 0,
        };
        if begins && !self.is_merging {
            (self.is_merging, self.between) = (true, 0);
        }
        self.between = match part {
            Part::Rows => self.between.saturating_add(bytes),
            // Rows that the merge put out came from the sorted rows.
            Part::Merge => self.between.saturating_sub(bytes),
        };
    }

    /// Adds to the kept bytes, and returns those that are too many.
    fn keep(&mut self, more: Charge) -> Option<Charge> {
        let kept = match self.kept.take() {
            None => more,
            Some(mut kept) => {
                // They belong to one group.
                let _ = kept.merge(more);
                kept
            }
        };
        let next = self.merge_at_refusal.saturating_add(self.refused);
        let parts = [self.rows, self.merge, self.between, next];
        let most = parts.into_iter().fold(0, u64::saturating_add);
        let excess = kept.bytes().saturating_sub(most);
        let kept = self.kept.insert(kept);
        (excess > 0).then(|| kept.split(excess).ok()).flatten()
    }

    /// Takes up to that many kept bytes away, if others may have them.
    fn lend(&mut self, bytes: u64) -> Option<Charge> {
        if !self.puts_out() {
            return None;
        }
        let kept = self.kept.as_mut()?;
        kept.split(bytes.min(kept.bytes())).ok()
    }
}

impl Sort {
    pub(crate) fn new(share: Option<&FairShare>) -> Self {
        Self {
            state: Mutex::default(),
            in_share: share.map(|share| (share.clone(), share.member())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn in_share(&self) -> Option<(&FairShare, &Held)> {
        let (share, held) = self.in_share.as_ref()?;
        Some((share, held))
    }

    pub(crate) fn held(&self, part: Part) -> u64 {
        *self.lock().of(part)
    }

    /// Whether it writes rows to disk because a request was refused.
    pub(crate) fn is_spilling(&self) -> bool {
        let state = self.lock();
        state.is_merging && state.refused > 0
    }

    /// Bytes of its rows, if it would spill them when a request is refused: it does not merge them yet.
    pub(crate) fn spillable(&self) -> u64 {
        let state = self.lock();
        match state.is_merging || state.ended.contains(&Part::Rows) {
            true => 0,
            false => state.rows,
        }
    }

    pub(crate) fn kept(&self) -> u64 {
        self.lock().kept.as_ref().map_or(0, Charge::bytes)
    }

    /// Returns whether the merge reads files, as many at a time as it gets memory for.
    pub(crate) fn reads_files(&self) -> bool {
        let state = self.lock();
        state.ended.contains(&Part::Rows) && !state.puts_out()
    }

    /// Returns bytes to the group. Not under the lock, which functions that are called then may take.
    fn release(&self, returned: Option<Charge>) {
        let bytes = returned.as_ref().map_or(0, Charge::bytes);
        drop(returned);
        if let Some((share, held)) = self.in_share()
            && bytes > 0
        {
            share.shrunk(held, bytes);
        }
    }

    /// Records bytes that were charged, and that the share counts.
    pub(crate) fn grown(&self, part: Part, bytes: u64) {
        let unneeded = self.lock().grow(part, bytes);
        self.release(unneeded);
    }

    /// Records that a request for rows was refused, so that the sort spills.
    pub(crate) fn refused(&self, bytes: u64) {
        let mut state = self.lock();
        // Not those that a sort makes while it spills.
        if !state.is_merging && state.kept.is_none() {
            (state.refused, state.merge_at_refusal) = (bytes, state.merge);
        }
    }

    /// Covers a request by kept bytes, which move to `group`; returns whether it did. Rows that are written get none while a merge
    /// runs, because the merge cannot do without.
    pub(crate) fn take(&self, part: Part, bytes: u64, group: &Group, chain: &Chain) -> bool {
        let mut state = self.lock();
        let Some(kept) = &mut state.kept else {
            return false;
        };
        let missing = bytes.saturating_sub(kept.bytes());
        if missing > 0 {
            if chain.is_over() {
                return false;
            }
            // Together with what is free they may be enough.
            let kept = state.kept.take();
            drop(state);
            self.release(kept);
            return false;
        }
        if part == Part::Rows && !state.puts_out() && state.merge > state.merge_at_refusal {
            return false;
        }
        let kept = state.kept.as_mut();
        let Some(mut taken) = kept.and_then(|kept| kept.split(bytes).ok()) else {
            return false;
        };
        drop(state);
        // To an operator below the query's group: nothing above is charged again. An operator's own limit may refuse.
        let is_moved = taken.move_to(group).is_ok();
        let mut state = self.lock();
        let unneeded = if is_moved {
            taken.forget();
            state.grow(part, bytes)
        } else {
            state.keep(taken)
        };
        drop(state);
        self.release(unneeded);
        is_moved
    }

    /// Records that `bytes` are returned, of which `charged` were charged to `group`: keeps these or returns them.
    pub(crate) fn shrunk(
        self: &Arc<Self>,
        part: Part,
        (bytes, charged): (u64, u64),
        group: &Group,
        chain: &Chain,
    ) {
        let is_over = chain.is_over();
        let mut returned = group.engine().remember(charged);
        let mut state = self.lock();
        state.shrink(part, bytes);
        let is_needed = is_over || state.is_merging;
        let is_kept = is_needed && charged == bytes && !state.ended.contains(&Part::Merge);
        let is_lent = is_kept && state.puts_out() && state.lender.is_none();
        drop(state);
        if is_lent {
            self.lend(chain);
        }
        let unneeded = if is_kept && returned.move_to(&chain.groups()[0]).is_ok() {
            self.lock().keep(returned)
        } else {
            let kept = self.lock().kept.take();
            self.release(kept);
            Some(returned)
        };
        self.release(unneeded);
        if let Some((share, held)) = self.in_share()
            && charged < bytes
        {
            share.shrunk(held, bytes - charged);
        }
    }

    /// Lets others have the kept bytes at need, until the sort is gone.
    fn lend(self: &Arc<Self>, chain: &Chain) {
        let (query, sort) = (&chain.groups()[0], Arc::downgrade(self));
        let chain = Chain::of(query);
        let lender = query.add_reclaimer(0, move |request| {
            let Some(sort) = sort.upgrade().filter(|_| !chain.is_over()) else {
                return 0;
            };
            let kept = sort.lock().lend(request.target);
            let bytes = kept.as_ref().map_or(0, Charge::bytes);
            sort.release(kept);
            bytes
        });
        self.lock().lender = Some(lender);
    }

    /// Notes that a consumer ends. Returns kept bytes, to be dropped, and whether the sort has ended.
    pub(crate) fn end(&self, part: Part) -> (Option<Charge>, bool) {
        let mut state = self.lock();
        *state.of(part) = 0;
        state.ended.push(part);
        // The merge for the output goes on after the last rows have left for it.
        let goes_on = part == Part::Rows && state.puts_out();
        let kept = match goes_on {
            true => None,
            false => state.kept.take(),
        };
        state.is_merging &= goes_on;
        let has_ended = state.ended.len() == 2;
        drop(state);
        if let Some((share, held)) = self.in_share() {
            // Usually none are held at the end, as below for others.
            let bytes = kept.as_ref().map_or(0, Charge::bytes);
            share.shrunk(held, if has_ended { held.bytes() } else { bytes });
        }
        (kept, has_ended)
    }
}
