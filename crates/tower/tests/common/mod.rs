//! A runtime and a reading, for tests over loopback.

use bursar::{Freshness, Group};
use tokio::runtime::Runtime;

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap()
}

pub fn usage(group: &Group) -> i64 {
    group.read(Freshness::Exact).unwrap().usage().value
}
