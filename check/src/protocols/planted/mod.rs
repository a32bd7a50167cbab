//! Bugs planted on purpose, one of each class that the protocols must not have, each with a correct twin.
//!
//! They are mechanisms of their own, as small as the bug allows: nothing of the library can be switched to them.

/// The bugs of a table: name, summary, and the scenario with the bug and without it.
macro_rules! planted {
    ($($name:literal: $summary:literal, $scenario:path, $broken:expr, $mended:expr;)+) => {
        vec![$(Planted {
            name: $name,
            summary: $summary,
            cpus: 2,
            broken: |machine, seed| $scenario(machine, seed, $broken),
            mended: |machine, seed| $scenario(machine, seed, $mended),
        }),+]
    };
}

mod add_then_undo;
mod bug;
mod double_queue;
mod drain_update;
mod fold_by_reset;
mod head_of_line;
mod late_rearm;
mod lock_order;
mod lost_listing;
mod lost_wakeup;
mod promises;
mod raise_unlooked;
mod refuse_undrained;
mod retiring;
mod rooms;
mod stale_join;
mod stale_level;
mod stopped_early;
mod unpublished_report;
mod wake_before_return;

use bursar_rig::Watched;

pub use bug::Planted;
use bug::Version::{Broken, Mended};

/// Returns all planted bugs.
#[rustfmt::skip]
pub fn all<M: Watched>() -> Vec<Planted<M>> {
    let mut all = planted![
        "stale-join": "a reader uses the walk that runs, which may have passed an update that it must see",
            stale_join::scenario, Broken, Mended;
        "stopped-early": "an update stops at a mark that is set, whose setter was preempted half-way to the root",
            stopped_early::scenario, Broken, Mended;
        "lost-wakeup": "a waiter looks, then goes to sleep, and does not look again in between",
            lost_wakeup::scenario, Broken, Mended;
        "lock-order": "two locks are taken in two orders",
            lock_order::scenario, Broken, Mended;
        "drain-update": "a drain reads the stock and then clears it, with no freezing and no fence",
            drain_update::scenario, Broken, Mended;
        "add-then-undo": "a charge is added, compared with the limit, and undone, and others see it meanwhile",
            add_then_undo::scenario, Broken, Mended;
        "refuse-undrained": "a charge is refused while another CPU holds the memory as stock",
            refuse_undrained::scenario, Broken, Mended;
        "raise-unlooked": "two CPUs look at the budget of stock, and both raise what they may hold",
            raise_unlooked::scenario, Broken, Mended;
        "wake-before-return": "a return looks for a waiter to wake before the memory is there",
            wake_before_return::scenario, Broken, Mended;
        "head-of-line": "a waiter that cannot be served keeps a task behind it waiting, whose memory it needs",
            head_of_line::scenario, Broken, Mended;
        "stale-level": "a task that tells of changes does not look again, and others rely on it",
            stale_level::scenario, Broken, Mended;
        "fold-by-reset": "a folder takes out a CPU's difference while the CPU adds to it",
            fold_by_reset::scenario, Broken, Mended;
        "double-queue": "a shepherd sees that upkeep is not queued, and queues it while it runs",
            double_queue::scenario, Broken, Mended;
        "late-rearm": "a flush is shown as running before its completion is armed again, and readers that join it do not wait",
            late_rearm::scenario, Broken, Mended;
        "lost-listing": "updates choose by an exchange that is atomic on their own CPU alone, while a flusher on another clears the word",
            lost_listing::scenario, Broken, Mended;
        "unpublished-report": "an addition is reported by another task, and a walk that sees the report does not look at its shard",
            unpublished_report::scenario, Broken, Mended;
    ];
    all.extend(retiring::all());
    all.extend(promises::all());
    all.extend(rooms::all());
    all
}
