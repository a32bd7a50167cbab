//! Places of free blocks while they are free, and a bit for each page that is in one.
//!
//! A zone is a row of *granules*, each a block of the largest order. A granule gets a table of its frames when it is
//! allocated for the first time. So an allocation may find no memory for the table, and a free never does. A table
//! takes 16 KiB for 4 MiB of pages. Until then a granule costs two words, which is 4 MiB for a zone of 1 TiB. A table
//! is kept until the zone is gone.

use std::ops::{Deref, DerefMut};

use bursar_machine::pages::{Block, Order, Pfn, SPAN_PAGES};

use crate::room;

/// No frame.
pub(super) const NONE: u32 = u32::MAX;

const WORD_BITS: u32 = u64::BITS;
const WORDS: usize = (SPAN_PAGES / WORD_BITS) as usize;

/// Frame of one page, by the page's index in the zone.
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

/// Neighbours of a free block in its list.
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
    /// One bit for each page that is in a free block.
    free: [u64; WORDS],
    frames: [Frame; SPAN_PAGES as usize],
}

/// A table, as a slice of one: that is what can be allocated with an error.
pub(super) struct Boxed(Box<[Table]>);

impl Boxed {
    /// `None` if there is no memory for it.
    fn new() -> Option<Self> {
        let table = || Table {
            free: [0; WORDS],
            frames: [const { Frame::NONE }; SPAN_PAGES as usize],
        };
        room::boxed(1, table).map(Self)
    }
}

impl Deref for Boxed {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.0[0]
    }
}

impl DerefMut for Boxed {
    fn deref_mut(&mut self) -> &mut Table {
        &mut self.0[0]
    }
}

/// Number of spare tables that are kept.
pub(super) const SPARES: usize = 2;

/// Table for a granule that has none. It is made ahead, because allocating it under a lock takes too long.
pub struct SpareTable(Boxed);

impl SpareTable {
    /// Makes an empty table; `None` if there is no memory for it.
    pub fn new() -> Option<Self> {
        Boxed::new().map(Self)
    }
}

/// Frames of a zone.
pub(super) struct Frames {
    first: Pfn,
    pages: u32,
    /// One table for each granule.
    pub(super) tables: Vec<Option<Boxed>>,
    /// Tables for granules that have none yet.
    pub(super) spares: Vec<SpareTable>,
    /// Number of frames that were looked at or changed.
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

    /// Index of a page, if it belongs to this zone.
    pub(super) fn index(&self, pfn: Pfn) -> Option<u32> {
        let index = pfn.0.checked_sub(self.first.0)?;
        (index < self.pages).then_some(index)
    }

    /// Index of a page that is known to belong to this zone.
    pub(super) fn index_in_zone(&self, pfn: Pfn) -> u32 {
        debug_assert!(self.index(pfn).is_some());
        pfn.0 - self.first.0
    }

    /// Returns whether a free block of exactly that order begins there.
    pub(super) fn is_block(&self, index: u32, order: Order) -> bool {
        let Some(table) = &self.tables[granule(index)] else {
            return false;
        };
        self.touch();
        let block = &table.frames[within(index)].block;
        block.as_ref().is_some_and(|block| block.order() == order)
    }

    /// Parks a block of pages that are marked free; returns its index.
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

    /// Returns whether any page of the block is in a free block.
    pub(super) fn is_any_free(&self, index: u32, order: Order) -> bool {
        self.tables[granule(index)].as_ref().is_some_and(|table| {
            let mut words = words(index, order);
            words.any(|(word, mask)| table.free[word] & mask != 0)
        })
    }

    /// Makes the table of a granule that is used for the first time; `false` if there is no memory for it.
    pub(super) fn make_table(&mut self, index: u32) -> bool {
        let spare = self.spares.pop().or_else(SpareTable::new);
        let table = &mut self.tables[granule(index)];
        *table = spare.map(|spare| spare.0);
        table.is_some()
    }

    /// Marks all pages of a block as free.
    pub(super) fn mark_free(&mut self, index: u32, order: Order) {
        let table = self.tables[granule(index)].as_mut();
        let table = table.expect("it was made with the first block");
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

/// Words with the bits of a block's pages, and the mask of these bits: one word up to order 6, and 16 at most.
fn words(index: u32, order: Order) -> impl Iterator<Item = (usize, u64)> {
    let (first, pages) = (within(index) as u32, order.pages());
    let ones = u64::MAX >> (WORD_BITS - pages.min(WORD_BITS));
    let mask = ones << (first % WORD_BITS);
    let word = first / WORD_BITS;
    (word..word + pages.div_ceil(WORD_BITS)).map(move |word| (word as usize, mask))
}
