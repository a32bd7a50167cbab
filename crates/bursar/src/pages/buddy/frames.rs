//! Where free blocks are kept while they are free, and which pages are in them.
//!
//! A zone is a row of *granules*, each a block of the largest order. A granule has a table of its frames from the first time
//! on that one of its pages is parked here, which is when it is cut, or comes back whole: 16 KiB for 4 MiB. Before, it
//! costs a pointer, which makes 2 MiB for a zone of 1 TiB. A table is kept until the zone is gone.

use bursar_machine::pages::{Block, Order, Pfn, SPAN_PAGES};

/// No frame.
pub(super) const NONE: u32 = u32::MAX;

const WORD_BITS: u32 = u64::BITS;
const WORDS: usize = (SPAN_PAGES / WORD_BITS) as usize;

/// One page, by its index in the zone.
struct Frame {
    /// The free block that begins here.
    block: Option<Block>,
    links: Links,
}

impl Frame {
    const NONE: Self = Self {
        block: None,
        links: Links::NONE,
    };
}

/// The neighbours of a free block in its list.
#[derive(Clone, Copy)]
pub(super) struct Links {
    pub(super) previous: u32,
    pub(super) next: u32,
}

impl Links {
    pub(super) const NONE: Self = Self {
        previous: NONE,
        next: NONE,
    };
}

pub(super) struct Table {
    /// A bit for each page: whether it is in a free block.
    free: [u64; WORDS],
    frames: [Frame; SPAN_PAGES as usize],
}

impl Table {
    fn new() -> Box<Self> {
        Box::new(Self {
            free: [0; WORDS],
            frames: [const { Frame::NONE }; SPAN_PAGES as usize],
        })
    }
}

/// Spare tables that are kept.
pub(super) const SPARES: usize = 2;

/// A table for a granule that has none, made ahead: it takes memory, which is nothing to do under a lock.
pub struct SpareTable(Box<Table>);

impl SpareTable {
    /// An empty one.
    #[allow(clippy::new_without_default, reason = "it takes 16 KiB")]
    pub fn new() -> Self {
        Self(Table::new())
    }
}

/// The frames of a zone.
pub(super) struct Frames {
    first: Pfn,
    pages: u32,
    /// One for each granule.
    pub(super) tables: Vec<Option<Box<Table>>>,
    /// For granules that have none yet.
    pub(super) spares: Vec<SpareTable>,
    /// How many frames were looked at or changed.
    #[cfg(test)]
    pub(super) touched: core::cell::Cell<u64>,
}

impl Frames {
    pub(super) fn new(first: Pfn, pages: u32) -> Self {
        let mut tables = Vec::new();
        tables.resize_with((pages / SPAN_PAGES) as usize, || None);
        Self {
            first,
            pages,
            tables,
            spares: Vec::with_capacity(SPARES),
            #[cfg(test)]
            touched: core::cell::Cell::new(0),
        }
    }

    /// The index of a page, if it is of this zone.
    pub(super) fn index(&self, pfn: Pfn) -> Option<u32> {
        let index = pfn.0.checked_sub(self.first.0)?;
        (index < self.pages).then_some(index)
    }

    /// The index of a page that is known to be of this zone.
    pub(super) fn index_in_zone(&self, pfn: Pfn) -> u32 {
        debug_assert!(self.index(pfn).is_some());
        pfn.0 - self.first.0
    }

    /// Whether a free block of exactly that order begins there.
    pub(super) fn is_block(&self, index: u32, order: Order) -> bool {
        let Some(table) = &self.tables[granule(index)] else {
            return false;
        };
        self.touch();
        let block = &table.frames[within(index)].block;
        block.as_ref().is_some_and(|block| block.order() == order)
    }

    /// Keeps a block of pages that are marked free; its index.
    pub(super) fn park(&mut self, block: Block) -> u32 {
        let index = self.index_in_zone(block.pfn());
        let there = self.frame(index).block.replace(block);
        debug_assert_eq!(there, None);
        index
    }

    /// Gives back the block that begins there.
    pub(super) fn unpark(&mut self, index: u32) -> Block {
        self.frame(index).block.take().expect("a listed block")
    }

    pub(super) fn links(&mut self, index: u32) -> &mut Links {
        &mut self.frame(index).links
    }

    /// Whether any page of the block is in a free block.
    pub(super) fn is_any_free(&self, index: u32, order: Order) -> bool {
        self.tables[granule(index)].as_ref().is_some_and(|table| {
            let mut words = words(index, order);
            words.any(|(word, mask)| table.free[word] & mask != 0)
        })
    }

    /// Marks all pages of a block as free.
    pub(super) fn mark_free(&mut self, index: u32, order: Order) {
        let spare = || self.spares.pop().map_or_else(Table::new, |spare| spare.0);
        let table = self.tables[granule(index)].get_or_insert_with(spare);
        for (word, mask) in words(index, order) {
            table.free[word] |= mask;
        }
    }

    /// Marks all pages of a block as used.
    pub(super) fn mark_used(&mut self, index: u32, order: Order) {
        let table = self.tables[granule(index)].as_mut();
        let table = table.expect("it was free, and is marked");
        for (word, mask) in words(index, order) {
            table.free[word] &= !mask;
        }
    }

    fn frame(&mut self, index: u32) -> &mut Frame {
        self.touch();
        let table = self.tables[granule(index)].as_mut();
        &mut table.expect("its pages are marked").frames[within(index)]
    }

    fn touch(&self) {
        #[cfg(test)]
        self.touched.set(self.touched.get() + 1);
    }
}

fn granule(index: u32) -> usize {
    (index / SPAN_PAGES) as usize
}

fn within(index: u32) -> usize {
    (index % SPAN_PAGES) as usize
}

/// The words with the bits of a block's pages, and these bits: one word up to order 6, and 16 at most.
fn words(index: u32, order: Order) -> impl Iterator<Item = (usize, u64)> {
    let (first, pages) = (within(index) as u32, order.pages());
    let ones = u64::MAX >> (WORD_BITS - pages.min(WORD_BITS));
    let mask = ones << (first % WORD_BITS);
    let word = first / WORD_BITS;
    (word..word + pages.div_ceil(WORD_BITS)).map(move |word| (word as usize, mask))
}
