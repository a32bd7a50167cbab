//! The pages of a tenant: in memory or not, their age, and the place of the others (`mm/vmscan.c`, `mm/workingset.c`).
//!
//! * A page begins on the inactive list, with its accessed bit set, as every fault sets it.
//! * *Second chance* (`folio_check_references`, since 5.9 the same for both kinds): a scan takes from the tail of the
//!   inactive list. A page accessed since the last look goes back to the head, marked as referenced. A page that was
//!   marked already moves to the active list; any other is evicted.
//! * *Deactivation* (`shrink_active_list`): from the tail of the active list to the head of the inactive one, accessed or not,
//!   the accessed bit cleared.
//! * *Refault* (`workingset_refault`): an evicted page leaves the age of its lists behind, which grows with each
//!   eviction and each activation. A page that comes back is active at once if the age has grown by no more than the
//!   number of pages that could have held it.
//!
//! Accessed bits are in the page table and are set without the lock, as the hardware does; all else is under the lock of the
//! tenant, which stands for `lruvec->lru_lock` (one a tenant where the kernel has one a group). The kernel adds faulted pages in
//! batches; here each takes the lock.

use std::sync::atomic::{AtomicU8, Ordering};

use bursar_kernel::stats::GroupIndex;

use super::balance::SWAP_CLUSTER_MAX;
use super::deltas::Deltas;
use super::lists::{Kind, List, Lists, PageId};
use crate::memcg_flush::statistics::Stat;

/// Place of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Place {
    /// Never touched, or given up.
    Nowhere,
    /// In memory, and not looked at since.
    Present,
    /// In memory, and accessed.
    Accessed,
    /// Anonymous and taken by reclaim, which has not written it yet: it can still come back at no cost (the swap
    /// cache).
    Leaving,
    /// Compressed in memory.
    Zswapped,
    /// On the device, after it was in memory. A page of a file that was never read is `Nowhere`.
    OnDevice,
}

impl Place {
    const ALL: [Self; 6] = [
        Self::Nowhere,
        Self::Present,
        Self::Accessed,
        Self::Leaving,
        Self::Zswapped,
        Self::OnDevice,
    ];

    pub(super) fn is_resident(self) -> bool {
        matches!(self, Self::Present | Self::Accessed)
    }

    /// Returns whether a page was in memory, and is no longer.
    pub(super) fn is_evicted(self) -> bool {
        matches!(self, Self::Zswapped | Self::OnDevice)
    }
}

/// Places of pages; every access looks here, without a lock.
///
/// Relaxed throughout: a place says nothing about other memory, and a task that acts on one takes the lock and looks
/// again.
#[derive(Debug)]
pub(super) struct PageTable(Vec<AtomicU8>);

impl PageTable {
    pub(super) fn new(pages: usize) -> Self {
        let nowhere = || AtomicU8::new(Place::Nowhere as u8);
        Self(std::iter::repeat_with(nowhere).take(pages).collect())
    }

    pub(super) fn place(&self, page: PageId) -> Place {
        Place::ALL[self.0[page as usize].load(Ordering::Relaxed) as usize]
    }

    /// Sets the accessed bit of a page in memory; else returns the place of the page.
    #[inline]
    pub(super) fn access(&self, page: PageId) -> Result<(), Place> {
        match self.place(page) {
            Place::Accessed => Ok(()),
            Place::Present => {
                // Lost against a reclaimer: it came just after this access.
                _ = self.change(page, Place::Present, Place::Accessed);
                Ok(())
            }
            place => Err(place),
        }
    }

    fn change(&self, page: PageId, from: Place, to: Place) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.0[page as usize]
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns whether a page in memory was accessed since the last call, and clears that. With the lock held.
    fn take_accessed(&self, page: PageId) -> bool {
        self.change(page, Place::Accessed, Place::Present)
    }

    /// With the lock held: all but [`PageTable::access`] hold it.
    fn set(&self, page: PageId, place: Place) {
        self.0[page as usize].store(place as u8, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Page<F> {
    frame: Option<F>,
    group: GroupIndex,
    evicted_at: u32,
    is_referenced: bool,
}

/// A page that a scan took out of memory. Its frame is given back outside of the lock.
#[derive(Debug)]
pub(super) struct Evicted<F> {
    pub(super) page: PageId,
    pub(super) kind: Kind,
    pub(super) group: GroupIndex,
    pub(super) frame: F,
    evicted_at: u32,
}

/// A page that a fault brought into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inserted {
    /// Place that it came from.
    pub(super) from: Place,
    /// Its group when it was last in memory.
    pub(super) last_group: GroupIndex,
    pub(super) is_active: bool,
}

/// The lists of a tenant. `F` is the frame of a page in memory.
#[derive(Debug)]
pub(super) struct Lruvec<F> {
    pub(super) lists: Lists,
    pages: Vec<Page<F>>,
    /// `nonresident_age`. It may wrap: distances do not come near half of it.
    age: u32,
    /// Cost of taking pages so far, by [`Kind`]; halved as it outgrows the lists (`lru_note_cost`).
    pub(super) cost: [u64; 2],
    /// Refaults that the statistics showed in the last round, by [`Kind`].
    pub(super) refaults_seen: [i64; 2],
}

/// The statistic of a list.
pub(super) fn gauge(list: List) -> Stat {
    match (list.kind, list.is_active) {
        (Kind::Anon, false) => Stat::InactiveAnon,
        (Kind::Anon, true) => Stat::ActiveAnon,
        (Kind::File, false) => Stat::InactiveFile,
        (Kind::File, true) => Stat::ActiveFile,
    }
}

/// The statistic of all resident pages of a kind.
pub(super) fn resident(kind: Kind) -> Stat {
    match kind {
        Kind::Anon => Stat::Anon,
        Kind::File => Stat::File,
    }
}

impl<F> Lruvec<F> {
    pub(super) fn new(pages: usize) -> Self {
        let page = || Page {
            frame: None,
            group: 0,
            evicted_at: 0,
            is_referenced: false,
        };
        Self {
            lists: Lists::new(pages),
            pages: std::iter::repeat_with(page).take(pages).collect(),
            age: 0,
            cost: [0; 2],
            refaults_seen: [0; 2],
        }
    }

    /// Brings a page into memory. Returns the frame if another task did so meanwhile.
    pub(super) fn insert(
        &mut self,
        table: &PageTable,
        page: PageId,
        kind: Kind,
        group: GroupIndex,
        frame: F,
    ) -> Result<Inserted, F> {
        let from = table.place(page);
        if from.is_resident() {
            return Err(frame);
        }
        let held = &mut self.pages[page as usize];
        let (last_group, evicted_at) = (held.group, held.evicted_at);
        *held = Page {
            frame: Some(frame),
            group,
            evicted_at: 0,
            is_referenced: false,
        };
        let distance = u64::from(self.age.wrapping_sub(evicted_at));
        let is_refault = from.is_evicted();
        let is_active = is_refault && distance <= self.workingset_size(kind);
        if is_refault {
            self.note_cost(kind, 1, 0);
        }
        self.age = self.age.wrapping_add(u32::from(is_active));
        self.lists.push(List { kind, is_active }, page);
        table.set(page, Place::Accessed);
        Ok(Inserted {
            from,
            last_group,
            is_active,
        })
    }

    /// Returns the number of pages that could have made room for a page of this kind, had it stayed: the active ones,
    /// and the inactive ones of the other kind.
    fn workingset_size(&self, kind: Kind) -> u64 {
        let others = List::ALL
            .into_iter()
            .filter(|list| list.is_active || list.kind != kind);
        others.map(|list| self.lists.len(list)).sum()
    }

    /// Records the cost of taking pages of a kind: writes and reads, and pages looked at in vain.
    pub(super) fn note_cost(&mut self, kind: Kind, transfers: u64, rotated: u64) {
        self.cost[kind as usize] += transfers * SWAP_CLUSTER_MAX + rotated;
        if self.cost[0] + self.cost[1] > self.lists.all() / 4 {
            self.cost = self.cost.map(|cost| cost / 2);
        }
    }

    /// Moves up to `pages` from the active to the inactive list; returns how many.
    pub(super) fn deactivate(
        &mut self,
        table: &PageTable,
        kind: Kind,
        pages: u64,
        deltas: &mut Deltas,
    ) -> u64 {
        let moved = pages.min(self.lists.len(List::active(kind)));
        for _ in 0..moved {
            let Some(page) = self.lists.pop(List::active(kind)) else {
                break;
            };
            table.take_accessed(page);
            self.lists.push(List::inactive(kind), page);
            let group = self.pages[page as usize].group;
            deltas.add(group, gauge(List::active(kind)), -1);
            deltas.add(group, gauge(List::inactive(kind)), 1);
        }
        moved
    }

    /// Looks at up to `pages` of the inactive list, takes out those that were not accessed, and returns how many it
    /// looked at.
    pub(super) fn scan(
        &mut self,
        table: &PageTable,
        kind: Kind,
        pages: u64,
        evicted: &mut Vec<Evicted<F>>,
        deltas: &mut Deltas,
    ) -> u64 {
        let inactive = List::inactive(kind);
        let scanned = pages.min(self.lists.len(inactive));
        for _ in 0..scanned {
            let Some(page) = self.lists.pop(inactive) else {
                break;
            };
            let held = &mut self.pages[page as usize];
            let group = held.group;
            deltas.add(group, Stat::Pgscan, 1);
            if table.take_accessed(page) {
                let is_active = std::mem::replace(&mut held.is_referenced, true);
                if is_active {
                    held.is_referenced = false;
                    self.age = self.age.wrapping_add(1);
                    deltas.add(group, gauge(inactive), -1);
                    deltas.add(group, gauge(List::active(kind)), 1);
                }
                self.lists.push(List { kind, is_active }, page);
                continue;
            }
            held.evicted_at = self.age;
            self.age = self.age.wrapping_add(1);
            let frame = held.frame.take().expect("a page on a list has a frame");
            table.set(
                page,
                match kind {
                    Kind::Anon => Place::Leaving,
                    Kind::File => Place::OnDevice,
                },
            );
            deltas.add(group, gauge(inactive), -1);
            deltas.add(group, resident(kind), -1);
            deltas.add(group, Stat::Pgsteal, 1);
            evicted.push(Evicted {
                page,
                kind,
                group,
                frame,
                evicted_at: held.evicted_at,
            });
        }
        scanned
    }

    /// Sets the place of an evicted anonymous page, unless it came back meanwhile; returns whether it was set.
    pub(super) fn leave(
        &mut self,
        table: &PageTable,
        page: PageId,
        evicted_at: u32,
        to: Place,
    ) -> bool {
        let has_left = table.place(page) == Place::Leaving
            && self.pages[page as usize].evicted_at == evicted_at;
        if has_left {
            table.set(page, to);
        }
        has_left
    }

    /// Gives up a page in memory, with its frame.
    pub(super) fn give_up(
        &mut self,
        table: &PageTable,
        page: PageId,
        deltas: &mut Deltas,
    ) -> Option<F> {
        let list = self.lists.remove(page)?;
        table.set(page, Place::Nowhere);
        let held = &mut self.pages[page as usize];
        deltas.add(held.group, gauge(list), -1);
        deltas.add(held.group, resident(list.kind), -1);
        held.frame.take()
    }

    /// Compares lists, frames and page table with each other; `count` is called for each page that statistics show,
    /// with its group.
    ///
    /// # Errors
    /// The first page that is wrong.
    pub(super) fn check(
        &self,
        table: &PageTable,
        mut count: impl FnMut(GroupIndex, Stat),
    ) -> Result<u64, String> {
        let mut lens = [0; 4];
        for (number, page) in (0..).zip(&self.pages) {
            let (place, list) = (table.place(number), self.lists.list_of(number));
            let is_right = place.is_resident() == list.is_some()
                && place.is_resident() == page.frame.is_some();
            if !is_right {
                let frame = page.frame.is_some();
                return Err(format!(
                    "page {number} is {place:?}, on {list:?}, has a frame: {frame}"
                ));
            }
            if place == Place::Leaving {
                return Err(format!("page {number} has left for nowhere"));
            }
            if place == Place::Zswapped {
                count(page.group, Stat::Zswapped);
            }
            if let Some(list) = list {
                lens[List::ALL.iter().position(|&one| one == list).unwrap_or(0)] += 1;
                count(page.group, gauge(list));
                count(page.group, resident(list.kind));
            }
        }
        let counted = List::ALL.map(|list| self.lists.len(list));
        if counted != lens {
            return Err(format!(
                "the lists hold {lens:?} pages and count {counted:?}"
            ));
        }
        Ok(lens.iter().sum())
    }
}

impl<F> Evicted<F> {
    /// Takes the frame, and leaves what [`Lruvec::leave`] needs.
    pub(super) fn into_parts(self) -> (F, PageId, u32) {
        (self.frame, self.page, self.evicted_at)
    }
}
