//! A table from a consumer's number to the group that it is charged to. A lookup is a few loads, without a lock.
//!
//! DataFusion numbers consumers one after the other, for the whole process. So the numbers of one query are close to
//! each other, and the number itself is the hash. Each chunk of the table has [`PROBES`] places for a number. A number
//! that finds none of them free goes into the next chunk, which is four times as large. The first chunk is part of the
//! table, and so of the pool: an operator's group is two loads away.
//!
//! An entry is bound to one operator until the table is dropped, because readers hold no lock. A consumer that is gone
//! leaves its place to the next consumer of the same operator. So a pool that outlives many queries grows to the
//! consumers that live at a time, and no further. Where each consumer is an operator of its own, no place is used
//! again.
//!
//! Only the consumer itself looks for its number, between its registration and its end. So its entry exists and stays,
//! and an entry that changes meanwhile belongs to another consumer.

use std::array;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bursar::Group;

use crate::operators::Operator;
use crate::share::{FairShare, Held};
use crate::sort::{Part, Sort};

/// Places for one number in one chunk.
const PROBES: usize = 4;
/// Entries of the first chunk: the consumers of a small query.
const FIRST: usize = 32;
/// Further chunks, each four times as large as the one before: the last has two million entries, 256 MiB.
const MORE: usize = 8;
/// The key of an entry that no consumer has.
const FREE: usize = 0;
/// Part of the key of a consumer that belongs to a sort. [`Table::group_at_once`] does not find such a key, so that the sort takes
/// note of each request, and others need not look for a sort.
const OF_SORT: usize = 1 << (usize::BITS - 1);

/// A consumer's place in its pool. It has its own cache lines, because other threads write the entries of other
/// partitions.
#[repr(align(128))]
pub(crate) struct Entry {
    /// The consumer's number plus one, and [`OF_SORT`].
    key: AtomicUsize,
    account: OnceLock<Account>,
    /// Place in a share, for the spillers that use the entry, one after the other; empty if there is no share.
    held: OnceLock<Arc<Held>>,
    /// Whether the consumer can spill, was refused, and has returned nothing since.
    pub(crate) is_asked: AtomicBool,
    /// Whether it was refused once, and returned bytes then.
    pub(crate) has_spilled: AtomicBool,
    /// Whether the consumer's requests always succeed. Such a consumer never counts as a spiller, because it is never
    /// made to spill.
    is_never_refused: AtomicBool,
    /// The sort that the consumer belongs to.
    sort: Mutex<Option<(Arc<Sort>, Part)>>,
}

/// Operator that an entry is bound to.
struct Account {
    /// The operator's group, by value: each call waits for this load.
    group: Group,
    operator: Arc<Operator>,
}

// The size that the pool's documentation states.
const _: () = assert!(size_of::<Entry>() == 128);

impl Entry {
    fn new() -> Self {
        Self {
            key: AtomicUsize::new(FREE),
            account: OnceLock::new(),
            held: OnceLock::new(),
            is_asked: AtomicBool::new(false),
            has_spilled: AtomicBool::new(false),
            is_never_refused: AtomicBool::new(false),
            sort: Mutex::new(None),
        }
    }

    /// Returns the consumer's sort, and the consumer's part in it.
    #[inline]
    pub(crate) fn sort(&self) -> Option<(Arc<Sort>, Part)> {
        // Relaxed: the consumer of this entry was found by its key, and the mark came with it or before its first request.
        if self.key.load(Ordering::Relaxed) & OF_SORT == 0 {
            return None;
        }
        let sort = self.sort.lock();
        sort.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes the consumer a part of a sort, before its first request. Only under the lock of registration.
    pub(crate) fn join_sort(&self, sort: &Arc<Sort>, part: Part) {
        let place = self.sort.lock();
        *place.unwrap_or_else(PoisonError::into_inner) = Some((Arc::clone(sort), part));
        // Relaxed: the lock orders the rest; a request that comes later knows the consumer from the task that registered it.
        self.key.fetch_or(OF_SORT, Ordering::Relaxed);
    }

    /// Returns the group to charge, and the operator. Both exist, because the key was there.
    #[inline(always)]
    pub(crate) fn group(&self) -> Option<&Group> {
        self.account.get().map(|account| &account.group)
    }

    pub(crate) fn operator(&self) -> Option<&Arc<Operator>> {
        self.account.get().map(|account| &account.operator)
    }

    #[inline(always)]
    pub(crate) fn is_never_refused(&self) -> bool {
        // Relaxed: set before the key.
        self.is_never_refused.load(Ordering::Relaxed)
    }

    /// Gives the entry a place in the share if it has none yet. Only under the lock of registration.
    pub(crate) fn join(&self, share: &FairShare) {
        self.held.get_or_init(|| share.member());
    }

    #[inline(always)]
    pub(crate) fn held(&self) -> Option<&Held> {
        self.held.get().map(|held| &**held)
    }

    /// Gives the entry to a consumer if it is free and can be the operator's. Only under the lock of registration.
    fn claim(&self, key: usize, operator: &Arc<Operator>, is_never_refused: bool) -> bool {
        // Relaxed: keys change under the caller's lock.
        if self.key.load(Ordering::Relaxed) != FREE {
            return false;
        }
        let account = self.account.get_or_init(|| Account {
            group: operator.group().clone(),
            operator: Arc::clone(operator),
        });
        if !Arc::ptr_eq(&account.operator, operator) {
            return false;
        }
        self.is_asked.store(false, Ordering::Relaxed);
        self.has_spilled.store(false, Ordering::Relaxed);
        self.is_never_refused
            .store(is_never_refused, Ordering::Relaxed);
        // Release: pairs with the load in `Table::find`; a thread that finds the key finds the account.
        self.key.store(key, Ordering::Release);
        true
    }
}

/// The consumers of one pool.
pub(crate) struct Table {
    first: [Entry; FIRST],
    more: [OnceLock<Box<[Entry]>>; MORE],
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            first: array::from_fn(|_| Entry::new()),
            more: [const { OnceLock::new() }; MORE],
        }
    }

    /// Returns the entry of a consumer; `None` if it was never registered here, or found no place.
    pub(crate) fn find(&self, id: usize) -> Option<&Entry> {
        let entry = &self.first[id % FIRST];
        // Acquire: pairs with the store in `Entry::claim`.
        if entry.key.load(Ordering::Acquire) & !OF_SORT == id.wrapping_add(1) {
            return Some(entry);
        }
        self.find_elsewhere(id)
    }

    /// Returns [`Entry::group`] of a consumer if the first place has it, and it belongs to no sort.
    #[inline(always)]
    pub(crate) fn group_at_once(&self, id: usize) -> Option<&Group> {
        self.find_at_once(id)?.group()
    }

    /// Returns the entry of a consumer if the first place has it, and it belongs to no sort.
    #[inline(always)]
    pub(crate) fn find_at_once(&self, id: usize) -> Option<&Entry> {
        let entry = &self.first[id % FIRST];
        // Acquire: as above.
        (entry.key.load(Ordering::Acquire) == id.wrapping_add(1)).then_some(entry)
    }

    #[inline(never)]
    fn find_elsewhere(&self, id: usize) -> Option<&Entry> {
        let key = id.wrapping_add(1);
        let mut places = self.chunks().flat_map(|chunk| places(chunk, id));
        // Acquire: as above.
        places.find(|entry| entry.key.load(Ordering::Acquire) & !OF_SORT == key)
    }

    /// Puts a consumer into the table; `None` if there is no place or no memory for it. Only under the lock of
    /// registration.
    pub(crate) fn insert(
        &self,
        id: usize,
        operator: &Arc<Operator>,
        is_never_refused: bool,
    ) -> Option<&Entry> {
        let key = id.wrapping_add(1);
        if key == FREE || key & OF_SORT != 0 {
            // As many consumers there never are.
            return None;
        }
        let claimed = |chunk| {
            places(chunk, id).find(|entry: &&Entry| entry.claim(key, operator, is_never_refused))
        };
        if let Some(entry) = claimed(&self.first) {
            return Some(entry);
        }
        self.more.iter().enumerate().find_map(|(index, chunk)| {
            if chunk.get().is_none() {
                let count = FIRST << (2 * (index + 1));
                let mut entries = Vec::new();
                entries.try_reserve_exact(count).ok()?;
                entries.extend((0..count).map(|_| Entry::new()));
                // Nobody else does: the caller holds the lock.
                let _ = chunk.set(entries.into_boxed_slice());
            }
            claimed(chunk.get()?)
        })
    }

    /// Frees the entry for others. Only under the lock of registration.
    pub(crate) fn free(&self, entry: &Entry) {
        let sort = entry.sort.lock();
        *sort.unwrap_or_else(PoisonError::into_inner) = None;
        // Release: pairs with the loads of keys; what its consumer did comes before.
        entry.key.store(FREE, Ordering::Release);
    }

    fn chunks(&self) -> impl Iterator<Item = &[Entry]> {
        // A chunk that is not there was not needed, nor were those after it.
        let more = self.more.iter().map_while(OnceLock::get);
        std::iter::once(&self.first[..]).chain(more.map(|chunk| &chunk[..]))
    }
}

/// Returns the places of a number in a chunk.
fn places(chunk: &[Entry], id: usize) -> impl Iterator<Item = &Entry> {
    (0..PROBES).map(move |probe| &chunk[id.wrapping_add(probe) % chunk.len()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar::{Limits, Memory};

    fn operators() -> [Arc<Operator>; 2] {
        let memory = Memory::host().unwrap();
        ["one", "two"].map(|name| {
            let group = memory.root().child(name, Limits::none()).unwrap();
            Arc::new(Operator::new(name.to_owned(), group, true))
        })
    }

    fn operator_of(table: &Table, id: usize) -> Option<String> {
        let operator = table.find(id)?.operator()?;
        Some(operator.report().name)
    }

    fn live(table: &Table) -> usize {
        let entries = table.chunks().flatten();
        entries
            .filter(|entry| entry.key.load(Ordering::Relaxed) != FREE)
            .count()
    }

    #[test]
    fn each_finds_its_own() {
        let [one, two] = operators();
        let table = Table::new();
        // Close together, far apart, and all of them in one place.
        let ids = (0..300).chain((0..300).map(|n| 10_000 + n * FIRST));
        for id in ids.clone() {
            let operator = if id % 3 == 0 { &one } else { &two };
            assert!(table.insert(id, operator, false).is_some(), "{id}");
        }
        for id in ids.clone() {
            let expected = if id % 3 == 0 { "one" } else { "two" };
            assert_eq!(operator_of(&table, id).as_deref(), Some(expected), "{id}");
        }
        assert_eq!(live(&table), ids.count());
        assert!(table.find(5_000).is_none());
        assert!(table.insert(usize::MAX, &one, false).is_none());
    }

    #[test]
    fn a_place_knows_nothing_of_who_had_it() {
        let [one, _] = operators();
        let table = Table::new();
        let share = FairShare::new(one.group());
        for (round, is_never_refused) in [false, true, false].into_iter().enumerate() {
            let id = 5 + round * FIRST;
            let entry = table.insert(id, &one, is_never_refused).unwrap();
            assert!(std::ptr::eq(entry, &table.first[5]));
            assert_eq!(entry.is_never_refused(), is_never_refused);
            assert!(!entry.is_asked.swap(true, Ordering::Relaxed));
            entry.join(&share);
            table.free(entry);
        }
    }

    #[test]
    fn places_are_used_again() {
        let [one, two] = operators();
        let table = Table::new();
        for id in 0..100_000 {
            let operator = if id % 3 == 0 { &one } else { &two };
            table.insert(id, operator, false).unwrap();
            if let Some(old) = id.checked_sub(20) {
                table.free(table.find(old).unwrap());
                assert!(table.find(old).is_none());
            }
        }
        assert_eq!(live(&table), 20);
        assert!(
            table.more[2].get().is_none(),
            "it grew to more than 160 entries"
        );
    }
}
