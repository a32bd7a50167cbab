//! Pages without memory behind, for whoever implements a machine that only simulates.
//!
//! A token out of nothing would be a way to reach somebody else's memory, so these are tokens that no host takes: simulated
//! pages are numbered in the upper half of all numbers, from [`FIRST`] on, those of hosts in the lower. Both are checked.
//! Blocks are joined within spans only, so none ever reaches from one half into the other.
//!
//! Numbers must be given out once. Two tokens for one page are a bug of the machine that made them, and of nobody else.

use super::block::{Block, Content, Pfn, SPAN_PAGES, Span};

/// The first simulated page.
pub const FIRST: Pfn = Pfn(1 << 31);
/// Blocks of the largest order that simulated pages make, and as many those of hosts.
pub const SPANS_MAX: u32 = (1 << 31) / SPAN_PAGES;

const _: () = assert!(FIRST.0 as u64 + SPANS_MAX as u64 * SPAN_PAGES as u64 == 1 << 32);

/// The token of `spans` blocks of the largest order, of which `before` have been given out.
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

/// Says what is known of a block's bytes, which do not exist.
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
