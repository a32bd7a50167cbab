//! Promises of an arbiter, one rule a test, on the host's memory.

mod bad_input;
mod clock;
mod common;
mod credit;
mod grants;
mod growth;
mod model;
mod order;
mod real;
mod replay;
mod threads;
mod time;
