//! The experiment of arbitration: who waits, spills or is stopped when queries that run need more memory than there is.
//!
//! | part | file |
//! |---|---|
//! | the parameters and their ranges | `parameters.rs` |
//! | queries: what one needs, and for how long | `query.rs` |
//! | the interface of all rules | `desk.rs` |
//! | the rules of other systems, as pure functions | `rivals.rs` |
//! | their desk: one lock and one book | `book.rs` |
//! | Bursar's desk | `own.rs` |
//! | the clients, and what they record | `task.rs` |
//!
//! Clients send queries, each when the one before is done. A query builds a table, a batch at a time, and probes it. It takes memory for
//! each batch that it builds. It can wait for memory before it begins, and where its rule says so before each batch. It spills, or is
//! stopped, between two batches or while it waits. A query that was stopped or refused runs again, a few times.

mod book;
mod desk;
mod own;
mod parameters;
mod query;
mod rivals;
mod task;

use bursar_rig::timer::Timers;

pub use parameters::Parameters;
pub use rivals::Rival;

use self::book::Book;
use self::own::Own;
use crate::document::Metrics;
use crate::workload::Workload;

/// A variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Bursar.
    Own,
    /// Another system's rule.
    Of(Rival),
}

impl Workload for Parameters {
    type Variant = Variant;

    fn variants() -> Vec<(&'static str, &'static str, Variant)> {
        vec![
            (
                "bursar",
                "Bursar: admission by estimates; who comes later in the order spills, else the last one is stopped, and runs again",
                Variant::Own,
            ),
            (
                "greedy",
                "the first query that asks gets memory; one that is refused spills all, or fails",
                Variant::Of(Rival::Greedy),
            ),
            (
                "fixed-parts",
                "the same part of the memory for each query, as many at once as there are parts (Ballista)",
                Variant::Of(Rival::FixedParts),
            ),
            (
                "velox",
                "queries wait in order; the largest of the lowest score spills, else the youngest of it is stopped",
                Variant::Of(Rival::Velox),
            ),
            (
                "clickhouse",
                "admission by what queries say; the largest spills, else the largest is stopped",
                Variant::Of(Rival::ClickHouse),
            ),
            (
                "largest-first",
                "the largest is stopped once a query has waited for long enough (Trino)",
                Variant::Of(Rival::LargestFirst),
            ),
            (
                "youngest-first",
                "the youngest is stopped once a query has waited for long enough",
                Variant::Of(Rival::YoungestFirst),
            ),
        ]
    }

    fn measure<M: Timers>(&self, machine: &M, variant: Variant) -> Result<Metrics, String> {
        match variant {
            Variant::Own => task::measure(machine, &Own::new(machine, self)?, self),
            Variant::Of(rival) => task::measure(machine, &Book::new(machine, rival, self), self),
        }
    }
}

#[cfg(test)]
mod tests;
