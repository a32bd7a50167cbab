//! Owners of pages that are held as raw memory, without a token.
//!
//! A page that is held as a [`crate::Page`] needs no entry, because its token says everything. When the token is
//! exchanged for an address, the table records the group that pays. It gives the token back once. So a free of an
//! address that was freed already, or never given out, is detected before anything is touched.
//!
//! An entry is one word: bits 0-1 are the state of the page, 2-5 the order of its block, 32-63 the group that pays.

use std::sync::OnceLock;

use bursar_machine::pages::{Order, Pfn, SPAN_PAGES};
use bursar_machine::{AtomicWord, Machine, MemoryOrder};

/// Number of pieces of the table, enough for all page numbers. Each piece covers the pages of one block of the largest
/// order.
const PIECES: usize = 1 << (32 - SPAN_PAGES.trailing_zeros());
/// Number of pieces that are made together.
const PIECES_PER_GROUP: usize = 1 << 11;

const STATE: u64 = 3;
/// State of a page that is held as raw memory.
const RAW: u64 = 1;
/// State of a page that was raw memory and is claimed.
const FREED: u64 = 2;
const ORDER_SHIFT: u32 = 2;
const GROUP_SHIFT: u32 = 32;

type Piece<M> = OnceLock<Box<[<M as Machine>::Word]>>;
type Group<M> = OnceLock<Box<[Piece<M>]>>;

/// Table of all pages that were ever raw memory.
pub(crate) struct Table<M: Machine> {
    groups: Box<[Group<M>]>,
}

/// A page that was raw memory and belongs to its claimant now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) order: Order,
    /// Group that pays; see [`Table::put`].
    pub(crate) index: u32,
}

/// Reason why a page is not raw memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRaw {
    /// The page never was raw memory.
    Never,
    /// The page was claimed already.
    Claimed,
}

impl<M: Machine> Table<M> {
    pub(crate) fn new() -> Self {
        Self {
            groups: (0..PIECES / PIECES_PER_GROUP)
                .map(|_| OnceLock::new())
                .collect(),
        }
    }

    /// Returns an entry, made if necessary. Call in an operation: a second caller waits for the first.
    fn make(&self, pfn: Pfn) -> &M::Word {
        let piece = (pfn.0 / SPAN_PAGES) as usize;
        let group = self.groups[piece / PIECES_PER_GROUP]
            .get_or_init(|| (0..PIECES_PER_GROUP).map(|_| OnceLock::new()).collect());
        let words = group[piece % PIECES_PER_GROUP]
            .get_or_init(|| (0..SPAN_PAGES).map(|_| M::Word::new(0)).collect());
        &words[(pfn.0 % SPAN_PAGES) as usize]
    }

    /// Returns an entry if it exists.
    fn look(&self, pfn: Pfn) -> Option<&M::Word> {
        let piece = (pfn.0 / SPAN_PAGES) as usize;
        let group = self.groups[piece / PIECES_PER_GROUP].get()?;
        let words = group[piece % PIECES_PER_GROUP].get()?;
        Some(&words[(pfn.0 % SPAN_PAGES) as usize])
    }

    /// Records that a block is raw memory from now on, paid by group `index`.
    pub(crate) fn put(&self, machine: &M, pfn: Pfn, order: Order, index: u32) {
        let entry = RAW | u64::from(order.get()) << ORDER_SHIFT | u64::from(index) << GROUP_SHIFT;
        let word = self.look(pfn).unwrap_or_else(|| {
            let _operation = machine.operation();
            self.make(pfn)
        });
        // Full: pairs with the claim, by the task that was given the address.
        let before = word.swap(entry, MemoryOrder::Full);
        debug_assert_ne!(before & STATE, RAW, "its token was there to be given up");
    }

    /// Looks for the raw block that contains a page.
    pub(crate) fn around(&self, pfn: Pfn) -> Option<(Pfn, Order)> {
        (0..=Order::MAX.get()).map(Order::new).find_map(|least| {
            let first = Pfn(pfn.0 & !(least.pages() - 1));
            // Relaxed: the answer may be out of date at once.
            let entry = self.look(first)?.load(MemoryOrder::Relaxed);
            let order = Order::new((entry >> ORDER_SHIFT & 0xf) as u8);
            (entry & STATE == RAW && order >= least).then_some((first, order))
        })
    }

    /// Takes the raw block at a page, once.
    pub(crate) fn claim(&self, pfn: Pfn) -> Result<Claimed, NotRaw> {
        let entry = self.look(pfn).ok_or(NotRaw::Never)?;
        // Acquire: pairs with the swap in `put`.
        let mut seen = entry.load(MemoryOrder::Acquire);
        loop {
            match seen & STATE {
                RAW => {}
                FREED => return Err(NotRaw::Claimed),
                _ => return Err(NotRaw::Never),
            }
            // Full: of two claims, one finds the page raw.
            match entry.compare_exchange(seen, seen & !STATE | FREED, MemoryOrder::Full) {
                Ok(_) => {
                    let order = Order::new((seen >> ORDER_SHIFT & 0xf) as u8);
                    let index = (seen >> GROUP_SHIFT) as u32;
                    return Ok(Claimed { order, index });
                }
                Err(now) => seen = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::Host;

    use super::*;

    const FIRST: Pfn = Pfn(5 * SPAN_PAGES + 16);

    #[test]
    fn a_raw_block_is_claimed_once() {
        let (machine, table) = (Host::start().unwrap(), Table::<Host>::new());
        assert_eq!(table.claim(FIRST), Err(NotRaw::Never));
        for (order, index) in [(3, 7), (0, u32::MAX), (4, 0)] {
            let order = Order::new(order);
            table.put(&machine, FIRST, order, index);
            assert_eq!(table.claim(Pfn(FIRST.0 + 1)), Err(NotRaw::Never));
            assert_eq!(table.claim(FIRST), Ok(Claimed { order, index }));
            assert_eq!(table.claim(FIRST), Err(NotRaw::Claimed));
            assert_eq!(table.claim(FIRST), Err(NotRaw::Claimed));
        }
    }

    #[test]
    fn a_raw_block_is_around_each_of_its_pages() {
        let (machine, table) = (Host::start().unwrap(), Table::<Host>::new());
        for order in [0, 3, 4].map(Order::new) {
            table.put(&machine, FIRST, order, 7);
            for at in 0..order.pages() {
                assert_eq!(table.around(Pfn(FIRST.0 + at)), Some((FIRST, order)));
            }
            assert_eq!(table.around(Pfn(FIRST.0 + order.pages())), None);
            assert_eq!(table.around(Pfn(FIRST.0 - 1)), None);
            table.claim(FIRST).expect("it is raw");
            assert_eq!(table.around(FIRST), None);
        }
    }
}
