#![doc = include_str!("../../../README.md")]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

// The layers, each using only those before it; `tests/layers.rs` checks that.
mod arena;
mod stats;

mod charge;

pub mod pages;

pub mod housekeeping;

mod books;
mod group;
mod held;

mod account;
mod registration;
mod reserve;
mod survey;
mod waiting;

mod memory;

mod page;

mod snapshot;

#[cfg(feature = "serde")]
mod serial;

// For allocators, simulations and tests: not what a program begins with.
#[doc(hidden)]
pub use account::Account;
#[doc(hidden)]
pub use bursar_machine as machine;
pub use bursar_machine::host::{CgroupError, ResidentError, StartError, Ticker};
pub use bursar_machine::{Host, Machine};
pub use charge::{
    Bytes, ChargeError, Debt, Events, HighPolicy, Level, LimitReached, Limits, NowaitError,
    Pressure, PressurePolicy, Reason, ReclaimRequest, Recursive, RemoveError, Stall, StallShare,
};
pub use group::Group;
pub use held::{Charge, MergeError, MoveError, SplitError};
pub use memory::{Builder, Drift, Memory, MemoryError};
pub use page::{AllocPagesError, Claim, ClaimError, Page, PageRequest};
pub use registration::Registration;
pub use reserve::{EmergencyReserve, Exhausted, Taken};
pub use snapshot::{GroupSnapshot, Snapshot};
pub use stats::{
    Counter, CreateError, FlushCounts, FlushPolicy, Freshness, Gauge, Handle, NAME_MAX, NotFresh,
    Reading, Statistic, Value, printable,
};
pub use survey::{By, Consumer, Protection, Victim};
pub use waiting::{ChargeAsync, Emptied, PressureChanged};
