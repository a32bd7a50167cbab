//! The holder and the last writer of each page, and refusals while no other task was moving pages.
//!
//! A record is removed before a page is freed and made after one was allocated, so a page recorded as held is held.
//! Records are not the machine's words: making one is no step.

use std::collections::BTreeSet;

use bursar::pages::Order;

/// Holder of a page: a group's number, never used again; 0 is the process.
pub(super) type Who = usize;
/// Place of a page in the zone.
pub(super) type At = usize;

/// See the module.
pub(super) struct Truth {
    /// By page.
    holders: Vec<Option<Who>>,
    /// Last writer, since the page was known to be zero.
    writers: Vec<Option<Who>>,
    /// Bytes of pages recorded as held, by holder.
    bytes: Vec<u64>,
    /// Pages that an ordinary allocation leaves.
    reserve: u64,
    /// Groups whose pages are zeroed when they are freed.
    secret: BTreeSet<Who>,
    /// Whether pages may have become zero unnoticed: then an earlier writer proves nothing.
    is_zeroed_in_secret: bool,
    episode: Episode,
    /// Pages that tasks are just allocating or freeing.
    under_way: u64,
}

/// A time in which some task works, between two in which none does.
#[derive(Default)]
struct Episode {
    at_work: usize,
    granted: bool,
    /// Whether a task moves pages for other reasons than to allocate them.
    moved: bool,
    refused: BTreeSet<(u8, bool)>,
}

/// Work of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Allocates so many pages.
    Alloc(u64),
    /// Frees so many pages, which are no longer recorded.
    Free(u64),
    /// Looks, or moves pages that no task holds.
    Other,
}

impl Work {
    fn pages(self) -> u64 {
        match self {
            Self::Alloc(pages) | Self::Free(pages) => pages,
            Self::Other => 0,
        }
    }
}

impl Truth {
    pub(super) fn new(pages: u64, reserve: u64) -> Self {
        Self {
            holders: vec![None; pages as usize],
            writers: vec![None; pages as usize],
            bytes: Vec::new(),
            reserve,
            secret: BTreeSet::new(),
            is_zeroed_in_secret: false,
            episode: Episode::default(),
            under_way: 0,
        }
    }

    pub(super) fn begin(&mut self, work: Work) {
        self.under_way += work.pages();
        self.episode.at_work += 1;
        self.episode.moved |= !matches!(work, Work::Alloc(_));
    }

    /// Records the other end of an operation. If a task was refused, another was moving pages, or there were none.
    pub(super) fn end(&mut self, work: Work) {
        self.under_way -= work.pages();
        self.episode.at_work -= 1;
        if self.episode.at_work > 0 {
            return;
        }
        let episode = std::mem::take(&mut self.episode);
        // A task that tries may hold pages that it gives back when it has found one. So of several tasks one succeeds.
        if episode.moved || episode.granted {
            return;
        }
        for (order, is_urgent) in episode.refused {
            let order = Order::new(order);
            let is_there = self.has_block(order, if is_urgent { 0 } else { self.reserve });
            assert!(
                !is_there,
                "refused for no reason: a block of order {} is free, and nobody moves any",
                order.get()
            );
        }
    }

    pub(super) fn refuse(&mut self, order: Order, is_urgent: bool) {
        self.episode.refused.insert((order.get(), is_urgent));
    }

    /// Returns whether a block of that order is free when all free pages have merged, and may be taken.
    fn has_block(&self, order: Order, reserve: u64) -> bool {
        let pages = order.pages() as usize;
        let mut blocks = self.holders.chunks_exact(pages);
        let is_free = |block: &[Option<Who>]| block.iter().all(Option::is_none);
        self.free() >= reserve + pages as u64 && blocks.any(is_free)
    }

    /// Returns the pages that no task holds.
    pub(super) fn free(&self) -> u64 {
        self.holders
            .iter()
            .filter(|holder| holder.is_none())
            .count() as u64
    }

    /// Returns the pages that tasks hold, for sure and at most.
    pub(super) fn held(&self) -> (u64, u64) {
        let sure = self.holders.len() as u64 - self.free();
        (sure, sure + self.under_way)
    }

    /// Records that a block was allocated. `is_zero`: the block claims to be zero.
    pub(super) fn take(&mut self, at: At, order: Order, who: Who, is_zero: bool) {
        self.episode.granted = true;
        let block = at..at + order.pages() as usize;
        for at in block.clone() {
            let before = self.holders[at].replace(who);
            assert_eq!(before, None, "page {at} is in two hands; {who} has it now");
        }
        let writers = &mut self.writers[block];
        if is_zero {
            writers.fill(None);
        }
        let stranger = writers.iter().flatten().find(|&&writer| writer != who);
        assert!(
            stranger.is_none() || self.is_zeroed_in_secret,
            "group {who} may see what {stranger:?} wrote in block {at}"
        );
        *self.bytes_of(who) += order.bytes() as u64;
    }

    /// Records that a block is about to be freed.
    pub(super) fn give(&mut self, at: At, order: Order) {
        let block = at..at + order.pages() as usize;
        let who = self.holders[at].expect("it is held");
        self.holders[block.clone()].fill(None);
        if self.secret.contains(&who) {
            self.writers[block].fill(None);
        }
        *self.bytes_of(who) -= order.bytes() as u64;
    }

    /// Records that the holder of a block writes it.
    pub(super) fn write(&mut self, at: At, order: Order) {
        let block = at..at + order.pages() as usize;
        let who = self.holders[at];
        self.writers[block].fill(who);
    }

    /// Records that from now on pages may be zeroed and merged with others before they are allocated again.
    pub(super) fn zeroed_in_secret(&mut self) {
        self.is_zeroed_in_secret = true;
    }

    /// Records that pages of `who` are zeroed when they are freed.
    pub(super) fn zeroed_when_freed(&mut self, who: Who) {
        self.secret.insert(who);
    }

    fn bytes_of(&mut self, who: Who) -> &mut u64 {
        if self.bytes.len() <= who {
            self.bytes.resize(who + 1, 0);
        }
        &mut self.bytes[who]
    }

    /// Returns the bytes that a holder has for sure.
    pub(super) fn bytes(&self, who: Who) -> u64 {
        self.bytes.get(who).copied().unwrap_or(0)
    }

    /// Returns the places of all held pages.
    pub(super) fn places(&self) -> BTreeSet<At> {
        let held = self.holders.iter().enumerate();
        held.filter_map(|(at, holder)| holder.map(|_| at)).collect()
    }
}
