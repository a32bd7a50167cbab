//! The experiment of arbitration: who waits, spills or is stopped when queries that run need more memory than there is.
//!
//! | part | file |
//! |---|---|
//! | the parameters and their ranges | `parameters.rs` |
//! | queries: what one needs, and for how long | `query.rs` |
//! | what a query asks of a rule | `desk.rs` |
//! | the rules of other systems, as pure functions | `rivals.rs` |
//! | their desk: one lock and one book | `book.rs` |
//! | the clients, and what they record | `task.rs` |
//!
//! Clients send queries, each when the one before is done. A query builds a table, a batch at a time, and probes it. It takes memory for
//! each batch that it builds. It can wait for memory before it begins, and where its rule says so before each batch. It spills, or is
//! stopped, between two batches or while it waits. A query that was stopped or refused runs again, a few times.

mod book;
mod desk;
mod parameters;
mod query;
mod rivals;
mod task;

use bursar_rig::timer::Timers;

pub use parameters::Parameters;
pub use rivals::Rival;

use self::book::Book;
use crate::document::Metrics;
use crate::workload::Workload;

impl Workload for Parameters {
    type Variant = Rival;

    fn variants() -> Vec<(&'static str, &'static str, Rival)> {
        vec![
            (
                "greedy",
                "whoever comes first; a query that is refused spills what it has, or fails",
                Rival::Greedy,
            ),
            (
                "fixed-parts",
                "the same part of the memory for each query, as many at once as there are parts (Ballista)",
                Rival::FixedParts,
            ),
            (
                "velox",
                "queries wait in order; the largest of the lowest score spills, else the youngest of it is stopped",
                Rival::Velox,
            ),
            (
                "clickhouse",
                "admission by what queries say; the largest spills, else the largest is stopped",
                Rival::ClickHouse,
            ),
            (
                "largest-first",
                "the largest is stopped once a query has waited for long enough (Trino)",
                Rival::LargestFirst,
            ),
            (
                "youngest-first",
                "the youngest is stopped once a query has waited for long enough",
                Rival::YoungestFirst,
            ),
        ]
    }

    fn measure<M: Timers>(&self, machine: &M, variant: Rival) -> Result<Metrics, String> {
        task::measure(machine, &Book::new(machine, variant, self), self)
    }
}

#[cfg(test)]
mod tests;
