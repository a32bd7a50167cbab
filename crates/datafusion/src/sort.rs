//! A sort of DataFusion, and the bytes that are kept for it.
//!
//! A sort of one partition has two consumers. `ExternalSorter` holds the rows, and can spill. `ExternalSorterMerge` holds what a
//! merge needs, and cannot. To spill, the sort returns bytes of both before the merge requests them again, a batch at a time. Other
//! consumers could take them meanwhile. After a limit is lowered below the usage, each of these requests would be refused. Then the
//! sort would fail, although it uses no more memory than before.
//!
//! So what a sort returns stays charged, to the query's group, for the requests of that sort alone: while it spills, and while a
//! limit is exceeded. The usage does not rise, because a request takes kept bytes whole or not at all. At most as many bytes are kept
//! as the sort still holds, and as many more as it needs when it has spilled: the merge's bytes and the request that was refused. So
//! the kept bytes go with the rows that are written. They also go when the sort goes on, and when its rows' consumer ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bursar::{Charge, Group};

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
    /// Whether the merge has returned its bytes to sort and write rows, and the sort has not gone on yet.
    is_spilling: bool,
    /// Bytes of the query's group that neither holds.
    kept: Option<Charge>,
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

    /// Records a granted request. Returns kept bytes that are no longer needed.
    fn grow(&mut self, part: Part, bytes: u64) -> Option<Charge> {
        *self.of(part) += bytes;
        let goes_on = part == Part::Rows && self.merge == self.merge_at_refusal;
        if !(self.is_spilling && goes_on) {
            return None;
        }
        self.is_spilling = false;
        self.kept.take()
    }

    /// Records that bytes were returned.
    fn shrink(&mut self, part: Part, bytes: u64) {
        let held = self.of(part);
        *held = held.saturating_sub(bytes);
        // A sort that has spilled once also spills its last rows.
        let begins = part == Part::Merge && self.merge == 0 && self.rows > 0;
        self.is_spilling |= begins && self.refused > 0;
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
        let needed = self.merge_at_refusal.saturating_add(self.refused);
        let most = self.rows.saturating_add(self.merge).saturating_add(needed);
        let excess = kept.bytes().saturating_sub(most);
        let kept = self.kept.insert(kept);
        (excess > 0).then(|| kept.split(excess).ok()).flatten()
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

    pub(crate) fn kept(&self) -> u64 {
        self.lock().kept.as_ref().map_or(0, Charge::bytes)
    }

    /// Returns whether it has ended its rows. Then the merge reads files, as many at a time as it gets memory for.
    pub(crate) fn reads_files(&self) -> bool {
        self.lock().ended.contains(&Part::Rows)
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
        if !state.is_spilling && state.kept.is_none() {
            (state.refused, state.merge_at_refusal) = (bytes, state.merge);
        }
    }

    /// Covers a request by kept bytes, which move to `group`; returns whether it did. Rows get none while a merge runs, because the
    /// merge cannot do without.
    pub(crate) fn take(&self, part: Part, bytes: u64, group: &Group, chain: &Chain) -> bool {
        let mut state = self.lock();
        let Some(kept) = &mut state.kept else {
            return false;
        };
        let is_over = chain.is_over();
        if !is_over && kept.bytes() < bytes {
            // Together with what is free they may be enough.
            let kept = state.kept.take();
            drop(state);
            self.release(kept);
            return false;
        }
        if part == Part::Rows && state.merge > state.merge_at_refusal {
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
        &self,
        part: Part,
        (bytes, charged): (u64, u64),
        group: &Group,
        chain: &Chain,
    ) {
        let is_over = chain.is_over();
        let mut returned = group.engine().remember(charged);
        let mut state = self.lock();
        state.shrink(part, bytes);
        let is_needed = is_over || state.is_spilling;
        let is_kept = is_needed && charged == bytes && !state.ended.contains(&Part::Merge);
        drop(state);
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

    /// Notes that a consumer ends. Returns all kept bytes, to be dropped, and whether the sort has ended.
    pub(crate) fn end(&self, part: Part) -> (Option<Charge>, bool) {
        let mut state = self.lock();
        *state.of(part) = 0;
        state.is_spilling = false;
        state.ended.push(part);
        let (kept, has_ended) = (state.kept.take(), state.ended.len() == 2);
        drop(state);
        if let Some((share, held)) = self.in_share() {
            // Usually none are held at the end, as below for others.
            let bytes = kept.as_ref().map_or(0, Charge::bytes);
            share.shrunk(held, if has_ended { held.bytes() } else { bytes });
        }
        (kept, has_ended)
    }
}
