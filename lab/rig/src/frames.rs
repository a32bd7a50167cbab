//! Page memory without bytes, for machines that only simulate: the content of a block changes as on the host.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use bursar_machine::pages::{
    Block, Content, Frames, Pfn, ReserveError, SPAN_PAGES, Span, simulated,
};

/// Time that operations on pages take.
pub trait Cost: Copy + Debug + Send + Sync + 'static {
    /// Zeroing so many pages.
    fn zero(_pages: u64) {}

    /// Giving the memory of so many pages back, if there is any.
    fn discard(_pages: u64, _is_backed: bool) {}
}

/// Operations take no time.
impl Cost for () {}

/// Reservation of page memory without bytes.
#[derive(Clone, Copy, Debug)]
pub struct Unbacked<C> {
    first: Pfn,
    pages: u32,
    cost: PhantomData<C>,
}

impl<C> Unbacked<C> {
    /// Numbers pages; `before` is the number of blocks of the largest order that were numbered before, and is raised.
    ///
    /// # Errors
    /// No pages are wanted, or more than there are numbers.
    pub fn reserve(before: &mut u32, pages: u64) -> Result<(Self, Span), ReserveError> {
        if pages == 0 {
            return Err(ReserveError::NoPages);
        }
        let left = simulated::SPANS_MAX - *before;
        let spans = pages.div_ceil(u64::from(SPAN_PAGES));
        let Some(spans) = u32::try_from(spans).ok().filter(|&spans| spans <= left) else {
            let available = u64::from(left) * u64::from(SPAN_PAGES);
            return Err(ReserveError::TooLarge { pages, available });
        };
        let frames = Self {
            first: Pfn(simulated::FIRST.0 + *before * SPAN_PAGES),
            pages: spans * SPAN_PAGES,
            cost: PhantomData,
        };
        let span = simulated::span(*before, spans);
        *before += spans;
        Ok((frames, span))
    }

    fn check(&self, block: &Block) {
        // A page before the first wraps to one beyond the last.
        let at = block.pfn().0.wrapping_sub(self.first.0);
        assert!(at < self.pages, "the block is of another reservation");
    }
}

impl<C: Cost> Frames for Unbacked<C> {
    fn first(&self) -> Pfn {
        self.first
    }

    fn pages(&self) -> u64 {
        u64::from(self.pages)
    }

    fn uninit<'a>(&self, block: &'a mut Block) -> &'a mut [MaybeUninit<u8>] {
        self.check(block);
        simulated::set_content(block, Content::Unknown);
        &mut []
    }

    fn bytes<'a>(&self, block: &'a Block) -> Option<&'a [u8]> {
        self.check(block);
        (block.content() != Content::Unknown).then_some(&[])
    }

    fn bytes_mut<'a>(&self, block: &'a mut Block) -> Option<&'a mut [u8]> {
        self.check(block);
        if block.content() == Content::Unknown {
            return None;
        }
        simulated::set_content(block, Content::Initialized);
        Some(&mut [])
    }

    fn init(
        &self,
        block: &mut Block,
        write: impl for<'a> FnOnce(&'a mut [MaybeUninit<u8>]) -> &'a mut [u8],
    ) -> bool {
        let is_all = write(self.uninit(block)).is_empty();
        simulated::set_content(block, Content::Initialized);
        is_all
    }

    fn zero(&self, block: &mut Block) {
        self.check(block);
        if block.content().is_zero() {
            return;
        }
        C::zero(u64::from(block.order().pages()));
        simulated::set_content(block, Content::Zero);
    }

    fn discard(&self, block: &mut Block) -> bool {
        self.check(block);
        let is_backed = block.content() != Content::Unbacked;
        C::discard(u64::from(block.order().pages()), is_backed);
        simulated::set_content(block, Content::Unbacked);
        true
    }
}
