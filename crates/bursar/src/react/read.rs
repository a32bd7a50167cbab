//! Reading the numbers of a group.

use bursar_machine::Machine;

use super::core::Core;
use super::fork;
use crate::tree::{self, Freshness, Keep, NotFresh, Reading};

/// Reads a group as fresh as is wanted.
pub(crate) fn read<M: Machine>(
    core: &Core<M>,
    index: u32,
    freshness: Freshness,
) -> Result<Reading, NotFresh> {
    let _operation = fork::operation(core);
    let usage_range = || core.counters.usage_range(index);
    finish(
        core,
        index,
        tree::read(core.tree(), index, freshness, usage_range),
    )
}

/// Brings a group and all below it up to date, and reads it.
pub(crate) fn flush<M: Machine>(core: &Core<M>, index: u32) -> Result<Reading, NotFresh> {
    let _operation = fork::operation(core);
    finish(core, index, tree::exact(core.tree(), index, Keep::Folded))
}

/// Adds bytes that were returned too often to a reading; without one, to the error.
fn finish<M: Machine>(
    core: &Core<M>,
    index: u32,
    reading: Option<Reading>,
) -> Result<Reading, NotFresh> {
    let events = || core.counters.counter(index).events.total();
    let finished = |reading: Reading| reading.with_over_returned(events().over_returned_bytes);
    reading.map(finished).ok_or_else(|| {
        let range = core.counters.usage_range(index);
        NotFresh {
            cached: finished(tree::cached(core.tree(), index, range)),
        }
    })
}
