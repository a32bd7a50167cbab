//! Page memory without bytes: operations take as long as on the host.

use bursar_machine::pages::{ReserveError, ReserveOptions, Span};
use bursar_rig::frames::{Cost, Unbacked};

use crate::engine::{Engine, with_engine};
use crate::fence;

/// Reservation of page memory on a simulated machine.
pub type SimFrames = Unbacked<Simulated>;

/// Time of operations by the cost model.
#[derive(Clone, Copy, Debug)]
pub struct Simulated;

/// Numbers pages, from the first on for each simulator, so that the same run has the same numbers.
pub(crate) fn reserve(
    options: &ReserveOptions,
    nodes: usize,
) -> Result<(SimFrames, Span), ReserveError> {
    let &ReserveOptions { pages, node, .. } = options;
    if pages > 0 && node >= nodes {
        return Err(ReserveError::NoSuchNode { node, nodes });
    }
    let reserve = |engine: &Engine| {
        let mut spans = engine.reserved_spans.get();
        let reserved = Unbacked::reserve(&mut spans, pages);
        engine.reserved_spans.set(spans);
        reserved
    };
    with_engine(reserve).expect("a machine runs while its simulator does")
}

impl Cost for Simulated {
    fn zero(pages: u64) {
        with_engine(|engine| engine.pass(pages * engine.costs().page_zero_ns));
    }

    fn discard(pages: u64, is_backed: bool) {
        with_engine(|engine| {
            let costs = engine.costs();
            engine.spend(costs.syscall_ns);
            // Without memory there is no translation either.
            if is_backed {
                engine.spend(pages * costs.page_free_ns);
                fence::shoot_down(engine);
            }
            engine.pass(0);
        });
    }
}
