//! What an arbiter promises, one rule a test, on the host's memory.

mod bad_input;
mod common;
mod grants;
mod model;
mod order;
mod threads;
