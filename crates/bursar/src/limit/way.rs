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

    /// Bytes that the group has: charged there and below, held as stock, or claimed.
    pub(super) fn claimed(&self) -> u64 {
        let own = self.counters().first();
        own.map_or(u64::MAX, |own| own.claimed())
    }

    /// Gives claims up from a position on; bytes that are in the usage are taken out of it first. A counter that has fewer bytes lost
    /// them before. Then `is_short` gets its position and their number, and the counters above are lowered by no more than it had, so
    /// that no other group loses bytes by it.
    pub(super) fn give_up(
        &self,
        from: usize,
        bytes: u64,
        in_usage: bool,
        mut is_short: impl FnMut(usize, u64),
    ) {
        let mut left = bytes;
        for (at, counter) in self.counters().iter().enumerate().skip(from) {
            if in_usage {
                counter.lower(left);
            }
            let had = counter.unclaim(left);
            if had < left {
                if in_usage {
                    counter.raise(left - had);
                }
                is_short(at, left - had);
                left = had;
            }
        }
    }

    /// Lowers the usage and gives the claim up, if the group has as many bytes. Returns how many it had, which are fewer if another task
    /// came in between.
    pub(super) fn release_if_there(&self, bytes: u64, is_short: impl FnMut(usize, u64)) -> u64 {
        let mut had = bytes;
        if let Some(own) = self.counters().first() {
            if own.claimed() < bytes {
                return 0;
            }
            own.lower(bytes);
            had = own.unclaim(bytes);
            if had < bytes {
                own.raise(bytes - had);
            }
        }
        self.give_up(1, had, true, is_short);
        had
    }

    /// Raises the usage from a position on by bytes that are claimed, and charged or held as stock.
    pub(super) fn raise_from(&self, position: usize, bytes: u64) {
        let from = &self.counters()[position..];
        from.iter().for_each(|counter| counter.raise(bytes));
    }

    /// Lowers the usage by bytes that are about to be given up.
    pub(super) fn lower(&self, bytes: u64) {
        self.counters()
            .iter()
            .for_each(|counter| counter.lower(bytes));
    }
}
