//! Requests for pages: the charge, and the block from the zones.

use bursar_machine::pages::{Block, Order, Owner};
use bursar_machine::{Machine, Outcome, Slot};

use super::error::AllocPagesError;
use super::page::Page;
use crate::charge::Charge;
use crate::group::Group;
use crate::react::slow_charge;
use crate::react::{Core, fork};
use crate::zones::{NoBlock, Placement, Urgency, Zeroed};

/// Request for new pages.
///
/// ```
/// use bursar::pages::{Order, Placement};
/// use bursar::{Limits, Memory, PageRequest};
///
/// let memory = Memory::host()?;
/// let group = memory.root().child("cache", Limits::none())?;
/// let request = PageRequest::new(Order::new(4)).zeroed().on(Placement::Only(0));
/// let page = request.alloc(&group)?;
/// assert_eq!((page.len(), page.node()), (64 << 10, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a request asks for nothing until it is made"]
pub struct PageRequest {
    order: Order,
    zeroed: Zeroed,
    placement: Placement,
    urgency: Urgency,
}

impl PageRequest {
    /// Asks for 2^order pages whose bytes need not be zero, near the caller's CPU.
    pub fn new(order: Order) -> Self {
        Self {
            order,
            zeroed: Zeroed::No,
            placement: Placement::default(),
            urgency: Urgency::default(),
        }
    }

    /// Asks for zeroed bytes.
    pub fn zeroed(self) -> Self {
        Self {
            zeroed: Zeroed::Yes,
            ..self
        }
    }

    /// Asks for pages on a node.
    pub fn on(self, placement: Placement) -> Self {
        Self { placement, ..self }
    }

    /// Allows the use of pages kept for emergencies.
    pub fn urgent(self) -> Self {
        Self {
            urgency: Urgency::Emergency,
            ..self
        }
    }

    /// Allocates the pages and charges them to a group, as [`Group::alloc_pages`] does.
    ///
    /// # Errors
    /// [`AllocPagesError`]. Nothing is charged then.
    pub fn alloc<M: Machine>(self, group: &Group<M>) -> Result<Page<M>, AllocPagesError> {
        let bytes = self.order.bytes() as u64;
        let outcome = group.slot().charge(bytes);
        if outcome != Outcome::Done {
            slow_charge::try_charge(group.core(), group.index(), bytes, outcome)?;
        }
        match get_block_slowly(group.core(), self, group.owner()) {
            Ok((zone, block)) => Ok(Page::new(group, zone, self.order, block, self.zeroed)),
            Err(error) => Err(undo(group, bytes, error)),
        }
    }
}

/// Allocates 2^order pages and charges them to a group.
#[inline(always)]
pub(crate) fn alloc<M: Machine>(
    group: &Group<M>,
    order: Order,
    zeroed: Zeroed,
) -> Result<Page<M>, AllocPagesError> {
    let bytes = order.bytes() as u64;
    let outcome = group.slot().charge(bytes);
    if outcome != Outcome::Done {
        slow_charge::try_charge(group.core(), group.index(), bytes, outcome)?;
    }
    match get_block(group.core(), order, group.owner(), zeroed) {
        Ok((zone, block)) => Ok(Page::new(group, zone, order, block, zeroed)),
        Err(error) => Err(undo(group, bytes, error)),
    }
}

/// Returns the bytes of a charge that got no page.
#[cold]
#[allow(
    clippy::boxed_local,
    reason = "the caller's fast path does not unpack it"
)]
fn undo<M: Machine>(group: &Group<M>, bytes: u64, error: Box<AllocPagesError>) -> AllocPagesError {
    drop(Charge::new(group, bytes));
    *error
}

/// Takes a block from the lists, or from beyond them.
#[inline(always)]
pub(super) fn get_block<M: Machine>(
    core: &Core<M>,
    order: Order,
    owner: Owner,
    zeroed: Zeroed,
) -> Result<(u16, Block), Box<AllocPagesError>> {
    if let Some(zones) = core.pages.zones() {
        let zone = zones.local();
        if let Some(block) = zones.try_pop(zone, order) {
            if zeroed == Zeroed::No && block.owner().is_same(owner) {
                return Ok((zone, block));
            }
            return Ok((zone, zones.prepare(zone, block, owner, zeroed)));
        }
    }
    get_block_slowly(core, request(order, zeroed), owner)
}

pub(super) fn request(order: Order, zeroed: Zeroed) -> PageRequest {
    PageRequest {
        zeroed,
        ..PageRequest::new(order)
    }
}

/// Slow path of [`get_block`]. The result is two words, so that the fast path keeps its values in registers.
#[cold]
pub(super) fn get_block_slowly<M: Machine>(
    core: &Core<M>,
    request: PageRequest,
    owner: Owner,
) -> Result<(u16, Block), Box<AllocPagesError>> {
    let _operation = fork::operation(core);
    let zones = match core.pages.zones() {
        Some(zones) => zones,
        None => core
            .pages
            .set_up(&core.tree().machine)
            .map_err(AllocPagesError::NoZones)?,
    };
    let PageRequest { order, zeroed, .. } = request;
    let found = zones.alloc_slowly(order, request.placement, request.urgency);
    let block = found.map_err(|error| match error {
        NoBlock::NoSuchNode { nodes } => AllocPagesError::NoSuchNode { nodes },
        NoBlock::Exhausted => {
            let (free_pages, reserve_pages) = zones.free_and_reserve();
            AllocPagesError::Exhausted {
                order,
                free_pages,
                reserve_pages,
            }
        }
    })?;
    let zone = zones.zone_of(block.pfn()).expect("it is from one of them");
    Ok((zone, zones.prepare(zone, block, owner, zeroed)))
}
