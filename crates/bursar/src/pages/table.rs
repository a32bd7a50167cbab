//! Who owns pages whose tokens are not held by anybody: those that somebody has as raw memory.
//!
//! A page that is held as a [`crate::Page`] needs no entry: its token says it all. When the token is given up for an
//! address, the table takes note of the group that pays, and the token can be had back once. So freeing an address twice,
//! or one that was never given out, is noticed before anything is touched.
//!
//! An entry is one word: bits 0-1 say what the page is, 2-5 the order of its block, 32-63 the group that pays.

use std::sync::OnceLock;

use bursar_machine::pages::{Order, Pfn, SPAN_PAGES};
use bursar_machine::{AtomicWord, Machine, Order as Ordering};

/// Pieces of the table, each for the pages of one largest block: as many as pages can be numbered.
const PIECES: usize = 1 << (32 - SPAN_PAGES.trailing_zeros());
/// Pieces that are made together.
const PIECES_PER_GROUP: usize = 1 << 11;

const STATE: u64 = 3;
/// Held as raw memory.
const RAW: u64 = 1;
/// Was, and is not any more.
const FREED: u64 = 2;
const ORDER_SHIFT: u32 = 2;
const GROUP_SHIFT: u32 = 32;

type Piece<M> = OnceLock<Box<[<M as Machine>::Word]>>;
type Group<M> = OnceLock<Box<[Piece<M>]>>;

/// The table of all pages that were ever raw.
pub(crate) struct Table<M: Machine> {
    groups: Box<[Group<M>]>,
}

/// A page that was raw and is its claimant's now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    pub(crate) order: Order,
    /// The group that pays; see [`Table::put`].
    pub(crate) index: u32,
}

/// Why a page is not raw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRaw {
    /// It never was.
    Never,
    /// It was claimed already.
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

    /// An entry that may have to be made. Call in an operation: who comes second waits for the first.
    fn make(&self, pfn: Pfn) -> &M::Word {
        let piece = (pfn.0 / SPAN_PAGES) as usize;
        let group = self.groups[piece / PIECES_PER_GROUP]
            .get_or_init(|| (0..PIECES_PER_GROUP).map(|_| OnceLock::new()).collect());
        let words = group[piece % PIECES_PER_GROUP]
            .get_or_init(|| (0..SPAN_PAGES).map(|_| M::Word::new(0)).collect());
        &words[(pfn.0 % SPAN_PAGES) as usize]
    }

    /// An entry that exists already.
    fn look(&self, pfn: Pfn) -> Option<&M::Word> {
        let piece = (pfn.0 / SPAN_PAGES) as usize;
        let group = self.groups[piece / PIECES_PER_GROUP].get()?;
        let words = group[piece % PIECES_PER_GROUP].get()?;
        Some(&words[(pfn.0 % SPAN_PAGES) as usize])
    }

    /// Notes that a block is raw memory from now on, paid by group `index`.
    pub(crate) fn put(&self, machine: &M, pfn: Pfn, order: Order, index: u32) {
        let entry = RAW | u64::from(order.get()) << ORDER_SHIFT | u64::from(index) << GROUP_SHIFT;
        let word = self.look(pfn).unwrap_or_else(|| {
            let _operation = machine.operation();
            self.make(pfn)
        });
        // Release: pairs with the claim, by whoever was given the address.
        let before = word.swap(entry, Ordering::Full);
        debug_assert_ne!(before & STATE, RAW, "its token was there to be given up");
    }

    /// The raw block that a page is in, as a look.
    pub(crate) fn around(&self, pfn: Pfn) -> Option<(Pfn, Order)> {
        (0..=Order::MAX.get()).map(Order::new).find_map(|least| {
            let first = Pfn(pfn.0 & !(least.pages() - 1));
            // Relaxed: by the next moment it may be another one's.
            let entry = self.look(first)?.load(Ordering::Relaxed);
            let order = Order::new((entry >> ORDER_SHIFT & 0xf) as u8);
            (entry & STATE == RAW && order >= least).then_some((first, order))
        })
    }

    /// Takes the block at a page out, once.
    pub(crate) fn claim(&self, pfn: Pfn) -> Result<Claimed, NotRaw> {
        let entry = self.look(pfn).ok_or(NotRaw::Never)?;
        let mut seen = entry.load(Ordering::Acquire);
        loop {
            match seen & STATE {
                RAW => {}
                FREED => return Err(NotRaw::Claimed),
                _ => return Err(NotRaw::Never),
            }
            // Full: of two who claim it, one finds it raw.
            match entry.compare_exchange(seen, seen & !STATE | FREED, Ordering::Full) {
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
