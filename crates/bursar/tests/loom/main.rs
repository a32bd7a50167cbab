//! The production code under loom: every interleaving of a few threads, up to a bound on preemptions.

#[macro_use]
mod machine;

mod limits;
mod page_lists;
mod protocols;
