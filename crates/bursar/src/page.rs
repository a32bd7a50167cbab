//! Pages, as users see them: memory that is charged to a group and returned on drop.

mod bytes;
mod error;
mod many;
mod raw;

use std::fmt;

use bursar_machine::pages::{Block, Order, Owner, Pfn};
use bursar_machine::{Host, Machine, Outcome, Slot};

use crate::books::Books;
use crate::group::Group;
use crate::memory::Memory;
use crate::pages::{Placement, Urgency, Zeroed};

pub use error::{AllocPagesError, ClaimError};
pub use raw::Claim;

/// Nobody is charged for this page.
const UNCHARGED: u32 = u32::MAX;
/// Who owns what nobody is charged for.
const PROCESS: Owner = Owner::new(1);

/// 2^order pages of memory, charged to a group, returned on drop by any thread.
///
/// The memory is aligned to its size. It returns to a list of the CPU that drops it, and is uncharged in the same step; the
/// group's record stays as long as the page does.
///
/// Dropping one may call those who wait for memory or watch pressure, as dropping a [`crate::Charge`] does.
#[must_use = "dropping a page returns it"]
pub struct Page<M: Machine = Host> {
    books: M::Shared<Books<M>>,
    slot: M::Slot,
    /// There until the page is gone.
    block: Option<Block>,
    index: u32,
    zone: u16,
    bytes: Bytes,
}

/// Whether the bytes of a page may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bytes {
    Initialized,
    Uninitialized,
}

/// What is asked of new pages.
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
    /// 2^order pages whose bytes need not be zero, near the CPU that asks.
    pub fn new(order: Order) -> Self {
        Self {
            order,
            zeroed: Zeroed::No,
            placement: Placement::default(),
            urgency: Urgency::default(),
        }
    }

    /// All bytes zero.
    pub fn zeroed(self) -> Self {
        Self {
            zeroed: Zeroed::Yes,
            ..self
        }
    }

    /// On a node.
    pub fn on(self, placement: Placement) -> Self {
        Self { placement, ..self }
    }

    /// Also from what is kept for emergencies.
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
        let bytes = block.order().bytes() as u64;
        // First: once it is uncharged, somebody else may be charged for these very pages.
        put_block(&self.books, self.index, self.zone, block);
        if self.index != UNCHARGED {
            let outcome = self.slot.uncharge(bytes);
            if outcome != Outcome::Done {
                uncharge_slowly(&self.books, self.index, bytes, outcome);
            }
        }
    }
}

#[inline(always)]
fn put_block<M: Machine>(books: &Books<M>, index: u32, zone: u16, mut block: Block) {
    let Some(zones) = books.zones() else {
        unreachable!("pages come from zones");
    };
    if zones.scrubs() {
        scrub(books, index, zone, &mut block);
    }
    if let Err(block) = zones.push(zone, block) {
        free_slowly(books, zone, block);
    }
}

#[cold]
fn scrub<M: Machine>(books: &Books<M>, index: u32, zone: u16, block: &mut Block) {
    if index != UNCHARGED && books.counter(index).zeroes_on_free() {
        books.zones().expect("pages come from zones").zero(zone, block);
    }
}

#[cold]
fn free_slowly<M: Machine>(books: &Books<M>, zone: u16, block: Block) {
    let _operation = books.operation();
    let zones = books.zones().expect("pages come from zones");
    zones.free_slowly(zone, block);
}

#[cold]
fn uncharge_slowly<M: Machine>(books: &Books<M>, index: u32, bytes: u64, outcome: Outcome) {
    if !books.is_committed(index, outcome) {
        books.uncharge_slowly(index, bytes);
    }
}

/// A block from the lists or beyond, with its zone.
#[inline(always)]
fn get_block<M: Machine>(
    books: &Books<M>,
    order: Order,
    owner: Owner,
    zeroed: Zeroed,
) -> Result<(u16, Block), AllocPagesError> {
    let Some(zones) = books.zones() else {
        return get_block_slowly(books, PageRequest { zeroed, ..PageRequest::new(order) }, owner);
    };
    let zone = zones.local();
    let Some(mut block) = zones.pop(zone, order) else {
        return get_block_slowly(books, PageRequest { zeroed, ..PageRequest::new(order) }, owner);
    };
    zones.prepare(zone, &mut block, owner, zeroed);
    Ok((zone, block))
}

#[cold]
fn get_block_slowly<M: Machine>(
    books: &Books<M>,
    request: PageRequest,
    owner: Owner,
) -> Result<(u16, Block), AllocPagesError> {
    let _operation = books.operation();
    let zones = match books.zones() {
        Some(zones) => zones,
        None => books.set_up_zones().map_err(AllocPagesError::NoZones)?,
    };
    let found = zones.alloc_slowly(request.order, request.placement, request.urgency);
    let (zone, mut block) = found.map_err(|error| zones.explain(error, request.order, 1))?;
    zones.prepare(zone, &mut block, owner, request.zeroed);
    Ok((zone, block))
}

impl From<Zeroed> for Bytes {
    #[inline(always)]
    fn from(zeroed: Zeroed) -> Self {
        match zeroed {
            Zeroed::Yes => Self::Initialized,
            Zeroed::No => Self::Uninitialized,
        }
    }
}

impl<M: Machine> Group<M> {
    /// Allocates 2^order pages and charges them to the group, like [`Group::try_charge`].
    ///
    /// Usually this takes no lock: a section charges and a section takes the pages off a list of the current CPU. What another
    /// group has written there is never seen: such pages are zeroed first.
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
    /// [`AllocPagesError`], see there. Nothing is charged then.
    #[doc(alias = "__alloc_pages")]
    #[inline(always)]
    pub fn alloc_pages(&self, order: Order, zeroed: Zeroed) -> Result<Page<M>, AllocPagesError> {
        let bytes = order.bytes() as u64;
        let outcome = self.slot().charge(bytes);
        if outcome != Outcome::Done {
            self.try_charge_slowly(bytes, outcome)?;
        }
        match get_block(self.books(), order, self.owner(), zeroed) {
            Ok((zone, block)) => Ok(self.page(zone, block, zeroed.into())),
            Err(error) => Err(self.undo(bytes, error)),
        }
    }

    /// [`Group::alloc_pages`] with more to ask for.
    ///
    /// # Errors
    /// [`AllocPagesError`], see there. Nothing is charged then.
    pub fn alloc_pages_as(&self, request: PageRequest) -> Result<Page<M>, AllocPagesError> {
        if request == (PageRequest { zeroed: request.zeroed, ..PageRequest::new(request.order) }) {
            return self.alloc_pages(request.order, request.zeroed);
        }
        let bytes = request.order.bytes() as u64;
        let outcome = self.slot().charge(bytes);
        if outcome != Outcome::Done {
            self.try_charge_slowly(bytes, outcome)?;
        }
        match get_block_slowly(self.books(), request, self.owner()) {
            Ok((zone, block)) => Ok(self.page(zone, block, request.zeroed.into())),
            Err(error) => Err(self.undo(bytes, error)),
        }
    }

    /// Whether pages of this group are zeroed when they are freed, rather than when another group gets them: for secrets
    /// that should not lie about. Set it before there is something to hide; pages on lists stay as they are.
    #[doc(alias = "init_on_free")]
    pub fn set_zero_on_free(&self, zeroed: Zeroed) {
        let zeroes = zeroed == Zeroed::Yes;
        self.books().counter(self.index()).set_zeroes_on_free(zeroes);
        if zeroes {
            self.books().scrub_from_now_on();
        }
    }

    #[inline(always)]
    fn page(&self, zone: u16, block: Block, bytes: Bytes) -> Page<M> {
        Page {
            books: self.books().clone(),
            slot: self.slot().clone(),
            block: Some(block),
            index: self.index(),
            zone,
            bytes,
        }
    }

    #[cold]
    fn undo(&self, bytes: u64, error: AllocPagesError) -> AllocPagesError {
        drop(self.hold(bytes));
        error
    }
}

impl<M: Machine> Memory<M> {
    /// Allocates 2^order pages that no group is charged for: the process's own.
    ///
    /// # Errors
    /// [`AllocPagesError`], see there.
    #[inline(always)]
    pub fn alloc_pages(&self, order: Order, zeroed: Zeroed) -> Result<Page<M>, AllocPagesError> {
        let (zone, block) = get_block(self.books(), order, PROCESS, zeroed)?;
        Ok(Page {
            books: self.books().clone(),
            slot: self.root_slot().clone(),
            block: Some(block),
            index: UNCHARGED,
            zone,
            bytes: zeroed.into(),
        })
    }
}

impl<M: Machine> Page<M> {
    fn block(&self) -> &Block {
        self.block.as_ref().expect("there until the page is gone")
    }

    /// The size.
    pub fn order(&self) -> Order {
        self.block().order()
    }

    /// Bytes.
    #[allow(clippy::len_without_is_empty, reason = "no page is empty")]
    pub fn len(&self) -> usize {
        self.order().bytes()
    }

    /// The number of the first page frame. No other page has it.
    pub fn pfn(&self) -> Pfn {
        self.block().pfn()
    }

    /// The node that the memory was reserved on.
    pub fn node(&self) -> usize {
        usize::from(self.zone)
    }

    /// The group that is charged; `None` for the process's own.
    pub fn group(&self) -> Option<Group<M>> {
        if self.index == UNCHARGED {
            return None;
        }
        // Its record is there: our bytes keep it.
        self.books.refer(self.index);
        Some(Group::new(self.books.clone(), self.index))
    }

    /// Whether all bytes are known to be zero.
    pub fn is_known_zero(&self) -> bool {
        self.block().content().is_zero()
    }
}

impl<M: Machine> fmt::Debug for Page<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = match self.index {
            UNCHARGED => None,
            index => Some(self.books.path(index)),
        };
        f.debug_struct("Page")
            .field("pfn", &self.pfn())
            .field("order", &self.order())
            .field("node", &self.node())
            .field("group", &group)
            .finish()
    }
}
