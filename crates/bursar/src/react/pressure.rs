//! Pressure: how close a group is to its limits, and whether its tasks stall; telling watchers of it. Tasks that wait until a
//! removed group is empty are told in the same way. Tasks that stall or work are noted here.
//!
//! A level follows from the usage against the group's own limits, and from the share of time that tasks stalled in reclaim or
//! throttling. It is computed on request. For watchers it is computed after each slow operation that passes the group, and by
//! [`crate::Memory::tick`], because stall averages decay with time alone. Fast charges and returns leave the usage as it is,
//! because it counts stock. So a level is off by no more than the stock.
//!
//! Callbacks run without locks, one at a time for a group. A level that came and went while they ran may be skipped, but the
//! last one never is. A callback that panics is counted ([`Core::call_user`]), and the others are told.

use std::sync::Arc;
use std::task::Waker;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::core::Core;
use super::hooks::{Awaited, PressureFn, Subscriber, Waiting, Watch};
use super::lifetime;
use super::pressure_policy::{Level, Pressure};
use super::stall::{Stall, StallClock};
use crate::room;

/// Ends the telling after many rounds. There may be more to tell then.
struct Telling<'a, M: Machine> {
    core: &'a Core<M>,
    index: u32,
}

impl<M: Machine> Drop for Telling<'_, M> {
    fn drop(&mut self) {
        watch_of(self.core, self.index).lock().is_telling = false;
        // In this order: a task that found us telling left its level to us.
        self.core.counters.mark_all_untold();
    }
}

/// Rounds in which a task tells subscribers that change the level themselves.
const ROUNDS: usize = 16;

fn watch_of<M: Machine>(core: &Core<M>, index: u32) -> &M::Mutex<Watch> {
    &lifetime::hooks(core, index).watch
}

impl Watch {
    /// Those for which there is no memory are woken by a later operation.
    fn take_wakers(&mut self, level: Level, is_emptied: impl Fn() -> bool) -> Vec<Waker> {
        let is_done = |awaited| match awaited {
            Awaited::Not(from) => from != level,
            Awaited::Emptied => is_emptied(),
        };
        let waiting = self.waiting.iter();
        let done = waiting.filter_map(|(&number, one)| is_done(one.awaited).then_some(number));
        let done = room::as_many_as_fit(done);
        let mut taken = Vec::new();
        if taken.try_reserve_exact(done.len()).is_err() {
            return taken;
        }
        let removed = done.iter().filter_map(|number| self.waiting.remove(number));
        taken.extend(removed.map(|one| one.waker));
        taken
    }

    /// Those for which there is no memory are told by a later operation.
    fn untold(&self, level: Level) -> Vec<(u64, Arc<PressureFn>)> {
        let untold = self
            .subscribers
            .iter()
            .filter(|one| one.told != Some(level));
        room::as_many_as_fit(untold.map(|one| (one.number, one.call.clone())))
    }

    /// Notes that a subscriber is about to be told. Returns whether it still exists.
    fn mark_told(&mut self, number: u64, level: Level) -> bool {
        let mut subscribers = self.subscribers.iter_mut();
        let found = subscribers.find(|one| one.number == number);
        found.map(|one| one.told = Some(level)).is_some()
    }
}

/// The stall times of a group.
pub(crate) fn stall_times<M: Machine>(core: &Core<M>, index: u32) -> Stall {
    let now_ns = core.tree().machine.now_ns();
    let Some(hooks) = core.hooks(index) else {
        return Stall::default();
    };
    let mut stall = hooks.stall.lock();
    stall
        .as_mut()
        .map_or_else(Stall::default, |stall| stall.snapshot(now_ns))
}

fn since<M: Machine>(core: &Core<M>, index: u32, before: Level) -> Pressure {
    let policy = &core.policies.pressure;
    let stall = stall_times(core, index);
    let usage = core.counters.usage_now(index);
    let by_usage = policy.of_usage(usage, &core.counters.limits(index), before);
    let by_stall = policy.of_stall(&stall);
    Pressure {
        level: by_usage.max(by_stall),
        by_usage,
        by_stall,
        stall,
    }
}

/// A group's pressure now.
pub(crate) fn now<M: Machine>(core: &Core<M>, index: u32) -> Pressure {
    let hooks = core.hooks(index);
    let before = hooks.map_or(Level::None, |hooks| hooks.watch.lock().level);
    since(core, index, before)
}

pub(super) fn watcher_comes<M: Machine>(core: &Core<M>, index: u32) {
    lifetime::listen(core, index);
    // Full, here and below: pairs with the look in `notice`.
    let watchers = &core.counters.counter(index).settings.watchers;
    watchers.fetch_add(1, MemoryOrder::Full);
}

pub(super) fn watcher_goes<M: Machine>(core: &Core<M>, index: u32) {
    let watchers = &core.counters.counter(index).settings.watchers;
    watchers.fetch_sub(1, MemoryOrder::Full);
    lifetime::unlisten(core, index);
}

/// Registers a subscriber, which is told of each change of the level, from [`Level::None`] on. Returns a number for
/// [`unsubscribe`]. The caller refers to the group, and calls [`tell`] afterwards.
pub(crate) fn subscribe<M: Machine>(core: &Core<M>, index: u32, call: Arc<PressureFn>) -> u64 {
    watcher_comes(core, index);
    let mut watch = watch_of(core, index).lock();
    watch.registered += 1;
    let number = watch.registered;
    watch.subscribers.push(Subscriber {
        number,
        call,
        told: Some(Level::None),
    });
    number
}

pub(crate) fn unsubscribe<M: Machine>(core: &Core<M>, index: u32, number: u64) {
    let removed = {
        let mut watch = watch_of(core, index).lock();
        let mut subscribers = watch.subscribers.iter();
        let at = subscribers.position(|one| one.number == number);
        at.map(|at| watch.subscribers.remove(at))
    };
    watcher_goes(core, index);
    // Its drop runs the user's code.
    drop(removed);
}

/// Registers a task that waits for another level than `from`, or returns the level if it is another by now. `number` is
/// kept from call to call.
pub(crate) fn poll_pressure<M: Machine>(
    core: &Core<M>,
    index: u32,
    from: Level,
    number: &mut Option<u64>,
    waker: &Waker,
) -> Option<Level> {
    wait_for(core, index, Awaited::Not(from), number, waker);
    // Registered first: a change that comes after this look wakes us.
    let level = tell(core, index);
    (level != from).then(|| {
        stop_waiting(core, index, number);
        level
    })
}

/// Registers a task that waits until a group is emptied, or says that it is. `number` is kept from call to call.
pub(crate) fn poll_emptied<M: Machine>(
    core: &Core<M>,
    index: u32,
    number: &mut Option<u64>,
    waker: &Waker,
) -> bool {
    wait_for(core, index, Awaited::Emptied, number, waker);
    // As above.
    let is_emptied = is_emptied(core, index);
    if is_emptied {
        stop_waiting(core, index, number);
    }
    is_emptied
}

/// Whether a group has ended, and no byte is charged to it or below. Then it holds no stock, and no charge is under way that
/// began before. The groups above have the bytes back, too.
fn is_emptied<M: Machine>(core: &Core<M>, index: u32) -> bool {
    // Full: after what was returned.
    let is_returned =
        core.tree().node(index).has_ended() && core.counters.counter(index).reserved() == 0;
    if is_returned {
        lifetime::wait_for_returns(core, index);
    }
    is_returned
}

fn wait_for<M: Machine>(
    core: &Core<M>,
    index: u32,
    awaited: Awaited,
    number: &mut Option<u64>,
    waker: &Waker,
) {
    let own = *number.get_or_insert_with(|| {
        watcher_comes(core, index);
        let mut watch = watch_of(core, index).lock();
        watch.registered += 1;
        watch.registered
    });
    let waker = waker.clone();
    let replaced = {
        let mut watch = watch_of(core, index).lock();
        watch.waiting.insert(own, Waiting { awaited, waker })
    };
    // Its drop is the runtime's code.
    drop(replaced);
}

/// Ends the wait of a task.
pub(crate) fn stop_waiting<M: Machine>(core: &Core<M>, index: u32, number: &mut Option<u64>) {
    let Some(number) = number.take() else { return };
    let removed = watch_of(core, index).lock().waiting.remove(&number);
    watcher_goes(core, index);
    drop(removed);
}

/// Computes the level, and wakes and calls watchers that know another one. Returns the level.
pub(crate) fn tell<M: Machine>(core: &Core<M>, index: u32) -> Level {
    let mut telling = None;
    let mut level = Level::None;
    for _ in 0..ROUNDS {
        let (pressure, wakers, calls) = {
            let mut watch = watch_of(core, index).lock();
            let pressure = since(core, index, watch.level);
            level = pressure.level;
            watch.level = level;
            let wakers = watch.take_wakers(level, || is_emptied(core, index));
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
                telling.get_or_insert_with(|| Telling { core, index });
            }
            (pressure, wakers, calls)
        };
        if calls.is_empty() {
            // Done under the lock already. Another task may be telling by now.
            if let Some(telling) = telling {
                std::mem::forget(telling);
            }
            wake_all(core, index, wakers);
            return level;
        }
        wake_all(core, index, wakers);
        for (number, call) in calls {
            // One by one: each may end the registration of the next.
            if watch_of(core, index).lock().mark_told(number, level) {
                core.call_user(index, || call(pressure));
            }
            // It may have ended its own registration, so that this is its last owner.
            core.call_user(index, move || drop(call));
        }
    }
    // Some subscribers change the level each time they are told of it. The rest is left to the next operation.
    level
}

fn wake_all<M: Machine>(core: &Core<M>, index: u32, wakers: Vec<Waker>) {
    for waker in wakers {
        core.call_user(index, || waker.wake());
    }
}

/// A task that waits for memory, until dropped. The caller's hold on the group outlives it.
pub(super) struct Stalled<'a, M: Machine> {
    core: &'a Core<M>,
    index: u32,
    forks: u64,
}

impl<M: Machine> Drop for Stalled<'_, M> {
    fn drop(&mut self) {
        // A forked child has forgotten it.
        if self.forks == self.core.tree().machine.forks() {
            clock(self.core, self.index, StallClock::stall_ends);
        }
    }
}

/// Begins a stall of the calling task.
pub(super) fn stall<M: Machine>(core: &Core<M>, index: u32) -> Stalled<'_, M> {
    clock(core, index, StallClock::stall_begins);
    Stalled {
        core,
        index,
        forks: core.tree().machine.forks(),
    }
}

/// Begins the work of a task for the group. The caller refers to the group.
pub(crate) fn work_begins<M: Machine>(core: &Core<M>, index: u32) {
    clock(core, index, StallClock::work_begins);
}

pub(crate) fn work_ends<M: Machine>(core: &Core<M>, index: u32) {
    clock(core, index, StallClock::work_ends);
}

fn clock<M: Machine>(core: &Core<M>, index: u32, happens: fn(&mut StallClock, u64)) {
    for at in core.tree().chain(index) {
        let mut stall = lifetime::hooks(core, at).stall.lock();
        // Under the lock, so that the clock gets its events in order.
        let now_ns = core.tree().machine.now_ns();
        happens(stall.get_or_insert_with(|| StallClock::new(now_ns)), now_ns);
    }
}
