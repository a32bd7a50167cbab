//! Tokens of owned pages.

use core::fmt;
use core::num::NonZeroU64;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Largest order: 4 MiB.
#[doc(alias = "MAX_PAGE_ORDER")]
pub const MAX_ORDER: u8 = 10;
/// Number of pages of a block of the largest order.
pub const SPAN_PAGES: u32 = 1 << MAX_ORDER;

/// Number of a page frame. On one machine no two reservations share a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pfn(pub u32);

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Size of a block: 2^order pages, at most [`MAX_ORDER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(u8);

/// Error of an order above [`MAX_ORDER`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OrderError {
    /// The order.
    pub order: u8,
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { order } = self;
        write!(f, "order {order} is above {MAX_ORDER}, the largest")
    }
}

crate::debug_as_message!(struct OrderError { order });

impl std::error::Error for OrderError {}

impl Order {
    /// One page.
    pub const ZERO: Self = Self(0);
    /// Largest order.
    pub const MAX: Self = Self(MAX_ORDER);

    /// Makes an order that is known to be valid.
    ///
    /// # Panics
    /// Above [`MAX_ORDER`]; see [`Order::try_new`].
    #[inline]
    pub const fn new(order: u8) -> Self {
        assert!(order <= MAX_ORDER, "an order is at most 10");
        Self(order)
    }

    /// Makes an order.
    ///
    /// # Errors
    /// [`OrderError`] above [`MAX_ORDER`].
    pub const fn try_new(order: u8) -> Result<Self, OrderError> {
        if order > MAX_ORDER {
            return Err(OrderError { order });
        }
        Ok(Self(order))
    }

    /// Smallest order with room for `bytes`, if there is one.
    #[doc(alias = "get_order")]
    pub const fn for_bytes(bytes: usize) -> Option<Self> {
        let pages = bytes.div_ceil(PAGE_BYTES).next_power_of_two();
        let order = pages.trailing_zeros();
        if order > MAX_ORDER as u32 {
            return None;
        }
        Some(Self(order as u8))
    }

    /// The order as a number.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The order as an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Number of pages.
    #[inline]
    pub const fn pages(self) -> u32 {
        1 << self.0
    }

    /// Number of bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        PAGE_BYTES << self.0
    }
}

/// Knowledge about the bytes of a block, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// The bytes are zero, and no memory is taken for them yet.
    Unbacked,
    /// The bytes are zero.
    Zero,
    /// The bytes are initialized: each was written since the reservation was made.
    Initialized,
    /// The bytes may be anything, and some may be uninitialized.
    Unknown,
}

impl Content {
    const ALL: [Self; 4] = [Self::Unbacked, Self::Zero, Self::Initialized, Self::Unknown];

    /// Returns whether all bytes are zero.
    #[inline]
    pub fn is_zero(self) -> bool {
        self <= Self::Zero
    }
}

/// Owner of the bytes of a block: a number that only tells whether two owners are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(u32);

impl Owner {
    /// No owner, or several: not the same as any owner, itself included.
    pub const NOBODY: Self = Self(0);
    /// Largest number: 2^29 - 1.
    pub const MAX: u32 = (1 << OWNER_BITS) - 1;

    /// Makes the owner with a number.
    ///
    /// # Panics
    /// If it is above [`Owner::MAX`].
    pub const fn new(number: u32) -> Self {
        assert!(number <= Self::MAX, "owners have 29 bits");
        Self(number)
    }

    /// The number; 0 is [`Owner::NOBODY`].
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns whether both are the same owner, which [`Owner::NOBODY`] never is.
    #[inline]
    pub fn is_same(self, other: Self) -> bool {
        self.0 == other.0 && self.0 != 0
    }
}

const CODE_BITS: u32 = 33;
const CONTENT_BITS: u32 = 2;
const OWNER_BITS: u32 = 29;
const CONTENT_SHIFT: u32 = CODE_BITS;
const OWNER_SHIFT: u32 = CODE_BITS + CONTENT_BITS;
const CODE: u64 = (1 << CODE_BITS) - 1;
const CONTENT: u64 = ((1 << CONTENT_BITS) - 1) << CONTENT_SHIFT;

/// Ownership of 2^order pages.
///
/// A token is one word, so that a per-CPU stack holds a block in an entry. Bits 0-32 are `2 * pfn + 2^order`, whose
/// lowest set bit tells the order, 33-34 the [`Content`], 35-63 the [`Owner`]. Losing a block loses its pages.
#[must_use = "pages whose token is lost are never used again"]
#[derive(PartialEq, Eq)]
#[repr(transparent)]
pub struct Block(NonZeroU64);

const _: () = assert!(OWNER_SHIFT + OWNER_BITS == 64 && size_of::<Option<Block>>() == 8);

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("pfn", &self.pfn())
            .field("order", &self.order())
            .field("content", &self.content())
            .field("owner", &self.owner())
            .finish()
    }
}

impl Block {
    /// Makes a token out of nothing, for the code that made the reservation.
    pub(crate) fn forge(pfn: Pfn, order: Order) -> Self {
        debug_assert!(pfn.0.is_multiple_of(order.pages()), "blocks are aligned");
        let code = 2 * u64::from(pfn.0) + (1 << order.0);
        Self(NonZeroU64::new(code).expect("an order sets a bit"))
    }

    /// The token as a word, for a machine's stacks. The caller must ensure that it becomes a block again once only.
    #[inline]
    pub(crate) fn into_bits(self) -> NonZeroU64 {
        self.0
    }

    /// Makes the token from its word.
    #[inline]
    pub(crate) fn from_bits(bits: NonZeroU64) -> Self {
        Self(bits)
    }

    /// First page of the block.
    #[inline]
    pub fn pfn(&self) -> Pfn {
        let code = self.0.get() & CODE;
        Pfn(((code & (code - 1)) >> 1) as u32)
    }

    /// Order of the block.
    #[inline]
    pub fn order(&self) -> Order {
        Order(self.0.trailing_zeros() as u8)
    }

    /// Knowledge about the bytes.
    #[inline]
    pub fn content(&self) -> Content {
        Content::ALL[((self.0.get() & CONTENT) >> CONTENT_SHIFT) as usize]
    }

    /// Owner of the bytes, unless they are zero.
    #[inline]
    pub fn owner(&self) -> Owner {
        Owner((self.0.get() >> OWNER_SHIFT) as u32)
    }

    /// Returns whether `owner` may see the bytes: they are zero, or its own.
    #[inline]
    pub fn is_clean_for(&self, owner: Owner) -> bool {
        self.0.get() & (1 << (CONTENT_SHIFT + 1)) == 0 || self.owner().is_same(owner)
    }

    /// Sets the owner of the bytes.
    #[inline]
    pub fn set_owner(&mut self, owner: Owner) {
        let bits = self.0.get() & !(u64::MAX << OWNER_SHIFT);
        self.put(bits | u64::from(owner.0) << OWNER_SHIFT);
    }

    #[inline]
    pub(crate) fn set_content(&mut self, content: Content) {
        self.put(self.0.get() & !CONTENT | (content as u64) << CONTENT_SHIFT);
    }

    #[inline]
    fn put(&mut self, bits: u64) {
        // The code, which is not 0, stays in the word.
        if let Some(bits) = NonZeroU64::new(bits) {
            self.0 = bits;
        }
    }

    /// Splits the block into its two halves, the lower first.
    ///
    /// # Panics
    /// If the block is one page.
    pub fn split(self) -> (Self, Self) {
        let order = self.order();
        assert!(order > Order::ZERO, "a page cannot be cut");
        let half = Order(order.0 - 1);
        let piece = |pfn: u32| {
            let mut piece = Self::forge(Pfn(pfn), half);
            piece.set_content(self.content());
            piece.set_owner(self.owner());
            piece
        };
        let first = self.pfn().0;
        (piece(first), piece(first + half.pages()))
    }

    /// First page of the block that this one can be joined with.
    #[inline]
    pub fn buddy(&self) -> Pfn {
        Pfn(self.pfn().0 ^ self.order().pages())
    }

    /// Joins two halves into one block.
    ///
    /// # Errors
    /// Both halves, if they are not the halves of one block of at most [`Order::MAX`].
    pub fn merge(self, other: Self) -> Result<Self, (Self, Self)> {
        let order = self.order();
        if order != other.order() || self.buddy() != other.pfn() || order == Order::MAX {
            return Err((self, other));
        }
        let first = self.pfn().min(other.pfn());
        let mut whole = Self::forge(first, Order(order.0 + 1));
        whole.set_content(self.content().max(other.content()));
        // Zeroes have no owner.
        let owner = match (self.content().is_zero(), other.content().is_zero()) {
            (true, _) => other.owner(),
            (_, true) => self.owner(),
            _ if self.owner() == other.owner() => self.owner(),
            _ => Owner::NOBODY,
        };
        whole.set_owner(owner);
        Ok(whole)
    }
}

/// Pages of a reservation that were never used, as blocks of the largest order, made as they are taken.
#[must_use = "pages whose token is lost are never used again"]
#[derive(Debug)]
pub struct Span {
    next: u32,
    end: u32,
}

impl Span {
    /// Makes the token of a new reservation, in blocks of the largest order.
    pub(crate) fn forge(first: Pfn, blocks: u32) -> Self {
        debug_assert!(first.0.is_multiple_of(SPAN_PAGES));
        let next = first.0 / SPAN_PAGES;
        Self {
            next,
            end: next + blocks,
        }
    }

    /// Takes the next block.
    pub fn take(&mut self) -> Option<Block> {
        if self.next == self.end {
            return None;
        }
        let block = Block::forge(Pfn(self.next * SPAN_PAGES), Order::MAX);
        self.next += 1;
        Some(block)
    }

    /// Number of pages left.
    pub fn pages(&self) -> u64 {
        u64::from(self.end - self.next) * u64::from(SPAN_PAGES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(pfn: u32, order: u8) -> Block {
        Block::forge(Pfn(pfn), Order::new(order))
    }

    #[test]
    fn one_word_holds_the_largest_of_everything() {
        let last = u32::MAX - (SPAN_PAGES - 1);
        for (pfn, order) in [
            (0, 0),
            (7, 0),
            (u32::MAX, 0),
            (last, MAX_ORDER),
            (0, MAX_ORDER),
        ] {
            let mut block = block(pfn, order);
            block.set_owner(Owner::new(Owner::MAX));
            block.set_content(Content::Unknown);
            assert_eq!((block.pfn().0, block.order().get()), (pfn, order));
            assert_eq!(block.owner().get(), Owner::MAX);
            assert_eq!(block.content(), Content::Unknown);
            block.set_owner(Owner::NOBODY);
            block.set_content(Content::Unbacked);
            assert_eq!((block.pfn().0, block.order().get()), (pfn, order));
            assert_eq!(block.content(), Content::Unbacked);
        }
    }

    #[test]
    fn halves_become_one_again() {
        let mut whole = block(1024, 3);
        whole.set_owner(Owner::new(5));
        whole.set_content(Content::Initialized);
        let (low, high) = whole.split();
        assert_eq!(
            (low.pfn().0, high.pfn().0, low.order().get()),
            (1024, 1028, 2)
        );
        let whole = high.merge(low).unwrap();
        assert_eq!((whole.pfn().0, whole.order().get()), (1024, 3));
        assert_eq!(whole.owner(), Owner::new(5));
    }

    #[test]
    fn only_buddies_join() {
        let (one, other) = block(2, 1).merge(block(4, 1)).unwrap_err();
        assert_eq!((one.pfn().0, other.pfn().0), (2, 4));
        assert!(block(0, 1).merge(block(2, 0)).is_err());
        assert!(
            block(0, MAX_ORDER)
                .merge(block(SPAN_PAGES, MAX_ORDER))
                .is_err()
        );
    }

    #[test]
    fn what_two_owners_wrote_is_nobodys_and_zeroes_are_not_written() {
        let of = |owner: u32, content| {
            let mut block = block(if owner == 1 { 0 } else { 1 }, 0);
            block.set_owner(Owner::new(owner));
            block.set_content(content);
            block
        };
        let mixed = of(1, Content::Initialized)
            .merge(of(2, Content::Unknown))
            .unwrap();
        assert_eq!(
            (mixed.owner(), mixed.content()),
            (Owner::NOBODY, Content::Unknown)
        );
        assert!(
            !mixed.is_clean_for(Owner::NOBODY),
            "not even for another nobody"
        );
        let ours = of(1, Content::Zero)
            .merge(of(2, Content::Initialized))
            .unwrap();
        assert!(ours.is_clean_for(Owner::new(2)) && !ours.is_clean_for(Owner::new(1)));
        let fresh = of(1, Content::Zero)
            .merge(of(2, Content::Unbacked))
            .unwrap();
        assert!(fresh.is_clean_for(Owner::new(3)));
        assert_eq!(fresh.content(), Content::Zero);
    }

    #[test]
    fn orders_by_bytes() {
        assert_eq!(Order::for_bytes(0), Some(Order::ZERO));
        assert_eq!(Order::for_bytes(4097), Some(Order::new(1)));
        assert_eq!(Order::for_bytes(4 << 20), Some(Order::MAX));
        assert_eq!(Order::for_bytes((4 << 20) + 1), None);
        assert_eq!(Order::try_new(11), Err(OrderError { order: 11 }));
    }

    #[test]
    fn spans_are_cut_into_distinct_blocks() {
        let mut span = Span::forge(Pfn(2048), 2);
        assert_eq!(span.pages(), 2048);
        assert_eq!(span.take().unwrap().pfn(), Pfn(2048));
        assert_eq!(span.take().unwrap().pfn(), Pfn(3072));
        assert_eq!((span.take(), span.pages()), (None, 0));
    }

    #[test]
    fn orders_have_indexes_and_those_beyond_the_largest_are_named() {
        for order in 0..=MAX_ORDER {
            let order = Order::try_new(order).unwrap();
            assert_eq!(order.index(), usize::from(order.get()));
            assert_eq!(order.bytes(), order.pages() as usize * PAGE_BYTES);
        }
        let error = Order::try_new(MAX_ORDER + 1).unwrap_err();
        assert_eq!(error.to_string(), "order 11 is above 10, the largest");
    }
}
