//! Timers: ticks, the kernel's wheel, and exact ones; and work that waits for them.
//!
//! Timers of the wheel sit in levels of 64 buckets. Level `n` has a granularity of `8^n` ticks, and holds timers that are less
//! than `63 * 8^n` ticks away. An expiry is always rounded up to the granularity of its level, so a timer that is far away is
//! late, and many that were apart expire together. (`kernel/time/timer.c`, Linux 4.8 and later.)

use crate::{Shard, Tasks};

/// A moment, in ticks since the machine started (the kernel's `jiffies`).
pub type Jiffies = u64;

/// What wakes a task that waits for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimerKind {
    /// An exact timer: at that very nanosecond.
    #[doc(alias = "hrtimer")]
    Exact,
    /// The timer wheel: at a tick, rounded up as the kernel does.
    Wheel,
    /// The timer wheel; if the CPU is idle then, not before something else wakes it.
    #[doc(alias = "TIMER_DEFERRABLE")]
    Deferrable,
}

/// A timer to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timer {
    /// Which kind.
    pub kind: TimerKind,
    /// What it is set for, nanoseconds of [`crate::Machine::now_ns`]; it expires then or later.
    pub deadline_ns: u64,
}

/// A task, and the CPU that it may not leave, if there is one.
pub type BoundTask<'a> = (Option<u32>, Box<dyn FnOnce() + Send + 'a>);

/// A machine with ticks, timers of all kinds, and tasks that stay on their CPUs. Experiments and tests need one; the library
/// asks for moments and is called.
pub trait Timers: Tasks {
    /// See [`WorkQueue`].
    type Queue: WorkQueue;

    /// Ticks a second. Tick `j` is at `j` times [`tick_ns`] of [`crate::Machine::now_ns`].
    fn hz(&self) -> u32;

    /// Lets the calling task sleep until a timer expires. Unlike [`crate::Machine::sleep_until`], which is a thread's sleep and
    /// has its slack.
    fn sleep_on_timer(&self, timer: Timer);

    /// Runs tasks as [`Tasks::run`] does, some of which may not leave their CPUs.
    ///
    /// # Panics
    /// If there is no such CPU.
    fn run_bound<'scope>(&self, tasks: Vec<BoundTask<'scope>>);

    /// Whether a deferrable timer leaves an idle CPU asleep. Where nobody can tell that a CPU is idle it is a timer of the wheel.
    fn defers(&self) -> bool;

    /// An empty queue for each CPU.
    fn work_queue(&self) -> Self::Queue;

    /// How long the calling task could have run so far and had no CPU, nanoseconds. 0 where the machine does not say.
    fn run_queue_ns(&self) -> u64;

    /// How long the calling task has waited for locks of the machine so far.
    fn lock_waits(&self) -> LockWaits;
}

/// How long a task has waited for locks, nanoseconds, with the way of the lock's line to the CPU. Locks that were free when
/// they were wanted are not part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWaits {
    /// For [`crate::Machine::Spin`].
    pub spin_ns: u64,
    /// For [`crate::Machine::Mutex`].
    pub sleep_ns: u64,
}

impl LockWaits {
    /// For both.
    pub fn all_ns(self) -> u64 {
        self.spin_ns + self.sleep_ns
    }

    /// Since an earlier look.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            spin_ns: self.spin_ns - before.spin_ns,
            sleep_ns: self.sleep_ns - before.sleep_ns,
        }
    }
}

/// Work that is done later, each item on the CPU it was queued for (the kernel's per-CPU workqueue). What an item means is
/// its owner's affair.
#[doc(alias = "workqueue_struct")]
pub trait WorkQueue: Send + Sync {
    /// Queues an item for a CPU, to be worked on when its timer has expired; at once if that is over.
    #[doc(alias = "queue_delayed_work_on")]
    fn queue_on(&self, shard: Shard, timer: Timer, item: u64);

    /// Lets the workers end once they have done what is due.
    fn stop(&self);

    /// The tasks that work on the items, one a CPU, for [`Timers::run_bound`]. Without them nothing happens.
    fn workers<'scope>(
        &'scope self,
        work: &'scope (dyn Fn(Shard, u64) + Sync),
    ) -> Vec<BoundTask<'scope>>;
}

/// Nanoseconds of a tick.
///
/// # Panics
/// If there are no ticks.
pub fn tick_ns(hz: u32) -> u64 {
    1_000_000_000 / u64::from(hz)
}

/// Levels of the wheel with `HZ` above 100; one less otherwise.
const LEVELS: u32 = 9;
/// Each level is this much coarser, as a shift.
const LEVEL_SHIFT: u32 = 3;
/// Buckets of a level, less one.
const LEVEL_REACH: u64 = 63;

/// The granularity of the level that a timer is put in at `now` that is to expire at `expires`, ticks.
pub fn wheel_granularity(now: Jiffies, expires: Jiffies) -> Jiffies {
    1 << (level(expires.saturating_sub(now)) * LEVEL_SHIFT)
}

fn level(delta: u64) -> u32 {
    (0..LEVELS - 1)
        .find(|level| delta < LEVEL_REACH << (level * LEVEL_SHIFT))
        .unwrap_or(LEVELS - 1)
}

/// When a timer expires that is put in the wheel at `now` and is to expire at `expires`: never before, and later by up to
/// one granularity of its level.
#[doc(alias = "calc_index")]
pub fn wheel_expiry(now: Jiffies, expires: Jiffies) -> Jiffies {
    let shift = level(expires.saturating_sub(now)) * LEVEL_SHIFT;
    // One more also where the expiry is on the grain: part of the current tick is over already.
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
