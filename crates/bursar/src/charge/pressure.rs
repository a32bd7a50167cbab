//! Pressure: how close a group is to its limits, and whether its tasks stall; who wants to know.
//!
//! A level follows from the usage against the group's own limits, and from the share of time that tasks stalled in reclaim
//! or throttling. It is worked out when somebody asks, and for those who registered after each slow operation that passes
//! the group and by [`crate::Memory::tick`] (stall averages decay with time alone). Fast charges and returns leave the usage
//! as it is, for it counts stock; so a level is off by no more than the stock.
//!
//! Callbacks run without locks, one at a time for a group; a level that came and went while they ran may be skipped, the
//! last one never is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use bursar_machine::{AtomicWord, Lock, Machine, Order};

use super::Ledger;
use super::limits::{Limit, Limits};
use super::stall::Stall;

/// How pressed a group is.
#[doc(alias = "vmpressure_levels")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// There is room.
    #[default]
    None,
    /// Caches should not grow.
    Low,
    /// Give back what is cheap to give back.
    High,
    /// Charges are about to be refused, or work hardly goes on.
    Critical,
}

/// What makes which level.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PressurePolicy {
    /// Usage in per cent of `max` from which on the level is low, high, critical. Above `high` it is high at least, and low
    /// from the first of these percentages of `high` on.
    pub usage_percent: [u8; 3],
    /// How far below the usage must fall for the level to go down, per cent of the limit.
    pub release_percent: u8,
    /// Share of the last ten seconds in which some task stalled, from which on the level is low, high, critical.
    pub stall_ratio: [f64; 3],
}

impl Default for PressurePolicy {
    /// 70, 85 and 95 per cent of `max`, released 5 lower; 5, 20 and 60 per cent of stall. Ours: the kernel has no such
    /// levels for usage, and leaves thresholds of stall to its users.
    fn default() -> Self {
        Self {
            usage_percent: [70, 85, 95],
            release_percent: 5,
            stall_ratio: [0.05, 0.2, 0.6],
        }
    }
}

const LEVELS: [Level; 3] = [Level::Low, Level::High, Level::Critical];

impl PressurePolicy {
    /// The level of a usage, if the level was `before`.
    pub(crate) fn of_usage(&self, usage: u64, limits: &Limits, before: Level) -> Level {
        let now = self.of_usage_released(usage, limits, 0);
        if now >= before {
            return now;
        }
        // Down only as far as it also would be a little higher.
        now.max(before.min(self.of_usage_released(usage, limits, self.release_percent)))
    }

    fn of_usage_released(&self, usage: u64, limits: &Limits, release_percent: u8) -> Level {
        let reaches = |percent: u8, limit: Limit| {
            let percent = percent.saturating_sub(release_percent);
            limit != Limit::MAX
                && u128::from(usage) * 100 >= u128::from(limit) * u128::from(percent)
        };
        let by_max = LEVELS.into_iter().zip(self.usage_percent);
        let by_max = by_max.filter(|&(_, percent)| reaches(percent, limits.max));
        let by_high = match limits.high {
            high if reaches(100, high) && (usage > high || release_percent > 0) => Level::High,
            high if reaches(self.usage_percent[0], high) => Level::Low,
            _ => Level::None,
        };
        by_max.map(|(level, _)| level).fold(by_high, Level::max)
    }

    pub(crate) fn of_stall(&self, stall: &Stall) -> Level {
        let reached = LEVELS.into_iter().zip(self.stall_ratio);
        reached
            .filter(|&(_, ratio)| stall.some.avg10 >= ratio)
            .map(|(level, _)| level)
            .fold(Level::None, Level::max)
    }
}

/// How pressed a group is, and by what.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pressure {
    /// The higher of the two below.
    pub level: Level,
    /// By the usage against the group's own `high` and `max`.
    pub by_usage: Level,
    /// By stalls.
    pub by_stall: Level,
    /// How long tasks of the group and below stalled in reclaim and throttling.
    pub stall: Stall,
}

/// What users register.
pub(crate) type PressureFn = dyn Fn(Pressure) + Send + Sync;

struct Subscriber {
    number: u64,
    call: Arc<PressureFn>,
    /// What it was last told.
    told: Level,
}

/// A task that waits for another level than `from`.
struct Waiting {
    from: Level,
    waker: Waker,
}

/// Who watches one group.
#[derive(Default)]
pub(crate) struct Watch {
    level: Level,
    subscribers: Vec<Subscriber>,
    waiting: BTreeMap<u64, Waiting>,
    registered: u64,
    /// Some task calls subscribers, and will look again before it stops.
    is_telling: bool,
}

impl Watch {
    fn take_wakers(&mut self, level: Level) -> Vec<Waker> {
        let done: Vec<u64> = self
            .waiting
            .iter()
            .filter_map(|(&number, one)| (one.from != level).then_some(number))
            .collect();
        let taken = done.iter().filter_map(|number| self.waiting.remove(number));
        taken.map(|one| one.waker).collect()
    }

    /// In a forked child. Wakers are left alone: what they belong to may be locked for ever.
    pub(super) fn forget_tasks(&mut self) {
        self.is_telling = false;
        std::mem::forget(std::mem::take(&mut self.waiting));
    }

    fn untold(&self, level: Level) -> Vec<(u64, Arc<PressureFn>)> {
        let untold = self.subscribers.iter().filter(|one| one.told != level);
        untold.map(|one| (one.number, one.call.clone())).collect()
    }

    /// Notes that a subscriber is about to be told; whether it is still there.
    fn mark_told(&mut self, number: u64, level: Level) -> bool {
        let mut subscribers = self.subscribers.iter_mut();
        let found = subscribers.find(|one| one.number == number);
        found.map(|one| one.told = level).is_some()
    }
}

/// Ends the telling when a subscriber panics, or after many rounds. Then there may be more to tell.
struct Telling<'a, M: Machine> {
    ledger: &'a Ledger<M>,
    index: u32,
}

impl<M: Machine> Drop for Telling<'_, M> {
    fn drop(&mut self) {
        self.ledger.watch(self.index).lock().is_telling = false;
        // In this order: who found us telling until now left it to us.
        self.ledger.notice_later();
    }
}

/// Rounds in which a task tells subscribers who change the level themselves.
const ROUNDS: usize = 16;

impl<M: Machine> Ledger<M> {
    fn watch(&self, index: u32) -> &M::Mutex<Watch> {
        &self.counter(index).hooks_or_new().watch
    }

    /// The stall times of a group.
    pub(crate) fn stall_times(&self, index: u32) -> Stall {
        let now_ns = self.tree.machine.now_ns();
        let Some(hooks) = self.counter(index).hooks() else {
            return Stall::default();
        };
        let mut stall = hooks.stall.lock();
        stall
            .as_mut()
            .map_or_else(Stall::default, |stall| stall.snapshot(now_ns))
    }

    fn pressure_since(&self, index: u32, before: Level) -> Pressure {
        let policy = &self.policies.pressure;
        let stall = self.stall_times(index);
        let usage = self.counter(index).usage.load(Order::Full);
        let by_usage = policy.of_usage(usage, &self.limits(index), before);
        let by_stall = policy.of_stall(&stall);
        Pressure {
            level: by_usage.max(by_stall),
            by_usage,
            by_stall,
            stall,
        }
    }

    /// How pressed a group is now.
    pub(crate) fn pressure(&self, index: u32) -> Pressure {
        let hooks = self.counter(index).hooks();
        let before = hooks.map_or(Level::None, |hooks| hooks.watch.lock().level);
        self.pressure_since(index, before)
    }

    /// Registers somebody who is told of each change of the level, from [`Level::None`] on; returns a number for
    /// [`Ledger::unsubscribe`]. The caller refers to the group, and calls [`Ledger::tell`] when it can undo this: who is told
    /// may panic.
    pub(crate) fn subscribe(&self, index: u32, call: Arc<PressureFn>) -> u64 {
        self.listen(index);
        self.counter(index)
            .settings
            .watchers
            .fetch_add(1, Order::Full);
        let mut watch = self.watch(index).lock();
        watch.registered += 1;
        let number = watch.registered;
        watch.subscribers.push(Subscriber {
            number,
            call,
            told: Level::None,
        });
        number
    }

    pub(crate) fn unsubscribe(&self, index: u32, number: u64) {
        let removed = {
            let mut watch = self.watch(index).lock();
            let mut subscribers = watch.subscribers.iter();
            let at = subscribers.position(|one| one.number == number);
            at.map(|at| watch.subscribers.remove(at))
        };
        self.counter(index)
            .settings
            .watchers
            .fetch_sub(1, Order::Full);
        self.unlisten(index);
        // Its drop is the user's code.
        drop(removed);
    }

    /// Registers a task that waits for another level than `from`, or says the level if it is another by now. `number` is
    /// kept from call to call.
    pub(crate) fn poll_pressure(
        &self,
        index: u32,
        from: Level,
        number: &mut Option<u64>,
        waker: &Waker,
    ) -> Option<Level> {
        let own = *number.get_or_insert_with(|| {
            self.listen(index);
            self.counter(index)
                .settings
                .watchers
                .fetch_add(1, Order::Full);
            let mut watch = self.watch(index).lock();
            watch.registered += 1;
            watch.registered
        });
        let waker = waker.clone();
        let replaced = {
            let mut watch = self.watch(index).lock();
            watch.waiting.insert(own, Waiting { from, waker })
        };
        drop(replaced);
        // Registered first: a change that comes after this look wakes us.
        let level = self.tell(index);
        (level != from).then(|| {
            self.forget_pressure(index, number);
            level
        })
    }

    /// The task no longer waits.
    pub(crate) fn forget_pressure(&self, index: u32, number: &mut Option<u64>) {
        let Some(number) = number.take() else { return };
        let removed = self.watch(index).lock().waiting.remove(&number);
        self.counter(index)
            .settings
            .watchers
            .fetch_sub(1, Order::Full);
        self.unlisten(index);
        drop(removed);
    }

    /// Works out the level, wakes and calls those who know another; returns the level.
    pub(crate) fn tell(&self, index: u32) -> Level {
        let mut telling = None;
        let mut level = Level::None;
        for _ in 0..ROUNDS {
            let (pressure, wakers, calls) = {
                let mut watch = self.watch(index).lock();
                let pressure = self.pressure_since(index, watch.level);
                level = pressure.level;
                watch.level = level;
                let wakers = watch.take_wakers(level);
                // Who tells already looks again, under this lock, before it stops.
                let is_other = watch.is_telling && telling.is_none();
                let calls = if is_other {
                    Vec::new()
                } else {
                    watch.untold(level)
                };
                if calls.is_empty() {
                    if telling.is_some() {
                        watch.is_telling = false;
                    }
                } else {
                    watch.is_telling = true;
                    // Only if there is none: one that is dropped here would end the telling.
                    telling.get_or_insert_with(|| Telling {
                        ledger: self,
                        index,
                    });
                }
                (pressure, wakers, calls)
            };
            wakers.into_iter().for_each(Waker::wake);
            if calls.is_empty() {
                // Done under the lock already; another may be telling by now.
                if let Some(telling) = telling {
                    std::mem::forget(telling);
                }
                return level;
            }
            for (number, call) in calls {
                // One by one: who comes after one that panics has not been told.
                if self.watch(index).lock().mark_told(number, level) {
                    call(pressure);
                }
            }
        }
        // Subscribers that change the level each time they are told of it: the rest is left to the next.
        level
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: PressurePolicy = PressurePolicy {
        usage_percent: [70, 85, 95],
        release_percent: 5,
        stall_ratio: [0.05, 0.2, 0.6],
    };

    #[test]
    fn levels_of_usage() {
        let max = Limits::max(1000);
        let both = Limits::max(1000).high(500);
        let cases = [
            (0, max, Level::None, Level::None),
            (699, max, Level::None, Level::None),
            (700, max, Level::None, Level::Low),
            (850, max, Level::None, Level::High),
            (949, max, Level::Low, Level::High),
            (950, max, Level::None, Level::Critical),
            (2000, max, Level::None, Level::Critical),
            // Down only 5 per cent lower.
            (949, max, Level::Critical, Level::Critical),
            (899, max, Level::Critical, Level::High),
            (799, max, Level::Critical, Level::Low),
            (660, max, Level::High, Level::Low),
            (649, max, Level::Critical, Level::None),
            // `high`: above it high, near it low.
            (349, both, Level::None, Level::None),
            (350, both, Level::None, Level::Low),
            (500, both, Level::None, Level::Low),
            (501, both, Level::None, Level::High),
            (480, both, Level::High, Level::High),
            (470, both, Level::High, Level::Low),
            (u64::MAX, Limits::none(), Level::Critical, Level::None),
            // No room at all.
            (0, Limits::max(0), Level::None, Level::Critical),
        ];
        for (usage, limits, before, expected) in cases {
            let level = POLICY.of_usage(usage, &limits, before);
            assert_eq!(level, expected, "{usage} of {limits:?} after {before:?}");
        }
    }

    #[test]
    fn levels_of_stall() {
        for (ratio, expected) in [
            (0.0, Level::None),
            (0.05, Level::Low),
            (0.3, Level::High),
            (1.0, Level::Critical),
        ] {
            let mut stall = Stall::default();
            stall.some.avg10 = ratio;
            assert_eq!(POLICY.of_stall(&stall), expected, "{ratio}");
        }
    }
}
