//! The reference model: what groups, charges and pages must be, as plain numbers.
//!
//! Tests on the host, scenarios on a simulated machine and tests under loom compare the library with it.
//!
//! | file | states |
//! |---|---|
//! | `shape.rs` | which group is below which |
//! | `tree.rs` | usage, statistics, limits and the end of groups, while one task works |
//! | `reclaim.rs` | protection, requests to reclaimers, refusals, events: the same tree |
//! | `flow.rs` | bounds of a number that several tasks change |
//! | `charges.rs` | bytes of charges in time, while several tasks work |
//! | `judge.rs` | whether grants, refusals and readings were right, by these bytes |
//! | `pages.rs` | the holder of each page |
//! | `statistics.rs` | nothing: the statistics that tests keep |

pub mod charges;
mod flow;
mod judge;
pub mod pages;
mod reclaim;
mod shape;
pub mod statistics;
mod tree;

pub use flow::{Before, Flow};
pub use judge::judge;
pub use shape::{GroupIndex, Shape};
pub use tree::{Asked, Counts, Node, Numbers, Reclaimer, Tree};
