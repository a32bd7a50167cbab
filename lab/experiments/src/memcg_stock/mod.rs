//! The experiment of the series *move stock from mem_cgroup to page_counter* (2026): where a CPU keeps the pages that it has
//! charged ahead, while more groups charge on it than it has slots.
//!
//! | part | file |
//! |---|---|
//! | the parameters and their ranges | `parameters.rs` |
//! | the kernel's charging with each kind of stock, and Bursar's | `subject.rs` |
//! | the tasks, and what they record | `task.rs` |
//!
//! The tree is a root, one tenant, and the groups below it. A task on each CPU charges pages to some groups in turn, and then gives
//! all of them back. A charge that is refused drains once and tries again. Another task may drain the tenant now and then, as
//! others' refused charges and the removal of groups do. If pages are left at the end, the run gives no result.

mod parameters;
mod subject;
mod task;

use bursar_kernel::charge::StockKind;
use bursar_rig::timer::Timers;

pub use parameters::Parameters;

use self::subject::{Kernel, Own};
use crate::document::Metrics;
use crate::workload::Workload;

/// A variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Bursar.
    Own,
    /// The kernel's charging, with stock of a kind.
    Kernel(StockKind),
}

impl Workload for Parameters {
    type Variant = Variant;

    fn variants() -> Vec<(&'static str, &'static str, Variant)> {
        use StockKind::{PerCounter, Slots};
        vec![
            (
                "bursar",
                "Bursar: stock of each group on each CPU, which follows requests and shrinks as a limit nears",
                Variant::Own,
            ),
            (
                "one-slot",
                "Linux until 2025: a CPU has stock of the group that charged there last",
                Variant::Kernel(Slots(1)),
            ),
            (
                "seven-slots",
                "Linux since 2025: a CPU has stock of seven groups",
                Variant::Kernel(Slots(7)),
            ),
            (
                "per-counter",
                "proposed in 2026: each counter has stock on each CPU, a word without a lock",
                Variant::Kernel(PerCounter),
            ),
        ]
    }

    fn measure<M: Timers>(&self, machine: &M, variant: Variant) -> Result<Metrics, String> {
        match variant {
            Variant::Own => task::measure(machine, &Own::new(machine, self)?, self),
            Variant::Kernel(kind) => {
                task::measure(machine, &Kernel::new(machine, self, kind), self)
            }
        }
    }
}

#[cfg(test)]
mod tests;
