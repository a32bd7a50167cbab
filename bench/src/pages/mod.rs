//! Pages: allocating and freeing blocks of 4 KiB and 64 KiB, beside the allocators that programs use today.
//!
//! Every measurement is made in a process of its own, so that none finds the memory, the threads and the caches of another.
//!
//! | file | |
//! |---|---|
//! | `row.rs` | which measurements there are, and their names |
//! | `contenders.rs`, `ours.rs` | contenders: peers, and Bursar with its yardstick |
//! | `speed.rs` | *pair*, *deep*, *remote*: nanoseconds for an allocation and its free |
//! | `churn.rs` | *churn*: percentiles of single operations beyond the caches |
//! | `worst.rs` | *worst*: the longest operation when 32 threads share two CPUs |
//! | `retained.rs`, `resident.rs` | *retained*: memory that an allocator keeps |
//! | `job.rs`, `run.rs` | one measurement, and all of them in turns |
//! | `table.rs`, `targets.rs` | the text about it |

mod churn;
mod contenders;
mod hold;
mod job;
mod ours;
mod resident;
mod retained;
mod row;
mod run;
mod scenario;
mod speed;
mod table;
mod targets;
mod worst;

pub use job::job;
pub use ours::BARE_STACK;
pub use run::{ROUNDS_MAX, Results, run};
pub use table::tables;
pub use targets::of_pages;
