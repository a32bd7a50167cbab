//! The counters from a group up to the root. An operation looks them up once and walks them several times.

use bursar_machine::Machine;

use super::counter::{PageCounter, USAGE_MAX};
use crate::tree::LEVELS;

/// Counters from a group up to the root, or up to, and without, a group above.
pub(crate) struct Way<'a, M: Machine> {
    pub(crate) index: u32,
    /// The group at which it ends; `None` if it has the root.
    pub(super) end: Option<u32>,
    list: [&'a PageCounter<M>; LEVELS],
    len: usize,
}

impl<'a, M: Machine> Way<'a, M> {
    /// The way from `index` up to `end` with these counters. `any` is any counter.
    pub(super) fn new(
        index: u32,
        end: Option<u32>,
        counters: impl Iterator<Item = &'a PageCounter<M>>,
        any: &'a PageCounter<M>,
    ) -> Self {
        let mut list = [any; LEVELS];
        let len = list.iter_mut().zip(counters).map(|(at, one)| *at = one);
        Self {
            index,
            end,
            len: len.count(),
            list,
        }
    }

    pub(super) fn counters(&self) -> &[&'a PageCounter<M>] {
        &self.list[..self.len]
    }

    /// Bytes that may be held as stock beside a charge of `bytes`.
    ///
    /// # Errors
    /// The first position where the charge has no chance. So a charge that is refused higher up usually shows nowhere below.
    pub(super) fn room(&self, bytes: u64) -> Result<u64, usize> {
        let mut least = USAGE_MAX;
        for (at, counter) in self.counters().iter().enumerate() {
            least = least.min(counter.room(bytes).ok_or(at)?);
        }
        Ok(least)
    }

    /// Claims `bytes` at each counter, from the top down: so what is claimed at a group is claimed above, too.
    ///
    /// # Errors
    /// The position where they do not fit. They are claimed there and above.
    pub(super) fn claim(&self, bytes: u64) -> Result<(), usize> {
        let refuses = |counter: &&PageCounter<M>| !counter.claim(bytes);
        let refusing = self.counters().iter().rposition(refuses);
        refusing.map_or(Ok(()), Err)
    }

    /// Gives up a claim that did not get below a position.
    pub(super) fn unclaim_from(&self, position: usize, bytes: u64) {
        let from = &self.counters()[position..];
        from.iter().for_each(|counter| counter.unclaim(bytes));
    }

    /// Gives a claim up, which is in no usage. Returns the bytes that were claimed at the group: if these are fewer, only they are
    /// given up above, so that no other group loses bytes by it.
    pub(super) fn unclaim(&self, bytes: u64) -> u64 {
        let Some((own, above)) = self.counters().split_first() else {
            return bytes;
        };
        let had = own.unclaim_own(bytes);
        above.iter().for_each(|counter| counter.unclaim(had));
        had
    }

    /// Raises the usage by bytes that are claimed, and charged or held as stock.
    pub(super) fn raise(&self, bytes: u64) {
        self.counters()
            .iter()
            .for_each(|counter| counter.raise(bytes));
    }

    /// Lowers the usage by bytes that are about to be given up.
    pub(super) fn lower(&self, bytes: u64) {
        self.counters()
            .iter()
            .for_each(|counter| counter.lower(bytes));
    }

    /// Lowers the usage and gives the claim up. Returns the bytes that the group had, as [`Way::unclaim`] does.
    pub(super) fn release(&self, bytes: u64) -> u64 {
        let Some((own, above)) = self.counters().split_first() else {
            return bytes;
        };
        own.lower(bytes);
        let had = own.unclaim_own(bytes);
        if had < bytes {
            own.raise(bytes - had);
        }
        for counter in above {
            counter.lower(had);
            counter.unclaim(had);
        }
        had
    }
}
