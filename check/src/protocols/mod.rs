//! Bursar's protocols as small scenarios, for many schedules on a machine that can be watched.
//!
//! | file | concurrent operations | checks |
//! |---|---|---|
//! | `publish_flush.rs` | updates with exact reads of any scope and retiring; the same of one shard | freshness, conservation |
//! | `roster.rs` | reads by roster with updates, retiring, and the end and birth of groups | freshness, conservation |
//! | `combining.rs` | many exact readers of one scope and of overlapping ones | freshness; every waiter is woken |
//! | `quiesce.rs` | freeze, fence, settle, take, thaw with charges on the CPU's words | nothing commits while frozen |
//! | `settings.rs` | charges of all kinds with returns, drains, limits that change, moves: five protocols | limits; no false refusal; usage; few steps |
//! | `removal.rs` | the end of groups with updates, charges, reads and rebirths | conservation; clean records |
//! | `rebirth.rs` | a record's end and next life elsewhere with drains of both parents | no false refusal |
//! | `waiting.rs` | charges that wait, are dropped half-way; returns, limits, the end of groups | in turn; every waiter is woken |
//! | `reclaim.rs` | charges beyond limits, and reclaimers of all kinds | refusals, protection, no recursion |
//! | `pressure.rs` | subscribers of levels, with charges and limits that change | the last level is told; one call at a time |
//! | `ranges.rs` | cached reads with updates, walks, retiring and the end of groups | the truth lies in the range |
//! | `fork.rs` | a fork with charges, returns, reads, limits and the end of groups | the child's books; no task waits for one that is gone |
//! | `pages/` | pages: allocations, frees, drains, upkeep, raw memory, forks | each page is in one place; no task sees what others wrote |
//! | `small_counters.rs` | additions, and folds of any CPU by anyone | conservation; the error is bounded |
//! | `upkeep.rs` | shepherds, upkeep by timers and ahead of them, additions | no work is forgotten; never two at once |
//!
//! A scenario draws its variety (tasks, operations, sizes) from a number that belongs to the schedule. After each step
//! it checks all that can be read without a lock. At the end it checks everything against the log (`model/charges.rs`,
//! `model/judge.rs`). It panics at an error.
//!
//! [`planted`] holds broken mechanisms with correct twins; an explorer must find the broken ones. [`mod@published`]
//! holds the flush policies of the kernel thread, of which only some keep a promise to their readers, and
//! [`published_pages`] those of page lists.

/// Tasks of one scenario.
macro_rules! tasks {
    ($($task:expr),+ $(,)?) => {
        vec![$(Box::new($task)),+]
    };
}

mod books;
mod charging;
mod combining;
mod executor;
mod fork;
mod own_steps;
mod pages;
pub mod planted;
mod pressure;
mod protocol;
mod publish_flush;
pub mod published;
pub mod published_pages;
mod quiesce;
mod ranges;
mod rebirth;
mod reclaim;
mod removal;
mod roster;
mod settings;
mod small_counters;
mod upkeep;
mod waiting;

use bursar_rig::Forks;

pub use protocol::Protocol;

/// Returns all protocols.
pub fn all<M: Forks>() -> Vec<Protocol<M>> {
    let mut all = vec![
        publish_flush::protocol(),
        publish_flush::one_shard(),
        roster::protocol(),
        combining::protocol(),
        quiesce::protocol(),
        settings::protocol::<M, 0>(),
        settings::protocol::<M, 1>(),
        removal::protocol(),
        rebirth::protocol(),
        settings::protocol::<M, 3>(),
        settings::protocol::<M, 4>(),
        settings::protocol::<M, 2>(),
        ranges::protocol(),
        waiting::protocol(),
        reclaim::protocol(),
        pressure::protocol(),
        fork::protocol(),
    ];
    all.extend(pages::protocols());
    all.extend([small_counters::protocol(), upkeep::protocol()]);
    all
}
