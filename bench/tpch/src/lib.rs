//! TPC-H's eight tables and twenty-two queries for DataFusion, for examples and tests.
//!
//! | file | what |
//! |---|---|
//! | `tables.rs` | the tables in memory, generated on all CPUs |
//! | `queries.rs`, `queries/*.sql` | the queries with the specification's validation parameters, and two that spill well |
//! | `run.rs` | a query from its text to its last row |
//! | `answer.rs` | the rows of an answer in a form that compares |
//! | `spills.rs` | the spills of a plan, from its own metrics |
//!
//! This is no benchmark in the sense of the TPC, and its times are not comparable with published results.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod answer;
mod queries;
mod run;
mod spills;
mod tables;

pub use answer::Answer;
pub use queries::{EXTRA, QUERIES, Query, named};
pub use run::run;
pub use spills::Spilled;
pub use tables::{GenerateError, Tables};
