//! Bursar's protocols as small scenarios, for many schedules on a machine that can be watched.
//!
//! [`all`] lists them. A scenario draws its variety (tasks, operations, sizes) from a number that belongs to the schedule. After each step
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

mod admission;
mod arbitration;
mod books;
mod charging;
mod combining;
mod drains;
mod executor;
mod fork;
mod locked;
mod over_return;
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
mod reversal;
mod rooms;
mod roster;
mod settings;
mod small_counters;
mod upkeep;
mod waiting;

use bursar_rig::Forks;

pub use protocol::Protocol;

/// Returns all protocols.
#[rustfmt::skip]
pub fn all<M: Forks>() -> Vec<Protocol<M>> {
    let mut all = vec![
        Protocol::of(2, "publish-flush", publish_flush::wide,
            "updates of a tree while exact reads walk over it and idle slots are retired: none is missed, none counted twice"),
        Protocol::of(2, "one-shard", publish_flush::narrow,
            "tasks publish the same shard while others fold and retire it, again and again"),
        Protocol::of(2, "roster", roster::scenario,
            "reads that add up the slots in use, while others publish, retire, remove and bear: none is missed, none counted twice"),
        Protocol::of(2, "idle-roster", roster::idle,
            "reads that add up the slots in use, while one of them is retired and used again: none is missed, none counted twice"),
        Protocol::of(3, "combining", combining::scenario,
            "readers of one scope share walks, beside readers of other scopes: fresh, and all are woken"),
        Protocol::of(2, "quiesce", quiesce::scenario,
            "shards are frozen and emptied while their CPUs charge: nothing commits while frozen"),
        settings::protocol::<M, 0>(),
        settings::protocol::<M, 1>(),
        Protocol::of(2, "drains", drains::scenario,
            "a group is drained while a drain of a part waits, or charges leave stock again: few slices until the end"),
        Protocol::of(2, "removal", removal::scenario,
            "groups end while others update, charge and read them, and are born again in the same records"),
        Protocol::of(2, "rebirth", rebirth::scenario,
            "a record is born again while the old parent is drained, read and retired: no false refusal, nothing lost"),
        Protocol::of(2, "reversal", reversal::scenario,
            "a last handle is dropped while two records become groups again, the other way round: no two tasks wait for each other"),
        settings::protocol::<M, 3>(),
        settings::protocol::<M, 4>(),
        settings::protocol::<M, 2>(),
        settings::protocol::<M, 5>(),
        Protocol::of(2, "over-return", over_return::scenario,
            "a tenant returns more than it charged while charges are under way: no sibling loses a byte, and the limit holds"),
        Protocol::of(2, "ranges", ranges::scenario,
            "cached reads while others update, charge, flush and end groups: the truth lies in the range"),
        Protocol::of(2, "waiting", waiting::scenario,
            "charges wait for limits while memory returns, limits change and groups end: none is passed too often, and every waiter is woken"),
        Protocol::of(2, "reclaim", reclaim::scenario,
            "charges beyond a limit while reclaimers hold memory: asked in turn, within bounds, not refused too early"),
        Protocol::of(2, "pressure", pressure::scenario,
            "levels of pressure change while others watch: each is told of the last one, one call at a time"),
        Protocol::of(2, "admission", admission::scenario,
            "queries ask, charge, give up, resize and end in any order: each is served or woken, and no promise exceeds a limit"),
        Protocol::of(2, "arbitration", arbitration::scenario,
            "queries grow beyond what there is, and spill, lie, are silent or are stopped: all are done in the end"),
        Protocol::of(2, "rooms", rooms::scenario,
            "tasks of a query wait for room and share it, drop waits, run out of time and are stopped: all waits end, and room is there"),
        Protocol::of(2, "fork", fork::scenario,
            "a task forks while others do anything: the child's books are right, and tasks that are gone hinder no other")
            .of_forks(),
    ];
    all.extend(pages::protocols());
    all.extend([
        Protocol::of(2, "small-counters", small_counters::scenario,
            "CPUs add to counters of their own, and anyone folds them: no addition is lost or counted twice"),
        Protocol::of(2, "upkeep", upkeep::scenario,
            "shepherds queue upkeep, which comes by timers or early: no work is forgotten, and never two at once"),
    ]);
    all
}
