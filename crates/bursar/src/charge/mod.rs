//! Charging bytes to a tree of groups with limits.
//!
//! | file | concept |
//! |---|---|
//! | `counter.rs` | one group's counter: usage, limits, the stock below it |
//! | `gate.rs` | lets operations in, or one task that closes the gate |
//! | `ledger.rs` | the counters of all groups; reserving along the way to the root |
//! | `charging.rs`, `returning.rs` | the slow paths of charges and returns |
//! | `stock.rs` | the bytes that CPUs hold ahead: batch, refill, return |
//! | `drain.rs` | taking the stock of a subtree back; refusing, lowering limits |
//! | `remove.rs` | the end of groups |
//! | `close.rs` | the end of a group and of all groups below it |
//! | `limits.rs` | the limits of a group, and changing them |
//! | `protection.rs`, `standing.rs` | effective `min` and `low`: the formula, and along the tree |
//! | `throttle.rs`, `high.rs` | above `high`: the formula, and paying for it |
//! | `reclaim.rs` | asking users for memory, before a refusal |
//! | `waiting.rs` | charges that wait for a limit, in turn |
//! | `level.rs`, `pressure.rs` | levels of pressure, and telling watchers of them |
//! | `stall.rs`, `stalled.rs` | stall time, as the kernel's PSI |
//! | `notice.rs`, `hooks.rs` | telling listeners of changes |
//! | `events.rs` | counts of events at a group's limits |
//! | `fork.rs` | the books in a forked child |
//! | `largest.rs` | the biggest children, as refusals name them |
//! | `over_return.rs` | more bytes returned than were charged |
//! | `error.rs` | errors of charging |
//! | `bytes.rs` | numbers of bytes for people |
//!
//! # Usage and stock
//! A group's *usage*, as its limit sees it, is the bytes reserved for it and everything below. They are charged, or they are
//! *stock*: bytes that a CPU reserved ahead for later charges. A charge that the stock covers touches the current CPU's words
//! only. A refill reserves along the way to the root, at each group only if it fits. So no usage ever exceeds a limit, not even
//! for a moment.
//!
//! # Refusing
//! A refusal must mean that the memory was not there. Three things could hide it: stock of other CPUs; a reservation under way
//! that a higher group is about to refuse; stock that is moved. So a charge that would be refused *drains* the group in its way
//! first. A drain takes the stock back in slices while charges that fit go on. Then it closes the group, waits until no slow
//! operation is inside, takes the stock that these armed, and tries once more. Slow operations enter the gates on their way
//! before they look whether these are open. So when the group is empty, none is under way. A task waits only for a group higher
//! up, so there is no circle.

mod bytes;
mod charging;
mod close;
mod counter;
mod drain;
mod error;
mod events;
mod fork;
mod high;
mod hooks;
mod largest;
mod ledger;
mod level;
mod limits;
mod notice;
mod over_return;
mod pressure;
mod protection;
mod reclaim;
mod remove;
mod returning;
mod stall;
mod stalled;
mod standing;
mod stock;
mod throttle;
mod waiting;

pub use bytes::Bytes;
pub(crate) use counter::USAGE_MAX;
pub use error::{ChargeError, LimitReached, NowaitError, RemoveError};
pub use events::Events;
pub use high::{Debt, HighPolicy};
pub(crate) use ledger::{Ledger, PROCESS, Policies};
pub use level::{Level, Pressure, PressurePolicy};
pub(crate) use limits::Limit;
pub use limits::Limits;
pub use protection::Recursive;
pub use reclaim::{Reason, ReclaimRequest};
pub(crate) use remove::REAPED_BY_TICK;
pub use stall::{Stall, StallShare};
pub(crate) use stock::{CHARGE_MAX, STOCK_MAX_MAX};
pub(crate) use waiting::Ticket;
