//! Pages without memory behind them, for machines that only simulate.
//!
//! A token made out of nothing would give access to memory of other owners, so no host accepts these tokens. Simulated
//! pages have the upper half of all numbers, from [`FIRST`] on, and pages of hosts the lower half. Both are checked.
//! Blocks are joined within spans only, so no block ever reaches from one half into the other.
//!
//! Numbers must be given out once. Two tokens for one page are a bug of the machine that made them, and harm only that
//! machine.

use super::block::{Block, Content, Pfn, SPAN_PAGES, Span};

/// First simulated page.
pub const FIRST: Pfn = Pfn(1 << 31);
/// Number of blocks of the largest order for simulated pages; hosts have as many.
pub const SPANS_MAX: u32 = (1 << 31) / SPAN_PAGES;

const _: () = assert!(FIRST.0 as u64 + SPANS_MAX as u64 * SPAN_PAGES as u64 == 1 << 32);

/// Makes the token of `spans` blocks of the largest order, when `before` blocks have been given out.
///
/// # Panics
/// Beyond [`SPANS_MAX`].
pub fn span(before: u32, spans: u32) -> Span {
    let end = before.checked_add(spans);
    assert!(
        end.is_some_and(|end| end <= SPANS_MAX),
        "no numbers are left for simulated pages"
    );
    if before == SPANS_MAX {
        return Span::forge(FIRST, 0);
    }
    Span::forge(Pfn(FIRST.0 + before * SPAN_PAGES), spans)
}

/// Sets the content of a block whose bytes do not exist.
///
/// # Panics
/// If the block is not a simulated one.
pub fn set_content(block: &mut Block, content: Content) {
    assert!(block.pfn() >= FIRST, "there is memory behind this block");
    block.set_content(content);
}

#[cfg(test)]
mod tests {
    use super::super::Frames;
    use super::*;
    use crate::pages::ReserveOptions;
    use crate::{Host, Machine};

    fn host_pages() -> (<Host as Machine>::Frames, Span) {
        let host = Host::start().unwrap();
        host.reserve(&ReserveOptions::pages(1)).unwrap()
    }

    #[test]
    fn the_last_span_ends_with_the_last_page() {
        let mut span = span(SPANS_MAX - 1, 1);
        let block = span.take().unwrap();
        assert_eq!(block.pfn().0, u32::MAX - (SPAN_PAGES - 1));
        assert!(span.take().is_none());
    }

    #[test]
    #[should_panic(expected = "no numbers are left")]
    fn there_are_not_more() {
        let _ = span(SPANS_MAX - 1, 2);
    }

    #[test]
    #[should_panic(expected = "another reservation")]
    fn a_host_does_not_take_a_simulated_block() {
        let (frames, _) = host_pages();
        let _ = frames.bytes(&span(0, 1).take().unwrap());
    }

    #[test]
    #[should_panic(expected = "memory behind")]
    fn what_is_known_of_real_bytes_is_not_said_from_outside() {
        let (_, mut pages) = host_pages();
        set_content(&mut pages.take().unwrap(), Content::Zero);
    }
}
