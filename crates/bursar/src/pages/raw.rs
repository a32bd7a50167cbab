//! Pages as raw memory: exchange of the token for a frame number, and back.

use bursar_machine::Machine;
use bursar_machine::pages::{Block, Frames, Order, Owner, Pfn};

use super::error::ClaimError;
use super::page::{Page, Tag, UNCHARGED};
use crate::limit::PROCESS;
use crate::memory::Memory;
use crate::react::Core;
use crate::zones::{NotRaw, Zeroed};

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
        // The token's holder may have set another owner, and written through the address, which the token does not note.
        block.set_owner(self.owner);
        let _ = zones.zone(self.zone).frames.uninit(&mut block);
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

/// Claims a block that was given out as raw memory.
pub(super) fn claim<M: Machine>(core: &Core<M>, pfn: Pfn) -> Result<Claim, ClaimError> {
    let foreign = ClaimError::Foreign { pfn };
    let zones = core.pages.zones().ok_or(foreign)?;
    let zone = zones.zone_of(pfn).ok_or(foreign)?;
    let claimed = zones.table.claim(pfn).map_err(|error| match error {
        NotRaw::Never => ClaimError::NotGivenOut { pfn },
        // Its pages may have been given out again as a part of a bigger block.
        NotRaw::Claimed => match zones.table.around(pfn) {
            Some((first, _)) if first != pfn => ClaimError::NotGivenOut { pfn },
            _ => ClaimError::AlreadyFreed { pfn },
        },
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
