//! Pages as raw memory: exchange of the token for a frame number, and back.

use bursar_machine::Machine;
use bursar_machine::pages::{Block, Order, Owner, Pfn};

use super::{ClaimError, Page, Tag, UNCHARGED};
use crate::limit::PROCESS;
use crate::memory::Memory;
use crate::pages::{NotRaw, Zeroed, Zones};
use crate::react::{Core, fork};

/// Claim on a block that was given out as raw memory and will become a page again.
///
/// A caller that can make the block's token from its number does so, and calls [`Claim::page`]. The pages stay charged
/// until then.
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
    /// First page of the block.
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// Order of the block.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Owner of the block's bytes.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Turns the block into a page again, with its token. Its bytes count as uninitialized.
    ///
    /// # Panics
    /// If `block` is the token of another block, or `memory` is another memory.
    pub fn page<M: Machine>(self, memory: &Memory<M>, mut block: Block) -> Page<M> {
        assert_eq!(
            (block.pfn(), block.order()),
            (self.pfn, self.order),
            "the block's token"
        );
        let core = memory.core();
        let zones = core
            .pages
            .zones()
            .expect("a claim is of a memory with pages");
        assert_eq!(
            zones.zone_of(self.pfn),
            Some(self.zone),
            "the memory of the claim"
        );
        // The token's holder may have set another owner.
        block.set_owner(self.owner);
        let slot = match self.index {
            UNCHARGED => core.pages.root_slot.clone(),
            index => core.tree().node(index).slot.clone(),
        };
        Page {
            core: core.clone(),
            slot,
            block: Some(block),
            tag: Tag::new(self.index, self.zone, self.order, Zeroed::No),
        }
    }
}

impl<M: Machine> Page<M> {
    /// Reservation that the page belongs to.
    pub fn frames(&self) -> &M::Frames {
        &self.core.pages.zone(self.tag.zone()).frames
    }

    /// Gives up the token. The pages stay allocated and charged until [`Memory::claim`] takes them back by the number
    /// of their first frame. The caller turns the returned token into an address.
    pub fn into_block(mut self) -> Block {
        // The table grows under a lock.
        let _operation = fork::operation(&self.core);
        let block = self.block.take().expect("there until the page is gone");
        let zones = self.core.pages.zones().expect("pages come from zones");
        let machine = &self.core.tree().machine;
        let (pfn, order) = (block.pfn(), block.order());
        zones.table.put(machine, pfn, order, self.tag.index());
        block
    }
}

impl<M: Machine> Memory<M> {
    /// Reservations that pages come from, by node; none before the first page is requested.
    pub fn frames(&self) -> impl Iterator<Item = &M::Frames> {
        let zones = self.core().pages.zones().into_iter().flat_map(Zones::iter);
        zones.map(|zone| &zone.frames)
    }

    /// Raw block that contains a page, by its first page. Explains an address that [`Memory::claim`] refuses. Another
    /// task may have claimed the block by the time the caller looks.
    pub fn raw_block(&self, pfn: Pfn) -> Option<(Pfn, Order)> {
        self.core().pages.zones()?.table.around(pfn)
    }

    /// Claims a block that [`Page::into_block`] gave out.
    ///
    /// # Errors
    /// [`ClaimError`]: a double free, or not such a block. Nothing changes then.
    pub fn claim(&self, pfn: Pfn) -> Result<Claim, ClaimError> {
        let core: &Core<M> = self.core();
        let foreign = ClaimError::Foreign { pfn };
        let zones = core.pages.zones().ok_or(foreign)?;
        let zone = zones.zone_of(pfn).ok_or(foreign)?;
        let claimed = zones.table.claim(pfn).map_err(|error| match error {
            NotRaw::Never => ClaimError::NotGivenOut { pfn },
            NotRaw::Claimed => ClaimError::AlreadyFreed { pfn },
        })?;
        let owner = match claimed.index {
            UNCHARGED => PROCESS,
            index => core.counters.counter(index).owner(),
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
