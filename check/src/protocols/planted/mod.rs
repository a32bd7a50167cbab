//! Bugs planted on purpose, one of each class that the protocols must not have, each with a correct twin.
//!
//! They are mechanisms of their own, as small as the bug allows: nothing of the library can be switched to them.

mod add_then_undo;
mod bug;
mod double_queue;
mod drain_update;
mod fold_by_reset;
mod lock_order;
mod lost_wakeup;
mod refuse_undrained;
mod retiring;
mod stale_join;
mod stale_level;
mod stopped_early;
mod wake_before_return;

use bursar_rig::Watched;

pub use bug::Planted;
use bug::Version;

/// Returns all planted bugs.
pub fn all<M: Watched>() -> Vec<Planted<M>> {
    let mut all = vec![
        Planted {
            name: "stale-join",
            summary: "a reader uses the walk that runs, which may have passed an update that it must see",
            cpus: 2,
            broken: |machine, seed| stale_join::scenario(machine, seed, Version::Broken),
            mended: |machine, seed| stale_join::scenario(machine, seed, Version::Mended),
        },
        Planted {
            name: "stopped-early",
            summary: "an update stops at a mark that is set, whose setter was preempted half-way to the root",
            cpus: 2,
            broken: |machine, seed| stopped_early::scenario(machine, seed, Version::Broken),
            mended: |machine, seed| stopped_early::scenario(machine, seed, Version::Mended),
        },
        Planted {
            name: "lost-wakeup",
            summary: "a waiter looks, then goes to sleep, and does not look again in between",
            cpus: 2,
            broken: |machine, seed| lost_wakeup::scenario(machine, seed, Version::Broken),
            mended: |machine, seed| lost_wakeup::scenario(machine, seed, Version::Mended),
        },
        Planted {
            name: "lock-order",
            summary: "two locks are taken in two orders",
            cpus: 2,
            broken: |machine, seed| lock_order::scenario(machine, seed, Version::Broken),
            mended: |machine, seed| lock_order::scenario(machine, seed, Version::Mended),
        },
        Planted {
            name: "drain-update",
            summary: "a drain reads the stock and then clears it, with no freezing and no fence",
            cpus: 2,
            broken: |machine, seed| drain_update::scenario(machine, seed, Version::Broken),
            mended: |machine, seed| drain_update::scenario(machine, seed, Version::Mended),
        },
        Planted {
            name: "add-then-undo",
            summary: "a charge is added, compared with the limit, and undone, and others see it meanwhile",
            cpus: 2,
            broken: |machine, seed| add_then_undo::scenario(machine, seed, Version::Broken),
            mended: |machine, seed| add_then_undo::scenario(machine, seed, Version::Mended),
        },
        Planted {
            name: "refuse-undrained",
            summary: "a charge is refused while another CPU holds the memory as stock",
            cpus: 2,
            broken: |machine, seed| refuse_undrained::scenario(machine, seed, Version::Broken),
            mended: |machine, seed| refuse_undrained::scenario(machine, seed, Version::Mended),
        },
        Planted {
            name: "wake-before-return",
            summary: "a return looks for a waiter to wake before the memory is there",
            cpus: 2,
            broken: |machine, seed| wake_before_return::scenario(machine, seed, Version::Broken),
            mended: |machine, seed| wake_before_return::scenario(machine, seed, Version::Mended),
        },
        Planted {
            name: "stale-level",
            summary: "a task that tells of changes does not look again, and others rely on it",
            cpus: 2,
            broken: |machine, seed| stale_level::scenario(machine, seed, Version::Broken),
            mended: |machine, seed| stale_level::scenario(machine, seed, Version::Mended),
        },
        Planted {
            name: "fold-by-reset",
            summary: "a folder takes out a CPU's difference while the CPU adds to it",
            cpus: 2,
            broken: |machine, seed| fold_by_reset::scenario(machine, seed, Version::Broken),
            mended: |machine, seed| fold_by_reset::scenario(machine, seed, Version::Mended),
        },
        Planted {
            name: "double-queue",
            summary: "a shepherd sees that upkeep is not queued, and queues it while it runs",
            cpus: 2,
            broken: |machine, seed| double_queue::scenario(machine, seed, Version::Broken),
            mended: |machine, seed| double_queue::scenario(machine, seed, Version::Mended),
        },
    ];
    all.extend(retiring::all());
    all
}
