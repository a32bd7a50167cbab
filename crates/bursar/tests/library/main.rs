//! Tests of the library that share a process. Apart from them are those that fork, set limits of their process, look at its
//! memory, or start processes.

mod basics;
mod closing;
#[path = "../common/mod.rs"]
mod common;
mod exact;
mod handles;
mod limits;
mod limits_bad_input;
mod model;
mod model_limits;
mod model_pages;
mod numbers;
mod pages_bytes;
mod pressure;
mod reclaim;
mod reclaim_faults;
mod serial;
mod shown;
mod snapshot;
mod waiting;
