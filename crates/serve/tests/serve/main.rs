//! A server, and clients on its socket.
#![cfg(unix)]

mod client;
#[path = "../../../bursar/tests/common/fork.rs"]
mod fork;
#[path = "../../../bursar/tests/common/signals.rs"]
#[allow(dead_code, reason = "tests of bursar use the rest")]
mod signals;

mod bad_input;
mod forks;
mod requests;
mod schema;
mod socket_file;
mod users;
