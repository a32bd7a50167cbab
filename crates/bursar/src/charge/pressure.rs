//! Pressure: how close a group is to its limits, and whether its tasks stall; telling watchers of it. Tasks that wait until a
//! removed group is empty are told in the same way.
//!
//! A level follows from the usage against the group's own limits, and from the share of time that tasks stalled in reclaim or
//! throttling. It is computed on request. For watchers it is computed after each slow operation that passes the group, and by
//! [`crate::Memory::tick`], because stall averages decay with time alone. Fast charges and returns leave the usage as it is,
//! because it counts stock. So a level is off by no more than the stock.
//!
//! Callbacks run without locks, one at a time for a group. A level that came and went while they ran may be skipped, but the
//! last one never is. A callback that panics is counted ([`Ledger::call_user`]), and the others are told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use bursar_machine::{AtomicWord, Lock, Machine, Order};

use super::Ledger;
use super::level::{Level, Pressure};
use super::stall::Stall;

/// The functions that users register.
pub(crate) type PressureFn = dyn Fn(Pressure) + Send + Sync;

struct Subscriber {
    number: u64,
    call: Arc<PressureFn>,
    /// The level that it was last told; `None` if that is not known.
    told: Option<Level>,
}

/// Condition that a task waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// Another level than this.
    Not(Level),
    /// [`Ledger::is_emptied`].
    Emptied,
}

/// A task that waits.
struct Waiting {
    awaited: Awaited,
    waker: Waker,
}

/// The watchers of one group.
#[derive(Default)]
pub(crate) struct Watch {
    level: Level,
    subscribers: Vec<Subscriber>,
    waiting: BTreeMap<u64, Waiting>,
    registered: u64,
    /// Whether a task calls subscribers. It looks again before it stops.
    is_telling: bool,
}

impl Watch {
    fn take_wakers(&mut self, level: Level, is_emptied: impl Fn() -> bool) -> Vec<Waker> {
        let is_done = |awaited| match awaited {
            Awaited::Not(from) => from != level,
            Awaited::Emptied => is_emptied(),
        };
        let done: Vec<u64> = self
            .waiting
            .iter()
            .filter_map(|(&number, one)| is_done(one.awaited).then_some(number))
            .collect();
        let taken = done.iter().filter_map(|number| self.waiting.remove(number));
        taken.map(|one| one.waker).collect()
    }

    /// Puts them right in a forked child. Wakers are left alone: their runtime's locks may stay taken.
    pub(super) fn forget_tasks(&mut self) {
        if std::mem::take(&mut self.is_telling) {
            // A task that is gone may have noted a level without telling it.
            for subscriber in &mut self.subscribers {
                subscriber.told = None;
            }
        }
        std::mem::forget(std::mem::take(&mut self.waiting));
    }

    fn untold(&self, level: Level) -> Vec<(u64, Arc<PressureFn>)> {
        let untold = self
            .subscribers
            .iter()
            .filter(|one| one.told != Some(level));
        untold.map(|one| (one.number, one.call.clone())).collect()
    }

    /// Notes that a subscriber is about to be told. Returns whether it still exists.
    fn mark_told(&mut self, number: u64, level: Level) -> bool {
        let mut subscribers = self.subscribers.iter_mut();
        let found = subscribers.find(|one| one.number == number);
        found.map(|one| one.told = Some(level)).is_some()
    }
}

/// Ends the telling after many rounds. There may be more to tell then.
struct Telling<'a, M: Machine> {
    ledger: &'a Ledger<M>,
    index: u32,
}

impl<M: Machine> Drop for Telling<'_, M> {
    fn drop(&mut self) {
        self.ledger.watch(self.index).lock().is_telling = false;
        // In this order: a task that found us telling left its level to us.
        self.ledger.notice_later();
    }
}

/// Rounds in which a task tells subscribers that change the level themselves.
const ROUNDS: usize = 16;

impl<M: Machine> Ledger<M> {
    fn watch(&self, index: u32) -> &M::Mutex<Watch> {
        &self.hooks(index).watch
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

    /// A group's pressure now.
    pub(crate) fn pressure(&self, index: u32) -> Pressure {
        let hooks = self.counter(index).hooks();
        let before = hooks.map_or(Level::None, |hooks| hooks.watch.lock().level);
        self.pressure_since(index, before)
    }

    fn watcher_comes(&self, index: u32) {
        self.listen(index);
        // Full, here and below: pairs with the look in `notice`.
        let watchers = &self.counter(index).settings.watchers;
        watchers.fetch_add(1, Order::Full);
    }

    fn watcher_goes(&self, index: u32) {
        let watchers = &self.counter(index).settings.watchers;
        watchers.fetch_sub(1, Order::Full);
        self.unlisten(index);
    }

    /// Registers a subscriber, which is told of each change of the level, from [`Level::None`] on. Returns a number for
    /// [`Ledger::unsubscribe`]. The caller refers to the group, and calls [`Ledger::tell`] afterwards.
    pub(crate) fn subscribe(&self, index: u32, call: Arc<PressureFn>) -> u64 {
        self.watcher_comes(index);
        let mut watch = self.watch(index).lock();
        watch.registered += 1;
        let number = watch.registered;
        watch.subscribers.push(Subscriber {
            number,
            call,
            told: Some(Level::None),
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
        self.watcher_goes(index);
        // Its drop runs the user's code.
        drop(removed);
    }

    /// Registers a task that waits for another level than `from`, or returns the level if it is another by now. `number` is
    /// kept from call to call.
    pub(crate) fn poll_pressure(
        &self,
        index: u32,
        from: Level,
        number: &mut Option<u64>,
        waker: &Waker,
    ) -> Option<Level> {
        self.wait_for(index, Awaited::Not(from), number, waker);
        // Registered first: a change that comes after this look wakes us.
        let level = self.tell(index);
        (level != from).then(|| {
            self.stop_waiting(index, number);
            level
        })
    }

    /// Registers a task that waits until a group is emptied, or says that it is. `number` is kept from call to call.
    pub(crate) fn poll_emptied(&self, index: u32, number: &mut Option<u64>, waker: &Waker) -> bool {
        self.wait_for(index, Awaited::Emptied, number, waker);
        // As above.
        let is_emptied = self.is_emptied(index);
        if is_emptied {
            self.stop_waiting(index, number);
        }
        is_emptied
    }

    /// Whether a group has ended, and no byte is charged to it or below. Then it holds no stock, and no charge is under way that
    /// began before.
    fn is_emptied(&self, index: u32) -> bool {
        // Full: after what was returned.
        self.tree.node(index).has_ended() && self.counter(index).usage.load(Order::Full) == 0
    }

    fn wait_for(&self, index: u32, awaited: Awaited, number: &mut Option<u64>, waker: &Waker) {
        let own = *number.get_or_insert_with(|| {
            self.watcher_comes(index);
            let mut watch = self.watch(index).lock();
            watch.registered += 1;
            watch.registered
        });
        let waker = waker.clone();
        let replaced = {
            let mut watch = self.watch(index).lock();
            watch.waiting.insert(own, Waiting { awaited, waker })
        };
        // Its drop is the runtime's code.
        drop(replaced);
    }

    /// Ends the wait of a task.
    pub(crate) fn stop_waiting(&self, index: u32, number: &mut Option<u64>) {
        let Some(number) = number.take() else { return };
        let removed = self.watch(index).lock().waiting.remove(&number);
        self.watcher_goes(index);
        drop(removed);
    }

    /// Computes the level, and wakes and calls watchers that know another one. Returns the level.
    pub(crate) fn tell(&self, index: u32) -> Level {
        let mut telling = None;
        let mut level = Level::None;
        for _ in 0..ROUNDS {
            let (pressure, wakers, calls) = {
                let mut watch = self.watch(index).lock();
                let pressure = self.pressure_since(index, watch.level);
                level = pressure.level;
                watch.level = level;
                let wakers = watch.take_wakers(level, || self.is_emptied(index));
                // A task that tells already looks again, under this lock, before it stops.
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
                    // Only if there is none: dropping it here would end the telling.
                    telling.get_or_insert_with(|| Telling {
                        ledger: self,
                        index,
                    });
                }
                (pressure, wakers, calls)
            };
            if calls.is_empty() {
                // Done under the lock already. Another task may be telling by now.
                if let Some(telling) = telling {
                    std::mem::forget(telling);
                }
                self.wake_all(index, wakers);
                return level;
            }
            self.wake_all(index, wakers);
            for (number, call) in calls {
                // One by one: each may end the registration of the next.
                if self.watch(index).lock().mark_told(number, level) {
                    self.call_user(index, || call(pressure));
                }
            }
        }
        // Some subscribers change the level each time they are told of it. The rest is left to the next operation.
        level
    }

    fn wake_all(&self, index: u32, wakers: Vec<Waker>) {
        for waker in wakers {
            self.call_user(index, || waker.wake());
        }
    }
}
