//! Admission: a query that does not fit now waits for its turn or runs with fewer partitions, and is not refused.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod arbiter;
mod ask;
mod ledger;
mod policy;
mod queue;
mod report;

pub use arbiter::{Admit, Arbiter, Grant, Widener};
pub use ask::{AdmitError, Ask};
pub use policy::{Order, Policy};
pub use report::{Admissions, Counts, Granted, NotWidened, Waiting};
