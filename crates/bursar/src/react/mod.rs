//! Reactions to the answers of [`crate::limit`]: one loop turns them into drains, reclaim, queues and refusals. All calls of users'
//! code, all waiting, and all errors are here.
//!
//! Files in the order of the layers; each uses only those before it.
//!
//! | file | concept |
//! |---|---|
//! | `stall.rs`, `pressure_policy.rs` | pure functions: stall time (the kernel's PSI), thresholds that make levels of pressure |
//! | `error.rs` | errors of charging, and the report of the tree that they show |
//! | `call_site.rs` | the code that made a charge |
//! | `queue.rs` | charges that wait for one limit, and how often each was passed: plain data |
//! | `hooks.rs` | reclaimers, watchers and waiting charges of a group: plain data |
//! | `core.rs` | the state of one memory, and its policies about limits |
//! | `fork.rs` | operations that a fork waits for; the state in a forked child |
//! | `trace.rs` | events for `tracing` |
//! | `leftover.rs` | bytes that ended groups leave behind: following charges, noting, telling |
//! | `lifetime.rs` | birth, references, listeners and end of groups |
//! | `wait.rs` | charges that wait for a limit: whose turn it is, and waking them |
//! | `pressure.rs` | tasks that stall or work; levels of pressure now, and telling watchers of them |
//! | `report.rs` | the tree around a group; its report at the highest peak |
//! | `tell.rs` | the end of an operation that changed usage: telling all listeners |
//! | `protection.rs` | effective `min` and `low` |
//! | `reclaim.rs` | asking users for memory |
//! | `high.rs` | usage above `high`: reclaim, then sleep or debt; the formula of the kernel |
//! | `refusal.rs` | the error, with a report that refusals share for 100 ms |
//! | `nowait.rs` | charges and returns past the fast path that never wait; async-signal-safe |
//! | `slow_charge.rs` | all others past the fast path: the loop |
//! | `limits.rs`, `close.rs` | changing limits, ending groups |

mod call_site;
pub(crate) mod close;
mod core;
mod error;
pub(crate) mod fork;
pub(crate) mod high;
mod hooks;
pub(crate) mod leftover;
pub(crate) mod lifetime;
pub(crate) mod limits;
pub(crate) mod nowait;
pub(crate) mod pressure;
mod pressure_policy;
pub(crate) mod protection;
mod queue;
pub(crate) mod reclaim;
pub(crate) mod refusal;
pub(crate) mod report;
pub(crate) mod slow_charge;
mod stall;
pub(crate) mod tell;
mod trace;
pub(crate) mod wait;

pub use call_site::CallSite;
pub(crate) use call_site::Site;
pub(crate) use core::{Core, Policies};
pub use core::{HighPolicy, Recursive};
pub use error::{ChargeError, GroupState, LimitReached, NowaitError, RemoveError, TreeReport};
pub use high::Debt;
pub use hooks::{Reason, ReclaimRequest};
pub use leftover::Leftover;
pub use pressure_policy::{Level, Pressure, PressurePolicy};
pub(crate) use queue::PassingRule;
pub use stall::{Stall, StallShare};
pub use wait::WaitingCharge;
