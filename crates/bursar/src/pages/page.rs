//! A page: a block of memory that is charged to a group, and returned on drop.

use std::fmt;

use bursar_machine::pages::{Block, Order, PAGE_BYTES, Pfn};
use bursar_machine::{Host, Machine, Outcome, Slot};

use crate::group::Group;
use crate::react::{self, Core, fork, lifetime};
use crate::zones::Zeroed;

/// Group number of a page that no group is charged for.
pub(super) const UNCHARGED: u32 = u32::MAX;

/// Block of 2^order pages of memory, charged to a group; any thread may drop it, which returns it.
///
/// The memory is aligned to its size. It returns to a list of the CPU that drops it, and is uncharged in the same step.
/// The group's record stays as long as the page does.
///
/// A drop may call tasks that wait for memory or watch pressure, as the drop of a [`crate::Charge`] does.
#[must_use = "dropping a page returns it"]
pub struct Page<M: Machine = Host> {
    pub(super) core: M::Shared<Core<M>>,
    pub(super) slot: M::Slot,
    /// The token; `Some` until the page is gone.
    pub(super) block: Option<Block>,
    pub(super) tag: Tag,
}

/// Group that pays for a page, zone, order, and whether the bytes may be read, in one word.
///
/// A page is made of words of the same size, because the processor moves those without a stall. The block knows its
/// order as well. Asking the block means waiting for it to come off a list, only to find the same list again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag(u64);

impl Tag {
    const READABLE: u64 = 1 << 63;

    #[inline(always)]
    pub(super) fn new(index: u32, zone: u16, order: Order, zeroed: Zeroed) -> Self {
        let readable = match zeroed {
            Zeroed::Yes => Self::READABLE,
            Zeroed::No => 0,
        };
        let order = u64::from(order.get()) << 48;
        Self(u64::from(index) | u64::from(zone) << 32 | order | readable)
    }

    /// Group that pays, or [`UNCHARGED`].
    #[inline(always)]
    pub(super) fn index(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    pub(super) fn zone(self) -> u16 {
        (self.0 >> 32) as u16
    }

    #[inline(always)]
    fn order(self) -> u8 {
        (self.0 >> 48) as u8 & 0xf
    }

    /// Size in bytes.
    #[inline(always)]
    fn bytes(self) -> u64 {
        (PAGE_BYTES as u64) << self.order()
    }

    /// Returns whether all bytes are initialized.
    pub(super) fn is_readable(self) -> bool {
        self.0 & Self::READABLE != 0
    }

    pub(super) fn readable(self) -> Self {
        Self(self.0 | Self::READABLE)
    }

    pub(super) fn unreadable(self) -> Self {
        Self(self.0 & !Self::READABLE)
    }
}

impl<M: Machine> Drop for Page<M> {
    #[inline(always)]
    fn drop(&mut self) {
        let Some(block) = self.block.take() else {
            return;
        };
        // Freed first: once the bytes are uncharged, another task may charge them and expect these very pages to be
        // free.
        if let Err(block) = put_block(&self.core, self.tag, block) {
            return drop_slowly(&*self.core, self.slot.clone(), self.tag, block);
        }
        if self.tag.index() != UNCHARGED {
            uncharge(
                &*self.core,
                self.slot.clone(),
                self.tag.index(),
                self.tag.bytes(),
            );
        }
    }
}

// Functions that are not inlined take their arguments by value: a page whose address is taken cannot stay in registers.

/// Not inlined, so that the drop of a page can be.
#[inline(never)]
pub(super) fn uncharge<M: Machine>(core: &Core<M>, slot: M::Slot, index: u32, bytes: u64) {
    let outcome = slot.uncharge(bytes);
    if outcome != Outcome::Done {
        react::slow_charge::uncharge(core, index, bytes, outcome);
    }
}

#[inline(always)]
fn put_block<M: Machine>(core: &Core<M>, tag: Tag, block: Block) -> Result<(), Block> {
    match core.pages.zones() {
        Some(zones) if !core.pages.scrubs() => zones.try_push(tag.zone(), tag.order(), block),
        _ => Err(block),
    }
}

#[cold]
#[inline(never)]
fn drop_slowly<M: Machine>(core: &Core<M>, slot: M::Slot, tag: Tag, mut block: Block) {
    let zones = core.pages.zones().expect("pages come from zones");
    if core.pages.scrubs() {
        scrub(core, tag, &mut block);
    }
    {
        let _operation = fork::operation(core);
        zones.free_slowly(tag.zone(), block);
    }
    if tag.index() != UNCHARGED {
        uncharge(core, slot, tag.index(), tag.bytes());
    }
}

/// Zeroes a block if its group asks for zeroing at each free.
pub(super) fn scrub<M: Machine>(core: &Core<M>, tag: Tag, block: &mut Block) {
    if tag.index() != UNCHARGED && core.counters.counter(tag.index()).zeroes_on_free() {
        let zones = core.pages.zones().expect("pages come from zones");
        zones.zero(tag.zone(), block);
    }
}

impl<M: Machine> Page<M> {
    #[inline(always)]
    pub(super) fn new(
        group: &Group<M>,
        zone: u16,
        order: Order,
        block: Block,
        zeroed: Zeroed,
    ) -> Self {
        Self {
            core: group.core().clone(),
            slot: group.slot().clone(),
            block: Some(block),
            tag: Tag::new(group.index(), zone, order, zeroed),
        }
    }

    pub(super) fn block(&self) -> &Block {
        self.block.as_ref().expect("there until the page is gone")
    }

    /// Order of the block, which gives its size.
    pub fn order(&self) -> Order {
        self.block().order()
    }

    /// Size in bytes.
    #[allow(clippy::len_without_is_empty, reason = "no page is empty")]
    pub fn len(&self) -> usize {
        self.order().bytes()
    }

    /// Number of the first page frame. No other page has it.
    pub fn pfn(&self) -> Pfn {
        self.block().pfn()
    }

    /// Node on which the memory was reserved.
    pub fn node(&self) -> usize {
        usize::from(self.tag.zone())
    }

    /// Group that is charged; `None` for the process's own pages.
    pub fn group(&self) -> Option<Group<M>> {
        let index = self.tag.index();
        if index == UNCHARGED {
            return None;
        }
        // The record exists, because our bytes keep it.
        self.core.counters.refer(index);
        Some(Group::new(self.core.clone(), index))
    }

    /// Returns whether all bytes are known to be zero.
    pub fn is_known_zero(&self) -> bool {
        self.block().content().is_zero()
    }

    /// Reservation that the page belongs to.
    pub fn frames(&self) -> &M::Frames {
        &self.core.pages.zone(self.tag.zone()).frames
    }

    /// Gives up the token. The pages stay allocated and charged until [`Memory::claim`](crate::Memory::claim) takes them back by the number
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

impl<M: Machine> fmt::Debug for Page<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = match self.tag.index() {
            UNCHARGED => None,
            index => Some(lifetime::path(&self.core, index)),
        };
        f.debug_struct("Page")
            .field("pfn", &self.pfn())
            .field("order", &self.order())
            .field("node", &self.node())
            .field("group", &group)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    #[test]
    fn a_tag_keeps_what_it_was_made_of() {
        for zeroed in [Zeroed::Yes, Zeroed::No] {
            let tag = Tag::new(0x0123_4567, 0x89ab, Order::new(5), zeroed);
            assert_eq!((tag.index(), tag.zone()), (0x0123_4567, 0x89ab));
            assert_eq!((tag.order(), tag.bytes()), (5, 4096 << 5));
            assert_eq!(tag.is_readable(), zeroed == Zeroed::Yes);
            let readable = Tag::new(0x0123_4567, 0x89ab, Order::new(5), Zeroed::Yes);
            assert!(tag.readable() == readable && readable.readable() == readable);
            let unreadable = tag.unreadable();
            assert!(!unreadable.is_readable() && unreadable.unreadable() == unreadable);
            assert_eq!(unreadable.zone(), 0x89ab);
        }
    }

    #[test]
    fn a_page_is_of_the_node_of_its_zone() {
        let memory = Memory::host().unwrap();
        let core = memory.core();
        let page: Page<bursar_machine::Host> = Page {
            core: *core,
            slot: core.pages.root_slot,
            block: None,
            tag: Tag::new(UNCHARGED, 3, Order::ZERO, Zeroed::No),
        };
        assert_eq!(page.node(), 3);
    }
}
