//! Who holds which page, who has written there, and who was refused while nobody was in the way.
//!
//! A note is taken before a page is given back and after one was had, so what is noted as held is held. Notes are not the
//! machine's words: taking one is no step.

use std::collections::BTreeSet;

use bursar::pages::Order;

/// Who holds a page: a group's number, never used again; 0 is the process.
pub(super) type Who = usize;
/// A page's place in the zone.
pub(super) type At = usize;

/// See the module.
pub(super) struct Truth {
    /// By page.
    holders: Vec<Option<Who>>,
    /// Who wrote last, since the page was known to be zero.
    writers: Vec<Option<Who>>,
    /// Bytes of pages noted as held, by holder.
    bytes: Vec<u64>,
    /// Pages that an ordinary allocation leaves.
    reserve: u64,
    /// Groups whose pages are zeroed when they are freed.
    secret: BTreeSet<Who>,
    /// Pages may have become zero without anybody being told: what was written there says nothing any more.
    is_zeroed_in_secret: bool,
    episode: Episode,
    /// Pages that somebody is just allocating or freeing.
    under_way: u64,
}

/// A time in which somebody is at work, between two in which nobody is.
#[derive(Default)]
struct Episode {
    at_work: usize,
    granted: bool,
    /// Somebody moves pages for other reasons than to allocate them.
    moved: bool,
    refused: BTreeSet<(u8, bool)>,
}

/// What a task is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Allocates so many pages.
    Alloc(u64),
    /// Frees so many pages, which are no longer noted.
    Free(u64),
    /// Looks, or moves pages that nobody holds.
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

    /// The other end. Whoever is refused met somebody who was moving pages, or there were none.
    pub(super) fn end(&mut self, work: Work) {
        self.under_way -= work.pages();
        self.episode.at_work -= 1;
        if self.episode.at_work > 0 {
            return;
        }
        let episode = std::mem::take(&mut self.episode);
        // Whoever tries may have pages in its hands that it gives back when it has found one. So of several one succeeds.
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

    /// Whether a block of that order is free when all pages that nobody holds have merged, and may be taken.
    fn has_block(&self, order: Order, reserve: u64) -> bool {
        let pages = order.pages() as usize;
        let mut blocks = self.holders.chunks_exact(pages);
        let is_free = |block: &[Option<Who>]| block.iter().all(Option::is_none);
        self.free() >= reserve + pages as u64 && blocks.any(is_free)
    }

    /// Pages that nobody holds.
    pub(super) fn free(&self) -> u64 {
        self.holders
            .iter()
            .filter(|holder| holder.is_none())
            .count() as u64
    }

    /// Pages that somebody holds, for sure and at most.
    pub(super) fn held(&self) -> (u64, u64) {
        let sure = self.holders.len() as u64 - self.free();
        (sure, sure + self.under_way)
    }

    /// A block was had. `is_zero`: so it says.
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

    /// A block is about to be given back.
    pub(super) fn give(&mut self, at: At, order: Order) {
        let block = at..at + order.pages() as usize;
        let who = self.holders[at].expect("it is held");
        self.holders[block.clone()].fill(None);
        if self.secret.contains(&who) {
            self.writers[block].fill(None);
        }
        *self.bytes_of(who) -= order.bytes() as u64;
    }

    /// A block is written by whoever holds it.
    pub(super) fn write(&mut self, at: At, order: Order) {
        let block = at..at + order.pages() as usize;
        let who = self.holders[at];
        self.writers[block].fill(who);
    }

    /// From now on pages may be zeroed and joined with others before they are had again.
    pub(super) fn zeroed_in_secret(&mut self) {
        self.is_zeroed_in_secret = true;
    }

    /// Pages of `who` are zeroed when they are freed.
    pub(super) fn zeroed_when_freed(&mut self, who: Who) {
        self.secret.insert(who);
    }

    fn bytes_of(&mut self, who: Who) -> &mut u64 {
        if self.bytes.len() <= who {
            self.bytes.resize(who + 1, 0);
        }
        &mut self.bytes[who]
    }

    /// Bytes that somebody holds for sure.
    pub(super) fn bytes(&self, who: Who) -> u64 {
        self.bytes.get(who).copied().unwrap_or(0)
    }

    /// What is held, as the places of pages.
    pub(super) fn places(&self) -> BTreeSet<At> {
        let held = self.holders.iter().enumerate();
        held.filter_map(|(at, holder)| holder.map(|_| at)).collect()
    }
}
