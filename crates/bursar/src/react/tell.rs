//! The end of an operation that changed usage or limits, outside of all locks: it looks after the first return of a group that was
//! too large, which [`crate::limit`] leaves to an operation that may wait. Then it tells listeners.

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::core::Core;
use super::lifetime::{self, Referred};
use super::{fork, pressure, report, wait};
use crate::bytes::Bytes;
use crate::tree::printable;

/// Rounds of telling, if listeners change something each time.
const ROUNDS: usize = 16;
/// Groups looked up under one hold of the lock of the listened groups.
const GROUPS_PER_HOLD: usize = 64;

/// Tells listeners at a group and above it that its usage or limits have changed.
pub(crate) fn changed<M: Machine>(core: &Core<M>, index: u32) {
    settle_over_returns(core);
    // Full: pairs with `listen`, whose caller looks at the usage after it. Either we see the listener, or it sees the change.
    if core.counters.listeners.load(MemoryOrder::Full) == 0 {
        return;
    }
    if core.counters.untold.load(MemoryOrder::Relaxed) == 0 {
        core.tree().chain(index).for_each(|at| tell_at(core, at));
    } else if !all(core) {
        // No charge waits for the end of a listener.
        core.tree().chain(index).for_each(|at| wake_at(core, at));
    }
}

/// [`changed`] without waiting charges, unless an operation left telling them to the next.
pub(super) fn watchers<M: Machine>(core: &Core<M>, index: u32) {
    // Full: as above.
    if core.counters.listeners.load(MemoryOrder::Full) == 0 {
        return;
    }
    if core.counters.untold.load(MemoryOrder::Relaxed) != 0 {
        all(core);
        return;
    }
    for at in core.tree().chain(index) {
        // Full: pairs with `watcher_comes`.
        if core
            .counters
            .counter(at)
            .settings
            .watchers
            .load(MemoryOrder::Full)
            != 0
        {
            watchers_at(core, at);
        }
    }
}

fn wake_at<M: Machine>(core: &Core<M>, at: u32) {
    // Full: pairs with `enqueue`. Either we see the count, or its task looks at the usage after our change.
    let waiting = &core.counters.counter(at).settings.waiting;
    if waiting.load(MemoryOrder::Full) != 0 {
        wait::wake_next(core, at, None);
    }
}

fn tell_at<M: Machine>(core: &Core<M>, at: u32) {
    wake_at(core, at);
    // Full: pairs with `watcher_comes`, likewise.
    let settings = &core.counters.counter(at).settings;
    if settings.watchers.load(MemoryOrder::Full) != 0 {
        watchers_at(core, at);
    }
}

fn watchers_at<M: Machine>(core: &Core<M>, at: u32) {
    // First: callbacks may give memory back.
    report::look_at_peak(core, at);
    pressure::tell(core, at);
}

/// A task that tells all listeners, until dropped.
struct TellingAll<'a, M: Machine> {
    core: &'a Core<M>,
    task: u64,
}

impl<'a, M: Machine> TellingAll<'a, M> {
    /// `None` if this task does so already, which is noted, or if there is no memory to note it.
    fn begin(core: &'a Core<M>) -> Option<Self> {
        let task = core.tree().machine.task();
        let mut telling = core.telling.lock();
        if let Some((_, is_more)) = telling.iter_mut().find(|(other, _)| *other == task) {
            *is_more = true;
            return None;
        }
        if telling.try_reserve(1).is_err() {
            core.counters.mark_all_untold();
            return None;
        }
        telling.push((task, false));
        Some(Self { core, task })
    }

    /// Whether a listener has left more to tell since the last look.
    fn take_more(&self) -> bool {
        let mut telling = self.core.telling.lock();
        let own = telling.iter_mut().find(|(task, _)| *task == self.task);
        own.is_some_and(|(_, is_more)| std::mem::take(is_more))
    }
}

impl<M: Machine> Drop for TellingAll<'_, M> {
    fn drop(&mut self) {
        let mut telling = self.core.telling.lock();
        telling.retain(|&(task, _)| task != self.task);
    }
}

/// Tells all listeners of the memory. A listener's own changes are told after it, because calls inside of calls take stack: then this returns
/// `false`, and has told nobody.
pub(crate) fn all<M: Machine>(core: &Core<M>) -> bool {
    settle_over_returns(core);
    let Some(telling) = TellingAll::begin(core) else {
        return false;
    };
    for _ in 0..ROUNDS {
        // Full: a later change is noticed later.
        core.counters.untold.swap(0, MemoryOrder::Full);
        for_each_listening(core, |at| tell_at(core, at));
        if !telling.take_more() {
            return true;
        }
    }
    // Some listeners change something each time. The rest is left to the next operation.
    core.counters.mark_all_untold();
    true
}

/// Wakes all charges that wait in vain since a group's limit was lowered. They may be in queues above and below the group. [`changed`] comes before
/// this.
pub(super) fn in_vain<M: Machine>(core: &Core<M>, index: u32) {
    // Full: pairs with `listen`, as in `changed`.
    if core.counters.listeners.load(MemoryOrder::Full) == 0 {
        return;
    }
    if !wait::has_waiting(core, index) {
        return;
    }
    let wake = |at| {
        let settings = &core.counters.counter(at).settings;
        // Full: pairs with `enqueue`, whose task looks at the limits after it.
        if settings.waiting.load(MemoryOrder::Full) != 0 {
            wait::wake_in_vain_at(core, at, index);
        }
    };
    // Queries usually have none, and their limits are lowered often. A child that comes later sees the limit.
    let has_children = !core.tree().node(index).children.lock().by_name.is_empty();
    match has_children {
        true => for_each_listening(core, wake),
        false => core.tree().chain(index).for_each(wake),
    }
}

fn for_each_listening<M: Machine>(core: &Core<M>, mut then: impl FnMut(u32)) {
    let mut next = 0;
    loop {
        // Referred to under the lock: a listener keeps the group, but may stop when it is told.
        let some: Vec<Referred<'_, M>> = {
            let listening = core.listening.lock();
            let groups = listening.range(next..).take(GROUPS_PER_HOLD);
            groups
                .map(|(&at, _)| lifetime::referred(core, at))
                .collect()
        };
        let Some(last) = some.last() else { return };
        next = last.index + 1;
        some.iter().for_each(|at| then(at.index));
    }
}

/// Takes the stock of groups that returned too much, returns what was put off, and prints once for each memory which group it was.
pub(super) fn settle_over_returns<M: Machine>(core: &Core<M>) {
    if !core.counters.has_over_returned() {
        return;
    }
    for index in core.counters.take_over_returned() {
        take_stock(core, index);
        if core.counters.is_first_told() {
            print(core, index);
        }
        lifetime::forget(core, index);
    }
}

/// Takes back the stock of a group that returned too much. The caller is inside of no gate.
pub(super) fn take_stock<M: Machine>(core: &Core<M>, index: u32) {
    let _operation = fork::operation(core);
    core.counters.take_stock(index);
}

fn print<M: Machine>(core: &Core<M>, index: u32) {
    let own = core.counters.counter(index).events.own();
    core.tree().machine.warn(format_args!(
        "{} more returned than charged in {}. Its usage stops at 0. This is a bug of the code that returns bytes there; a build \
         with debug assertions panics at that call. Events::over_returned_bytes counts on.",
        Bytes(own.over_returned_bytes),
        printable(&lifetime::path(core, index)),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    /// The mark that is left after it was set to `untold` and `tell` has run.
    fn left(untold: u64, tell: impl FnOnce(&Core<bursar_machine::Host>)) -> u64 {
        let memory = Memory::host().unwrap();
        let root = memory.root();
        let core = root.core();
        crate::react::lifetime::listen(core, root.index());
        core.counters.untold.store(untold, MemoryOrder::Full);
        tell(core);
        core.counters.untold.load(MemoryOrder::Full)
    }

    #[test]
    fn telling_all_leaves_nothing_to_tell() {
        for untold in [0, 1] {
            assert_eq!(left(untold, |core| assert!(all(core))), 0);
        }
    }

    #[test]
    fn what_an_operation_left_untold_is_told_by_the_next() {
        assert_eq!(left(1, |core| watchers(core, crate::tree::ROOT)), 0);
        assert_eq!(left(1, |core| changed(core, crate::tree::ROOT)), 0);
    }
}
