//! Pages of memory that are charged to a group and returned on drop.

mod bytes;
mod error;
mod many;
mod raw;

use std::fmt;
use std::time::Duration;

use bursar_machine::pages::{Block, Order, Owner, PAGE_BYTES, Pfn};
use bursar_machine::{Host, Machine, Outcome, Slot};

use crate::group::Group;
use crate::limit::PROCESS;
use crate::memory::Memory;
use crate::pages::{NoBlock, Placement, Stuck, Urgency, Zeroed, Zone, ZoneInfo, Zones};
use crate::react::{self, Core, fork, lifetime};

pub use error::{AllocPagesError, ClaimError};
pub use raw::Claim;

/// Group number of a page that no group is charged for.
const UNCHARGED: u32 = u32::MAX;

/// Block of 2^order pages of memory, charged to a group; any thread may drop it, which returns it.
///
/// The memory is aligned to its size. It returns to a list of the CPU that drops it, and is uncharged in the same step.
/// The group's record stays as long as the page does.
///
/// A drop may call tasks that wait for memory or watch pressure, as the drop of a [`crate::Charge`] does.
#[must_use = "dropping a page returns it"]
pub struct Page<M: Machine = Host> {
    core: M::Shared<Core<M>>,
    slot: M::Slot,
    /// The token; `Some` until the page is gone.
    block: Option<Block>,
    tag: Tag,
}

/// Group that pays for a page, zone, order, and whether the bytes may be read, in one word.
///
/// A page is made of words of the same size, because the processor moves those without a stall. The block knows its
/// order as well. Asking the block means waiting for it to come off a list, only to find the same list again.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Tag(u64);

impl Tag {
    const READABLE: u64 = 1 << 63;

    #[inline(always)]
    fn new(index: u32, zone: u16, order: Order, zeroed: Zeroed) -> Self {
        let readable = match zeroed {
            Zeroed::Yes => Self::READABLE,
            Zeroed::No => 0,
        };
        let order = u64::from(order.get()) << 48;
        Self(u64::from(index) | u64::from(zone) << 32 | order | readable)
    }

    /// Group that pays, or [`UNCHARGED`].
    #[inline(always)]
    fn index(self) -> u32 {
        self.0 as u32
    }

    #[inline(always)]
    fn zone(self) -> u16 {
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
    fn is_readable(self) -> bool {
        self.0 & Self::READABLE != 0
    }

    fn readable(self) -> Self {
        Self(self.0 | Self::READABLE)
    }

    fn unreadable(self) -> Self {
        Self(self.0 & !Self::READABLE)
    }
}

/// Request for new pages.
///
/// ```
/// use bursar::pages::{Order, Placement};
/// use bursar::{Limits, Memory, PageRequest};
///
/// let memory = Memory::host()?;
/// let group = memory.root().child("cache", Limits::none())?;
/// let request = PageRequest::new(Order::new(4)).zeroed().on(Placement::Only(0));
/// let page = group.alloc_pages_as(request)?;
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
fn uncharge<M: Machine>(core: &Core<M>, slot: M::Slot, index: u32, bytes: u64) {
    let outcome = slot.uncharge(bytes);
    if outcome != Outcome::Done {
        react::uncharge::uncharge(core, index, bytes, outcome);
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
fn scrub<M: Machine>(core: &Core<M>, tag: Tag, block: &mut Block) {
    if tag.index() != UNCHARGED && core.counters.counter(tag.index()).zeroes_on_free() {
        let zones = core.pages.zones().expect("pages come from zones");
        zones.zero(tag.zone(), block);
    }
}

/// Takes a block from the lists, or from beyond them.
#[inline(always)]
fn get_block<M: Machine>(
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

fn request(order: Order, zeroed: Zeroed) -> PageRequest {
    PageRequest {
        zeroed,
        ..PageRequest::new(order)
    }
}

/// Slow path of [`get_block`]. The result is two words, so that the fast path keeps its values in registers.
#[cold]
fn get_block_slowly<M: Machine>(
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

/// # Pages
impl<M: Machine> Group<M> {
    /// Allocates 2^order pages and charges them to the group, like [`Group::try_charge`].
    ///
    /// Usually this takes no lock: one section charges, and one section takes the pages off a list of the current CPU.
    /// Bytes that another group has written are never visible, because such pages are zeroed first.
    ///
    /// ```
    /// use bursar::pages::{Order, Zeroed};
    /// use bursar::{Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let query = memory.root().child("query-7", Limits::max(1 << 20))?;
    /// let mut page = query.alloc_pages(Order::new(0), Zeroed::Yes)?;
    /// page.bytes_mut()[0] = 1;
    /// drop(page);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AllocPagesError`]. Nothing is charged then.
    #[doc(alias = "__alloc_pages")]
    #[inline(always)]
    pub fn alloc_pages(&self, order: Order, zeroed: Zeroed) -> Result<Page<M>, AllocPagesError> {
        let bytes = order.bytes() as u64;
        let outcome = self.slot().charge(bytes);
        if outcome != Outcome::Done {
            self.try_charge_slowly(bytes, outcome)?;
        }
        match get_block(self.core(), order, self.owner(), zeroed) {
            Ok((zone, block)) => Ok(self.page(zone, order, block, zeroed)),
            Err(error) => Err(self.undo(bytes, error)),
        }
    }

    /// Allocates pages like [`Group::alloc_pages`], with all options of a [`PageRequest`].
    ///
    /// # Errors
    /// [`AllocPagesError`]. Nothing is charged then.
    pub fn alloc_pages_as(&self, request: PageRequest) -> Result<Page<M>, AllocPagesError> {
        let bytes = request.order.bytes() as u64;
        let outcome = self.slot().charge(bytes);
        if outcome != Outcome::Done {
            self.try_charge_slowly(bytes, outcome)?;
        }
        match get_block_slowly(self.core(), request, self.owner()) {
            Ok((zone, block)) => Ok(self.page(zone, request.order, block, request.zeroed)),
            Err(error) => Err(self.undo(bytes, error)),
        }
    }

    /// Sets whether pages of this group are zeroed when they are freed, rather than when another group gets them.
    ///
    /// This is for secrets that must not remain in memory. Set it before the group writes them: pages on lists stay as
    /// they are.
    #[doc(alias = "init_on_free")]
    pub fn set_zero_on_free(&self, zeroed: Zeroed) {
        let zeroes = zeroed == Zeroed::Yes;
        self.core()
            .counters
            .counter(self.index())
            .set_zeroes_on_free(zeroes);
        if zeroes {
            self.core().pages.scrub_from_now_on();
        }
    }

    #[inline(always)]
    fn page(&self, zone: u16, order: Order, block: Block, zeroed: Zeroed) -> Page<M> {
        Page {
            core: self.core().clone(),
            slot: self.slot().clone(),
            block: Some(block),
            tag: Tag::new(self.index(), zone, order, zeroed),
        }
    }

    #[cold]
    #[allow(
        clippy::boxed_local,
        reason = "the caller's fast path does not unpack it"
    )]
    #[allow(clippy::boxed_local, reason = "it comes in a box")]
    fn undo(&self, bytes: u64, error: Box<AllocPagesError>) -> AllocPagesError {
        drop(self.hold(bytes));
        *error
    }
}

impl<M: Machine> Memory<M> {
    /// Allocates 2^order pages for the process itself, which no group is charged for.
    ///
    /// # Errors
    /// [`AllocPagesError`].
    #[inline(always)]
    pub fn alloc_pages(&self, order: Order, zeroed: Zeroed) -> Result<Page<M>, AllocPagesError> {
        match get_block(self.core(), order, PROCESS, zeroed) {
            Ok((zone, block)) => Ok(Page {
                core: self.core().clone(),
                slot: self.core().pages.root_slot.clone(),
                block: Some(block),
                tag: Tag::new(UNCHARGED, zone, order, zeroed),
            }),
            Err(error) => Err(*error),
        }
    }
}

impl<M: Machine> Memory<M> {
    /// Contents of the zones, and counts of their events; `None` before the zones are set up by the first allocation.
    #[doc(alias = "/proc/zoneinfo")]
    pub fn zone_info(&self) -> Option<ZoneInfo> {
        let _operation = fork::operation(self.core());
        self.core().pages.zones().map(Zones::info)
    }

    /// Approximate number of free pages in the zones; excludes per-CPU lists and the depot. Never blocks.
    #[doc(alias = "NR_FREE_PAGES")]
    pub fn free_pages(&self) -> u64 {
        let zones = self.core().pages.zones();
        zones.map_or(0, |zones| zones.free_and_reserve().0)
    }

    /// Empties the lists of all CPUs and the depot into the zones, so that neighbours join. Returns the number of
    /// blocks.
    ///
    /// The lists fill again as they are used.
    #[doc(alias = "drain_all_pages")]
    pub fn drain_pages(&self) -> u64 {
        let _operation = fork::operation(self.core());
        let zones = self.core().pages.zones();
        zones.map_or(0, |zones| zones.iter().map(Zone::drain_all).sum())
    }

    /// Locks of pages that have been held for at least `threshold`, with their holders; normally none.
    ///
    /// Takes no lock. Call it from a timer.
    #[doc(alias = "softlockup")]
    pub fn stuck(&self, threshold: Duration) -> Vec<Stuck> {
        let threshold_ns = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
        let zones = self.core().pages.zones();
        zones.map_or(Vec::new(), |zones| zones.stuck(threshold_ns))
    }
}

impl<M: Machine> Page<M> {
    fn block(&self) -> &Block {
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
