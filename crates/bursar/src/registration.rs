//! Registrations of user code with a group: reclaimers, pressure callbacks, tasks at work.

use std::fmt;
use std::sync::Arc;

use bursar_machine::{Host, Machine};

use crate::group::Group;
use crate::react::{Pressure, ReclaimRequest, pressure, reclaim, stalling};

/// A registration with a group, which lasts until this value is dropped. It keeps the group like a handle.
#[must_use = "dropping a registration ends it"]
pub struct Registration<M: Machine = Host> {
    group: Group<M>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Reclaimer(u64),
    Watcher(u64),
    Work,
}

impl<M: Machine> fmt::Debug for Registration<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registration")
            .field(&self.kind)
            .field(&self.group)
            .finish()
    }
}

impl<M: Machine> Drop for Registration<M> {
    fn drop(&mut self) {
        let (core, index) = (self.group.core(), self.group.index());
        match self.kind {
            Kind::Reclaimer(number) => reclaim::remove(core, index, number),
            Kind::Watcher(number) => pressure::unsubscribe(core, index, number),
            Kind::Work => stalling::work_ends(core, index),
        }
    }
}

/// # Reclaim and pressure
impl<M: Machine> Group<M> {
    /// Registers a reclaimer: a function that frees memory of this group by spilling, evicting or cancelling work.
    ///
    /// It is called before this group's `max` or one above refuses a charge, when a `high` is exceeded, and by
    /// [`Group::reclaim`]. It returns the number of bytes that it freed. Before it returns, it must drop the
    /// [`crate::Charge`]s of these bytes. The number itself frees nothing: a number beyond the group's usage is cut to the usage, and the
    /// charge is tried again.
    ///
    /// Reclaimers of the group whose limit is in the way come first, then those of groups below it. Among these groups, the
    /// one that exceeds its protection most is first. Within a group the lowest `order` is first, then the earliest registration.
    /// One charge may call a reclaimer several times: for memory above the effective `low`, then for memory above
    /// the effective `min`, in up to 16 rounds as long as something is freed. Reclaimers of a removed group are not called.
    ///
    /// The function runs in the task whose charge needs the memory. Bursar holds no lock then, but that task may hold locks of
    /// its own. So the function should only try to take locks, and **never charge while you hold a lock that the reclaimer takes**.
    /// A cache that charges under its own lock is refused, because its reclaimer finds the lock taken and frees nothing;
    /// [`crate::Events::reclaim_failed`] counts these calls.
    ///
    /// Several tasks may run the function at once, each with its own target. It may charge, return and read bytes, and make and remove
    /// groups, also this one. Its own charges never start reclaim. If it needs memory to free memory, give it a
    /// [`crate::EmergencyReserve`]. If it hands work to other threads, their charges may start reclaim. If it panics, the charge that
    /// called it unwinds and charges nothing. Dropping the registration does not interrupt running calls.
    ///
    /// Dropping a charge may call wakers and pressure callbacks, so do not drop one while you hold a lock that these take. The example collects
    /// charges first, and drops them after the lock. A closure that owns its own [`Registration`], directly or not, is never
    /// freed; let it hold a [`std::sync::Weak`].
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    /// use bursar::{Charge, Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let cache = memory.root().child("cache", Limits::max(8 << 20))?;
    /// let pages: Arc<Mutex<Vec<Charge>>> = Arc::default();
    /// let evicted = pages.clone();
    /// let _reclaimer = cache.add_reclaimer(0, move |request| {
    ///     let (mut freed, mut out) = (0, Vec::new());
    ///     let Ok(mut pages) = evicted.try_lock() else { return 0 };
    ///     while freed < request.target && let Some(page) = pages.pop() {
    ///         freed += page.bytes();
    ///         out.push(page);
    ///     }
    ///     drop(pages);        // first the lock, then what it guarded
    ///     drop(out);
    ///     freed
    /// });
    /// for _ in 0..100 {
    ///     let page = cache.try_charge(1 << 20)?;      // never refused: it evicts
    ///     pages.lock().unwrap().push(page);
    /// }
    /// assert!(cache.events().reclaimed_bytes >= 92 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "shrinker")]
    pub fn add_reclaimer(
        &self,
        order: i32,
        reclaim: impl Fn(&ReclaimRequest) -> u64 + Send + Sync + 'static,
    ) -> Registration<M> {
        let group = self.clone();
        let number = reclaim::add(self.core(), self.index(), order, Arc::new(reclaim));
        Registration {
            group,
            kind: Kind::Reclaimer(number),
        }
    }

    /// Calls the reclaimers of the group and of groups below for `bytes`, as long as they free some, in at most 16 rounds.
    /// Returns the bytes that they claim to have freed.
    #[doc(alias = "memory.reclaim")]
    pub fn reclaim(&self, bytes: u64) -> u64 {
        reclaim::asked(self.core(), self.index(), bytes)
    }

    /// Calls `tell` at each change of the group's level of pressure. The first change is from [`crate::Level::None`], so the
    /// function is called at once if there is pressure now.
    ///
    /// Calls come one at a time, without locks, from the task whose charge, return or [`crate::Memory::tick`] found the change.
    /// Levels that follow each other quickly may be skipped, but never the last one.
    ///
    /// A panic of the function is caught and counted in [`crate::Events::panicked_callbacks`]. It does not reach the task that
    /// found the change, which may be dropping a [`crate::Charge`]. The registration stays, and other callbacks are called.
    pub fn on_pressure(&self, tell: impl Fn(Pressure) + Send + Sync + 'static) -> Registration<M> {
        let group = self.clone();
        let number = pressure::subscribe(self.core(), self.index(), Arc::new(tell));
        let registration = Registration {
            group,
            kind: Kind::Watcher(number),
        };
        pressure::tell(self.core(), self.index());
        registration
    }

    /// Declares that one more task works for the group, until the registration is dropped. With such declarations
    /// [`crate::Stall::full`] reports the time in which no task could work. Declare all tasks of a group or none.
    pub fn work(&self) -> Registration<M> {
        let group = self.clone();
        stalling::work_begins(self.core(), self.index());
        Registration {
            group,
            kind: Kind::Work,
        }
    }
}
