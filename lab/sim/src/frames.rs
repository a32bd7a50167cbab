//! Page memory without bytes: the content of a block changes as on the host, and the same operations take time.

use std::mem::MaybeUninit;

use bursar_machine::pages::{
    Block, Content, Frames, Pfn, ReserveError, ReserveOptions, SPAN_PAGES, Span, simulated,
};

use crate::engine::{Engine, with_engine};
use crate::fence;

/// Reservation of page memory on a simulated machine.
#[derive(Clone, Copy, Debug)]
pub struct SimFrames {
    first: Pfn,
    pages: u32,
}

/// Numbers pages, from the first on for each simulator, so that the same run has the same numbers.
pub(crate) fn reserve(
    options: &ReserveOptions,
    nodes: usize,
) -> Result<(SimFrames, Span), ReserveError> {
    let &ReserveOptions { pages, node, .. } = options;
    if pages == 0 {
        return Err(ReserveError::NoPages);
    }
    if node >= nodes {
        return Err(ReserveError::NoSuchNode { node, nodes });
    }
    with_engine(|engine| reserve_spans(engine, pages))
        .expect("a machine runs while its simulator does")
}

fn reserve_spans(engine: &Engine, pages: u64) -> Result<(SimFrames, Span), ReserveError> {
    let before = engine.reserved_spans.get();
    let left = simulated::SPANS_MAX - before;
    let spans = pages.div_ceil(u64::from(SPAN_PAGES));
    let Some(spans) = u32::try_from(spans).ok().filter(|&spans| spans <= left) else {
        let available = u64::from(left) * u64::from(SPAN_PAGES);
        return Err(ReserveError::TooLarge { pages, available });
    };
    engine.reserved_spans.set(before + spans);
    let frames = SimFrames {
        first: Pfn(simulated::FIRST.0 + before * SPAN_PAGES),
        pages: spans * SPAN_PAGES,
    };
    Ok((frames, simulated::span(before, spans)))
}

/// Spends time in a step whose inside no other task sees.
fn spend_at_once(engine: &Engine, duration_ns: u64) {
    engine.spend(duration_ns);
    if engine.explored.is_none() {
        engine.sync();
    }
}

impl SimFrames {
    fn check(&self, block: &Block) {
        // A page before the first wraps to one beyond the last.
        let at = block.pfn().0.wrapping_sub(self.first.0);
        assert!(at < self.pages, "the block is of another reservation");
    }
}

impl Frames for SimFrames {
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
        with_engine(|engine| {
            let page_ns = engine.settings.costs.page_zero_ns;
            spend_at_once(engine, u64::from(block.order().pages()) * page_ns);
        });
        simulated::set_content(block, Content::Zero);
    }

    fn discard(&self, block: &mut Block) -> bool {
        self.check(block);
        with_engine(|engine| {
            let costs = &engine.settings.costs;
            engine.spend(costs.syscall_ns);
            // Without memory there is no translation either.
            if block.content() != Content::Unbacked {
                engine.spend(u64::from(block.order().pages()) * costs.page_free_ns);
                fence::shoot_down(engine);
            }
            spend_at_once(engine, 0);
        });
        simulated::set_content(block, Content::Unbacked);
        true
    }
}
