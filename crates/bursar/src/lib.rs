#![doc = include_str!("../../../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

// The layers, each using only those before it; `tests/layers.rs` checks that.
mod arena;
mod stats;

mod charge;

mod group;
mod held;
mod memory;

pub use bursar_machine as machine;
pub use bursar_machine::Host;
pub use charge::{Bytes, ChargeError, LimitReached, NowaitError, RemoveError};
pub use group::{Group, Limits};
pub use held::{Charge, MergeError, MoveError, SplitError};
pub use memory::{Builder, Memory, MemoryError};
pub use stats::{
    Counter, CreateError, FlushCounts, FlushPolicy, Freshness, Gauge, Handle, NAME_MAX, NotFresh,
    Reading, Statistic, Value,
};
