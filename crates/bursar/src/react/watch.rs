//! The watchers of a group's pressure, and tasks that wait until it is empty.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use super::pressure_policy::{Level, Pressure};

/// The functions that users register.
pub(crate) type PressureFn = dyn Fn(Pressure) + Send + Sync;

pub(super) struct Subscriber {
    pub(super) number: u64,
    pub(super) call: Arc<PressureFn>,
    /// The level that it was last told; `None` if that is not known.
    pub(super) told: Option<Level>,
}

/// Condition that a task waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Awaited {
    /// Another level than this.
    Not(Level),
    /// The end of the group, and of all that is charged to it.
    Emptied,
}

/// A task that waits.
pub(super) struct Waiting {
    pub(super) awaited: Awaited,
    pub(super) waker: Waker,
}

/// The watchers of one group.
#[derive(Default)]
pub(crate) struct Watch {
    pub(super) level: Level,
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) waiting: BTreeMap<u64, Waiting>,
    pub(super) registered: u64,
    /// Whether a task calls subscribers. It looks again before it stops.
    pub(super) is_telling: bool,
}

impl Watch {
    pub(super) fn take_wakers(
        &mut self,
        level: Level,
        is_emptied: impl Fn() -> bool,
    ) -> Vec<Waker> {
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

    pub(super) fn untold(&self, level: Level) -> Vec<(u64, Arc<PressureFn>)> {
        let untold = self
            .subscribers
            .iter()
            .filter(|one| one.told != Some(level));
        untold.map(|one| (one.number, one.call.clone())).collect()
    }

    /// Notes that a subscriber is about to be told. Returns whether it still exists.
    pub(super) fn mark_told(&mut self, number: u64, level: Level) -> bool {
        let mut subscribers = self.subscribers.iter_mut();
        let found = subscribers.find(|one| one.number == number);
        found.map(|one| one.told = Some(level)).is_some()
    }
}
