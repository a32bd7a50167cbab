//! Free blocks of one zone.
//!
//! Free blocks wait in two lists for each order (`lists.rs`), threaded through tables of frames (`frames.rs`). A block
//! that is freed is joined with its buddy as long as that is free as well. An allocation takes the smallest block that
//! suffices and cuts it. Neither searches: both touch a number of frames that is bounded by the number of orders.
//!
//! This is plain data, without a machine and without locks. The caller holds the zone's lock.
//!
//! # Which block is taken
//! 1. The smallest that suffices, so that large blocks stay whole.
//! 2. Among these, one with memory behind it: each order has one list for such blocks and one for the others.
//! 3. The one that was freed last, whose lines may still be in a cache. An exception is a block that would become part
//!    of a yet larger one if its buddy were freed. It goes to the other end of its list, which gives it time for that.
//! 4. Pages that were never used, only if there is nothing else. They are not in the lists: they have no frames yet.
//!
//! The kernel also has a list for each migrate type (`mm/page_alloc.c`). The memory of a process is either always
//! movable or never.

mod frames;
mod lists;

use core::fmt;

use bursar_machine::pages::{Block, Content, Order, Pfn, SPAN_PAGES, Span};

use frames::Frames;
pub use frames::SpareTable;
use lists::{Backing, End, Lists};

/// Free blocks of one zone.
#[doc(alias = "free_area")]
pub struct Buddy {
    /// Last pages of the zone, until they are used for the first time.
    never_used: Span,
    managed_pages: u64,
    /// Number of pages in the lists.
    listed_pages: u64,
    /// Number of pages in the lists that have memory behind them.
    backed_pages: u64,
    lists: Lists,
    frames: Frames,
}

impl fmt::Debug for Buddy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buddy")
            .field("managed_pages", &self.managed_pages())
            .field("free_pages", &self.free_pages())
            .field("backed_pages", &self.backed_pages())
            .finish_non_exhaustive()
    }
}

impl Buddy {
    /// Makes a zone of the pages of `span`, all free. `first` is the first of them.
    ///
    /// # Panics
    /// If `first` is not a multiple of [`SPAN_PAGES`], or the zone has 2^32 pages.
    pub fn new(span: Span, first: Pfn) -> Self {
        assert!(
            first.0.is_multiple_of(SPAN_PAGES),
            "a zone begins with a block of the largest order"
        );
        let managed_pages = span.pages();
        let pages = u32::try_from(managed_pages).expect("a zone has less than 2^32 pages");
        Self {
            never_used: span,
            managed_pages,
            listed_pages: 0,
            backed_pages: 0,
            lists: Lists::new(),
            frames: Frames::new(first, pages),
        }
    }

    /// Returns whether a [`SpareTable`] is welcome. Without a spare one, the allocation that needs a table makes it.
    pub fn wants_table(&self) -> bool {
        self.frames.spares.len() < frames::SPARES
    }

    /// Returns whether there is a spare table.
    pub fn has_spare_table(&self) -> bool {
        !self.frames.spares.is_empty()
    }

    /// Keeps a table for later; gives it back if there are enough.
    pub fn add_table(&mut self, table: SpareTable) -> Option<SpareTable> {
        if !self.wants_table() {
            return Some(table);
        }
        self.frames.spares.push(table);
        None
    }

    /// Takes a block out, if there is one that is large enough.
    #[doc(alias = "rmqueue_buddy")]
    pub fn alloc(&mut self, order: Order) -> Option<Block> {
        let Some((backing, found)) = self.lists.smallest(order) else {
            return self.alloc_never_used(order);
        };
        let block = self.take(self.lists.first(backing, found));
        Some(self.cut(block, order))
    }

    /// Puts a block in, joined with its buddies while they are free.
    ///
    /// # Panics
    /// If the block is not of this zone, or a page of it is free already, which means that its token was forged.
    #[doc(alias = "__free_one_page")]
    pub fn free(&mut self, mut block: Block) {
        let index = self.frames.index(block.pfn());
        let index = index.unwrap_or_else(|| panic!("{block:?} is not of {self:?}"));
        assert!(
            index < self.never_used_from() && !self.frames.is_any_free(index, block.order()),
            "{block:?} is free already"
        );
        self.frames.mark_free(index, block.order());
        while block.order() < Order::MAX {
            let buddy = self.frames.index_in_zone(block.buddy());
            if !self.frames.is_block(buddy, block.order()) {
                break;
            }
            let buddy = self.take(buddy);
            block = block
                .merge(buddy)
                .expect("buddies of one order can be joined");
        }
        let end = match self.is_merge_likely(&block) {
            true => End::Back,
            false => End::Front,
        };
        self.put(block, end);
    }

    /// Takes out a block of an order from `least` to `most` with memory behind it, to give that memory back to the
    /// system. The block is one of the largest, and of these the one that was free longest. It comes back through
    /// [`Buddy::free`].
    pub fn take_backed(&mut self, least: Order, most: Order) -> Option<Block> {
        let order = self.lists.largest(Backing::There, least, most)?;
        let block = self.take(self.lists.last(Backing::There, order));
        let index = self.frames.index_in_zone(block.pfn());
        self.frames.mark_used(index, order);
        Some(block)
    }

    /// Number of free pages, including pages that were never used.
    pub fn free_pages(&self) -> u64 {
        self.listed_pages + self.never_used.pages()
    }

    /// Number of free blocks of exactly that order. Pages never used count as blocks of the largest order.
    pub fn free_blocks(&self, order: Order) -> u64 {
        let never_used = match order {
            Order::MAX => self.never_used.pages() / u64::from(SPAN_PAGES),
            _ => 0,
        };
        self.lists.blocks(order) + never_used
    }

    /// Number of pages of the zone.
    pub fn managed_pages(&self) -> u64 {
        self.managed_pages
    }

    /// Number of free pages with memory behind them. A block joined from one with memory and one without counts as a
    /// whole.
    pub fn backed_pages(&self) -> u64 {
        self.backed_pages
    }

    /// Returns whether the page lies in a free block of this zone.
    pub fn is_free(&self, pfn: Pfn) -> bool {
        let index = self.frames.index(pfn);
        index.is_some_and(|index| {
            index >= self.never_used_from() || self.frames.is_any_free(index, Order::ZERO)
        })
    }

    /// Index of the first page that was never used: a [`Span`] gives its blocks from the first on.
    fn never_used_from(&self) -> u32 {
        (self.managed_pages - self.never_used.pages()) as u32
    }

    fn alloc_never_used(&mut self, order: Order) -> Option<Block> {
        let index = self.never_used_from();
        // Also for a block that is not cut: its free must find a table.
        if self.never_used.pages() == 0 || !self.frames.make_table(index) {
            return None;
        }
        let block = self.never_used.take()?;
        assert_eq!(
            self.frames.index(block.pfn()),
            Some(index),
            "the span is of another zone"
        );
        if order == Order::MAX {
            return Some(block);
        }
        self.frames.mark_free(index, Order::MAX);
        Some(self.cut(block, order))
    }

    /// Returns the first piece of that order of a block whose pages are all still marked free. The other pieces go into
    /// the lists.
    #[doc(alias = "expand")]
    fn cut(&mut self, mut block: Block, order: Order) -> Block {
        while block.order() > order {
            let (first, rest) = block.split();
            self.put(rest, End::Front);
            block = first;
        }
        let index = self.frames.index_in_zone(block.pfn());
        self.frames.mark_used(index, order);
        block
    }

    /// Returns whether the block would become part of a yet larger one if its buddy were freed.
    #[doc(alias = "buddy_merge_likely")]
    fn is_merge_likely(&self, block: &Block) -> bool {
        let order = block.order().get();
        if order + 1 >= Order::MAX.get() {
            return false;
        }
        let larger = Order::new(order + 1);
        let joined = block.pfn().0 & !block.order().pages();
        let buddy = self.frames.index_in_zone(Pfn(joined ^ larger.pages()));
        self.frames.is_block(buddy, larger)
    }

    fn put(&mut self, block: Block, end: End) {
        let (order, backing) = (block.order(), Backing::of(&block));
        let pages = u64::from(order.pages());
        self.listed_pages += pages;
        if backing == Backing::There {
            self.backed_pages += pages;
        }
        let index = self.frames.park(block);
        self.lists
            .insert(&mut self.frames, index, (backing, order), end);
    }

    fn take(&mut self, index: u32) -> Block {
        let block = self.frames.unpark(index);
        let (order, backing) = (block.order(), Backing::of(&block));
        let pages = u64::from(order.pages());
        self.listed_pages -= pages;
        if backing == Backing::There {
            self.backed_pages -= pages;
        }
        self.lists.remove(&mut self.frames, index, (backing, order));
        block
    }
}

impl Backing {
    fn of(block: &Block) -> Self {
        match block.content() {
            Content::Unbacked => Self::Absent,
            _ => Self::There,
        }
    }
}

#[cfg(test)]
mod tests;
