//! What users register with a group, until they drop it.

use std::fmt;
use std::sync::Arc;

use bursar_machine::{Host, Machine};

use crate::charge::{Pressure, ReclaimRequest};
use crate::group::Group;

/// Something that is registered with a group as long as this lives. It keeps the group like a handle.
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
        let (books, index) = (self.group.books(), self.group.index());
        match self.kind {
            Kind::Reclaimer(number) => books.remove_reclaimer(index, number),
            Kind::Watcher(number) => books.unsubscribe(index, number),
            Kind::Work => books.work_ends(index),
        }
    }
}

impl<M: Machine> Registration<M> {
    /// The group.
    pub fn group(&self) -> &Group<M> {
        &self.group
    }
}

/// # Reclaim and pressure
impl<M: Machine> Group<M> {
    /// Registers a function that frees memory of this group: spills, evicts, cancels. It is asked before a charge is
    /// refused by this group's `max` or one above it, when a `high` is exceeded, and by [`Group::reclaim`]. It returns
    /// how many bytes it freed; what it freed must have been returned (its [`crate::Charge`]s dropped) by then. What
    /// counts is what is freed, not what is said: a claim beyond what the group had is cut, and whether the charge fits
    /// is tried.
    ///
    /// First are asked those of the group whose limit is in the way, then those of the groups below it, the group that
    /// exceeds its protection most first. Among the reclaimers of one group the lowest `order` is first, and among
    /// equal ones who registered first. One charge may ask several times: for what is above the effective `low`, then
    /// for what is above the effective `min`, and that in up to 16 rounds as long as something is freed. Those of a
    /// removed group are not asked any more.
    ///
    /// It runs in the task whose charge needs the memory. Bursar holds no lock then, but that task may hold its own: so let the
    /// reclaimer only try to take locks, and **never charge while you hold a lock that the reclaimer takes**. A cache that charges
    /// under its own lock is refused, because its reclaimer finds the lock taken and frees nothing;
    /// [`crate::Events::reclaim_failed`] counts these calls. Several tasks may run it at once, each with a target of its own. It may
    /// charge, return, read, make and remove groups, this one too; what it charges never starts reclaim again, so for
    /// memory that it needs to free memory, give it a [`crate::EmergencyReserve`]. That goes by task: if it hands work
    /// to other threads, what these charge may start reclaim. If it panics, the charge that asked unwinds and charges
    /// nothing. Dropping the registration lets calls that are under way go on.
    ///
    /// Dropping a charge may call wakers and those who watch pressure, so drop none under a lock that these take:
    /// below, they are collected first, and dropped after it is given back. A closure that owns its own
    /// [`Registration`], or what owns it, never ends; let it hold a [`std::sync::Weak`].
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
        let number = self
            .books()
            .add_reclaimer(self.index(), order, Arc::new(reclaim));
        Registration {
            group,
            kind: Kind::Reclaimer(number),
        }
    }

    /// Asks the reclaimers of the group and below for `bytes`, as long as they free some, at most 16 times. Returns what they
    /// say they freed.
    #[doc(alias = "memory.reclaim")]
    pub fn reclaim(&self, bytes: u64) -> u64 {
        self.books().reclaim_asked(self.index(), bytes)
    }

    /// Calls `tell` at each change of the group's level of pressure, from [`crate::Level::None`] on: so at once, if there is
    /// pressure now. Calls come from the task whose charge, return or [`crate::Memory::tick`] found the change, without
    /// locks, one at a time; of levels that follow each other quickly some may be left out, but never the last.
    ///
    /// A call that panics is caught and counted in [`crate::Events::panicked_callbacks`]. The panic does not reach the task that
    /// found the change, which may be dropping a [`crate::Charge`]. The registration stays, and the others are told.
    pub fn on_pressure(&self, tell: impl Fn(Pressure) + Send + Sync + 'static) -> Registration<M> {
        let group = self.clone();
        let number = self.books().subscribe(self.index(), Arc::new(tell));
        let registration = Registration {
            group,
            kind: Kind::Watcher(number),
        };
        self.books().tell(self.index());
        registration
    }

    /// Declares that one more task works for the group, until the registration is dropped, so that stall time in which nobody
    /// works can be told from the rest ([`crate::Stall::full`]). Declare all tasks of a group or none.
    pub fn work(&self) -> Registration<M> {
        let group = self.clone();
        self.books().work_begins(self.index());
        Registration {
            group,
            kind: Kind::Work,
        }
    }
}
