//! Timers: ticks, the kernel's wheel, and exact timers; and work that waits for them.
//!
//! Timers of the wheel sit in levels of 64 buckets. Level `n` has a granularity of `8^n` ticks, and holds timers that
//! are less than `63 * 8^n` ticks away. An expiry is always rounded up to the granularity of its level. So a timer that
//! is far away is late, and many that were apart expire together. (`kernel/time/timer.c`, Linux 4.8 and later.)

use bursar_machine::{LockWaits, Shard};

use crate::Tasks;

/// Moment in ticks since the machine started (the kernel's `jiffies`).
pub type Jiffies = u64;

/// Kind of timer that wakes a waiting task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimerKind {
    /// Exact timer: expires at that nanosecond.
    #[doc(alias = "hrtimer")]
    Exact,
    /// Timer wheel: expires at a tick, rounded up as the kernel does.
    Wheel,
    /// Timer wheel; if the CPU is idle at the expiry, waits until something else wakes it.
    #[doc(alias = "TIMER_DEFERRABLE")]
    Deferrable,
}

/// Setting of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timer {
    /// Kind of the timer.
    pub kind: TimerKind,
    /// Time that it is set for, nanoseconds of [`bursar_machine::Machine::now_ns`]; it expires then or later.
    pub deadline_ns: u64,
}

/// Task, with the CPU that it may not leave, if there is one.
pub type BoundTask<'a> = (Option<u32>, Box<dyn FnOnce() + Send + 'a>);

/// Machine with ticks, timers of all kinds, and tasks that stay on their CPUs.
pub trait Timers: Tasks {
    /// Queue of work on CPUs.
    type Queue: WorkQueue;

    /// Ticks a second. Tick `j` is at `j` times [`tick_ns`] of [`bursar_machine::Machine::now_ns`].
    fn hz(&self) -> u32;

    /// Lets the calling task sleep until a timer expires. In contrast, [`bursar_machine::Machine::sleep_until`] is a thread's
    /// sleep and has its slack.
    fn sleep_on_timer(&self, timer: Timer);

    /// Runs tasks as [`Tasks::run`] does; some of them may not leave their CPUs.
    ///
    /// # Panics
    /// If there is no such CPU.
    fn run_bound<'scope>(&self, tasks: Vec<BoundTask<'scope>>);

    /// Returns whether a deferrable timer leaves an idle CPU asleep. Otherwise, where idleness cannot be seen, it is a
    /// plain timer of the wheel.
    fn defers(&self) -> bool;

    /// Makes an empty queue for each CPU.
    fn work_queue(&self) -> Self::Queue;

    /// Nanoseconds so far that the calling task could have run and had no CPU. 0 where the machine does not know.
    fn run_queue_ns(&self) -> u64;

    /// Times that the calling task has waited for locks of the machine so far.
    fn lock_waits(&self) -> LockWaits;

    /// Cache lines that went from one CPU to another so far; none where the machine does not know.
    fn line_transfers(&self) -> Option<u64> {
        None
    }
}

/// Work that is done later, each item on the CPU it was queued for (the kernel's per-CPU workqueue). Items mean nothing
/// to the queue.
#[doc(alias = "workqueue_struct")]
pub trait WorkQueue: Send + Sync {
    /// Queues an item for a CPU. The work starts when the timer has expired, at once if that time is past.
    #[doc(alias = "queue_delayed_work_on")]
    fn queue_on(&self, shard: Shard, timer: Timer, item: u64);

    /// Lets the workers end once they have done the work that is due.
    fn stop(&self);

    /// Tasks that work on the items, one for each CPU, for [`Timers::run_bound`]. Without them nothing happens.
    fn workers<'scope>(
        &'scope self,
        work: &'scope (dyn Fn(Shard, u64) + Sync),
    ) -> Vec<BoundTask<'scope>>;
}

/// Length of a tick, nanoseconds.
///
/// # Panics
/// If `hz` is 0.
pub fn tick_ns(hz: u32) -> u64 {
    1_000_000_000 / u64::from(hz)
}

/// Number of levels of the wheel with `HZ` above 100; one less otherwise.
const LEVELS: u32 = 9;
/// Factor by which each level is coarser than the one before, as a shift.
const LEVEL_SHIFT: u32 = 3;
/// Number of buckets of a level, less one.
const LEVEL_REACH: u64 = 63;

/// Granularity, in ticks, of the level that holds a timer set at `now` for `expires`.
pub fn wheel_granularity(now: Jiffies, expires: Jiffies) -> Jiffies {
    1 << (level(expires.saturating_sub(now)) * LEVEL_SHIFT)
}

fn level(delta: u64) -> u32 {
    (0..LEVELS - 1)
        .find(|level| delta < LEVEL_REACH << (level * LEVEL_SHIFT))
        .unwrap_or(LEVELS - 1)
}

/// Expiry of a timer that is put in the wheel at `now` for `expires`: never earlier, and later by at most one
/// granularity of its level.
#[doc(alias = "calc_index")]
pub fn wheel_expiry(now: Jiffies, expires: Jiffies) -> Jiffies {
    let shift = level(expires.saturating_sub(now)) * LEVEL_SHIFT;
    // One more even where the expiry lies on the grain, because part of the current tick is over already.
    ((expires.max(now) >> shift) + 1) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_begin_where_the_kernels_do() {
        for (delta, granularity) in [
            (0, 1),
            (62, 1),
            (63, 8),
            (503, 8),
            (504, 64),
            (4_031, 64),
            (4_032, 512),
        ] {
            assert_eq!(
                wheel_granularity(1_000, 1_000 + delta),
                granularity,
                "{delta}"
            );
        }
    }

    #[test]
    fn a_timer_is_late_by_at_most_one_granularity_and_never_early() {
        for now in [0, 1, 63, 64, 999, 123_456] {
            for delta in (0..6_000).chain([1 << 20, 1 << 27]) {
                let at = wheel_expiry(now, now + delta);
                let late = at - (now + delta);
                assert!(
                    late >= 1 && late <= wheel_granularity(now, now + delta),
                    "{now} {delta}"
                );
            }
        }
    }

    #[test]
    fn a_second_ahead_is_rounded_to_64_ticks_at_1000_hz_and_to_8_at_250() {
        assert_eq!(wheel_expiry(0, 1_000), 1_024);
        assert_eq!(wheel_expiry(0, 250), 256);
        assert_eq!(wheel_expiry(0, 100), 104);
    }
}
