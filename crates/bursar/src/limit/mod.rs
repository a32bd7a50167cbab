//! Counters of bytes, limits on them, and the stock of each CPU. Values go in and values come out: nothing here calls a user's
//! code, waits for memory, or makes an error. `react` does that with the answers.
//!
//! | file | concept |
//! |---|---|
//! | `counter.rs` | one group's counter: usage, limits, the stock below it |
//! | `counters.rs` | the counters of all groups; claiming along the way to the root |
//! | `budget.rs` | how much stock CPUs may hold: pure functions |
//! | `stock.rs` | the bytes that CPUs hold ahead: refill, return |
//! | `over_return.rs` | returns of more bytes than a group has |
//! | `drain.rs` | taking the stock of a subtree back; the last try before a refusal |
//! | `limits.rs` | the limits of a group, as values |
//! | `events.rs` | counts of events at a group's limits |
//!
//! # Usage and stock
//! A group's *usage* is the bytes reserved for it and everything below, as its limit sees them. They are charged, or they are
//! *stock*: bytes that a CPU reserved ahead for later charges. A charge that the stock covers touches the current CPU's words
//! only. A refill *claims* along the way to the root, at each group only if it fits, records the bytes, and then raises the usage. So
//! no usage ever exceeds a limit, not even for a moment.
//!
//! # Refusing
//! A refusal must mean that the memory was not there. Three things could hide it: stock of other CPUs; a claim under way
//! that a higher group is about to refuse; stock that is moved. So a charge that would be refused *drains* the group in its way
//! first. A drain takes the stock back in slices while charges that fit go on. Then it closes the group, waits until no slow
//! operation is inside, takes the stock that these armed, and tries once more. Slow operations count themselves in before they look
//! whether a group on their way is closed. So when none is inside, none is under way. A task waits only for a group higher up, so
//! there is no circle.

mod budget;
mod counter;
mod counters;
mod drain;
mod events;
mod limits;
mod over_return;
mod stock;

pub(crate) use counter::USAGE_MAX;
pub(crate) use counters::{
    CHARGE_MAX, Closed, Counters, PROCESS, SHARDS_PER_SLICE, STOCK_MAX_MAX, StockNews,
    StockSettings, Way,
};
pub(crate) use drain::Refusal;
pub(crate) use events::Event;
pub use events::Events;
pub(crate) use limits::Limit;
pub use limits::Limits;
pub(crate) use stock::Short;
