//! The first return of each group that was too large: what [`crate::limit`] leaves to an operation that may wait.

use bursar_machine::Machine;

use super::core::Core;
use super::{fork, lifetime};
use crate::bytes::Bytes;
use crate::tree::printable;

/// Takes the stock of groups that returned too much, returns what was put off, and prints once for each memory which group it was.
pub(super) fn settle<M: Machine>(core: &Core<M>) {
    if !core.counters.has_over_returned() {
        return;
    }
    for index in core.counters.take_over_returned() {
        take_stock(core, index);
        if core.counters.is_first_told() {
            print(core, index);
        }
        lifetime::forget(core, index);
    }
}

/// Takes back the stock of a group that returned too much. The caller is inside of no gate.
pub(super) fn take_stock<M: Machine>(core: &Core<M>, index: u32) {
    let _operation = fork::operation(core);
    core.counters.take_stock(index);
}

fn print<M: Machine>(core: &Core<M>, index: u32) {
    let own = core.counters.counter(index).events.own();
    core.tree().machine.warn(format_args!(
        "{} more returned than charged in {}. Its usage stops at 0. This is a bug of the code that returns bytes there; a build \
         with debug assertions panics at that call. Events::over_returned_bytes counts on.",
        Bytes(own.over_returned_bytes),
        printable(&lifetime::path(core, index)),
    ));
}
