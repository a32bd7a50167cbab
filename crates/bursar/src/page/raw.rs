//! Pages as raw memory: giving the token up for a frame number, and having it back.

use bursar_machine::Machine;
use bursar_machine::pages::{Block, Order, Owner, Pfn};

use super::{ClaimError, Page, Tag, UNCHARGED};
use crate::books::Books;
use crate::charge::PROCESS;
use crate::memory::Memory;
use crate::pages::{NotRaw, Zeroed, Zones};

/// A block that was given out as raw memory, and is to become a page again.
///
/// Whoever can make the block's token out of its number does so, and calls [`Claim::page`]; the pages stay charged until
/// then.
#[must_use = "the pages are lost otherwise"]
#[derive(Debug)]
pub struct Claim {
    pfn: Pfn,
    order: Order,
    index: u32,
    zone: u16,
    owner: Owner,
}

impl Claim {
    /// The first page.
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// The block's order.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Whose bytes these are.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// The page again, by its token. Its bytes count as uninitialized.
    ///
    /// # Panics
    /// If that is the token of another block, or the memory another one.
    pub fn page<M: Machine>(self, memory: &Memory<M>, mut block: Block) -> Page<M> {
        assert_eq!(
            (block.pfn(), block.order()),
            (self.pfn, self.order),
            "the block's token"
        );
        let books = memory.books();
        let zones = books.zones().expect("a claim is of a memory with pages");
        assert_eq!(
            zones.zone_of(self.pfn),
            Some(self.zone),
            "the memory of the claim"
        );
        // Whoever had the token may have said otherwise.
        block.set_owner(self.owner);
        let slot = match self.index {
            UNCHARGED => books.root_slot.clone(),
            index => books.tree.node(index).slot.clone(),
        };
        Page {
            books: books.clone(),
            slot,
            block: Some(block),
            tag: Tag::new(self.index, self.zone, self.order, Zeroed::No),
        }
    }
}

impl<M: Machine> Page<M> {
    /// The reservation that the page is of.
    pub fn frames(&self) -> &M::Frames {
        &self.books.zone(self.tag.zone()).frames
    }

    /// Gives the token up: the pages stay allocated and charged until [`Memory::claim`] has them back by the number of their
    /// first frame. The token is returned for whoever turns it into an address.
    pub fn into_block(mut self) -> Block {
        // The table grows under a lock.
        let _operation = self.books.operation();
        let block = self.block.take().expect("there until the page is gone");
        let zones = self.books.zones().expect("pages come from zones");
        let machine = &self.books.tree.machine;
        let (pfn, order) = (block.pfn(), block.order());
        zones.table.put(machine, pfn, order, self.tag.index());
        block
    }
}

impl<M: Machine> Memory<M> {
    /// The reservations that pages come from, by node; none before the first page is asked for.
    pub fn frames(&self) -> impl Iterator<Item = &M::Frames> {
        let zones = self.books().zones().into_iter().flat_map(Zones::iter);
        zones.map(|zone| &zone.frames)
    }

    /// The raw block that a page is in, by its first page: what to say of an address that [`Memory::claim`] refuses. Another
    /// task may have had it back by the time you look.
    pub fn raw_block(&self, pfn: Pfn) -> Option<(Pfn, Order)> {
        self.books().zones()?.table.around(pfn)
    }

    /// Has a block back that [`Page::into_block`] gave out.
    ///
    /// # Errors
    /// [`ClaimError`]: a double free, or not such a block. Nothing changes then.
    pub fn claim(&self, pfn: Pfn) -> Result<Claim, ClaimError> {
        let books: &Books<M> = self.books();
        let foreign = ClaimError::Foreign { pfn };
        let zones = books.zones().ok_or(foreign)?;
        let zone = zones.zone_of(pfn).ok_or(foreign)?;
        let claimed = zones.table.claim(pfn).map_err(|error| match error {
            NotRaw::Never => ClaimError::NotGivenOut { pfn },
            NotRaw::Claimed => ClaimError::AlreadyFreed { pfn },
        })?;
        let owner = match claimed.index {
            UNCHARGED => PROCESS,
            index => books.counter(index).owner(),
        };
        Ok(Claim {
            pfn,
            order: claimed.order,
            index: claimed.index,
            zone,
            owner,
        })
    }
}
