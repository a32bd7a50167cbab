//! Handles: numbers that name groups and registrations to C.
//!
//! A handle is a place in a table, and the place's generation. Releasing a handle changes the generation, so a handle that was released, or
//! was never given, is told from one that is in use. Places are never freed, and looking one up takes no lock. A place belongs to one
//! account for good: so a thread that uses a handle while another releases it reads no word that changes.
//!
//! The locks are the host's, so a fork waits until they are free.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use bursar::engine::Account;
use bursar::{Counter, Gauge, Group, Registration, Statistic};
use bursar_machine::Lock;
use bursar_machine::host::HostMutex;

/// Places of one piece of the table, and pieces: 16 million handles at a time.
const PIECE: usize = 1 << 12;
const PIECES: usize = 1 << 12;

/// A group's handle, `bursar_group` of the header. All zeros is no group.
///
/// A program in Rust makes one for an engine in C that is to charge a group of the program's, and releases it when the engine has ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHandle {
    bits: u64,
}

/// A registration's handle. All zeros is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistrationHandle {
    bits: u64,
}

impl GroupHandle {
    pub(crate) const NONE: Self = Self { bits: 0 };
}

/// The statistics of a memory, in the order in which the program declared them.
pub(crate) struct Schema {
    pub(crate) columns: Vec<Column>,
}

/// Schemas by the place and the number of the statistics that they are made of. They live as long as these: until the process ends.
static SCHEMAS: HostMutex<BTreeMap<(usize, usize), &'static Schema>> =
    HostMutex::of(BTreeMap::new());

impl Schema {
    pub(crate) fn of(declared: &'static [Statistic]) -> &'static Self {
        let columns = || {
            let column = |statistic: &Statistic| match statistic.is_counter() {
                true => Column::Counter(Counter::of(declared, statistic.name())),
                false => Column::Gauge(Gauge::of(declared, statistic.name())),
            };
            declared.iter().map(column).collect()
        };
        let place = (declared.as_ptr().addr(), declared.len());
        SCHEMAS
            .lock()
            .entry(place)
            .or_insert_with(|| Box::leak(Box::new(Self { columns: columns() })))
    }
}

pub(crate) enum Column {
    Counter(Counter),
    Gauge(Gauge),
}

pub(crate) struct Place {
    generation: AtomicU32,
    pub(crate) account: Account,
    pub(crate) schema: &'static Schema,
    /// `None` while the place is free.
    group: HostMutex<Option<Group>>,
}

type Piece = Box<[OnceLock<Place>; PIECE]>;

static TABLE: [OnceLock<Piece>; PIECES] = [const { OnceLock::new() }; PIECES];

/// Handles of equal keys may have one place: the memory and the group's number there, and the memory's statistics.
type Key = ((usize, u32), usize);

struct Free {
    /// Places that were never used begin here.
    next: usize,
    by_key: BTreeMap<Key, Vec<u32>>,
}

static FREE: HostMutex<Free> = HostMutex::of(Free {
    next: 0,
    by_key: BTreeMap::new(),
});

/// The number that a handle has for a place: not 0.
fn bits(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index + 1)
}

#[inline(always)]
fn place_at(index: u32) -> Option<&'static Place> {
    let index = index as usize;
    TABLE.get(index / PIECE)?.get()?[index % PIECE].get()
}

fn key(place: &Place) -> Key {
    (place.account.key(), std::ptr::from_ref(place.schema).addr())
}

impl GroupHandle {
    /// Makes a handle of a group; `None` if the process has 16,777,216 handles.
    pub fn of(group: &Group) -> Option<Self> {
        let schema = Schema::of(group.engine().memory().statistics());
        Self::new(group.clone(), schema)
    }

    pub(crate) fn new(group: Group, schema: &'static Schema) -> Option<Self> {
        let place = Place {
            generation: AtomicU32::new(0),
            account: group.engine().account(),
            schema,
            group: HostMutex::of(Some(group)),
        };
        let mut free = FREE.lock();
        let reused = free.by_key.get_mut(&key(&place)).and_then(Vec::pop);
        if let Some(index) = reused {
            let old = place_at(index).expect("it was used before");
            *old.group.lock() = place.group.lock().take();
            // Relaxed: changed under the lock of places, and when the handle is given to another thread, so is this.
            let generation = old.generation.load(Ordering::Relaxed);
            return Some(Self {
                bits: bits(index, generation),
            });
        }
        let index = free.next;
        let piece = TABLE.get(index / PIECE)?;
        let piece = piece.get_or_init(|| {
            let places: Box<[_]> = (0..PIECE).map(|_| OnceLock::new()).collect();
            places
                .try_into()
                .unwrap_or_else(|_| unreachable!("of that length"))
        });
        free.next += 1;
        let is_new = piece[index % PIECE].set(place).is_ok();
        assert!(is_new, "a place that was never used");
        Some(Self {
            bits: bits(index as u32, 0),
        })
    }

    /// The place of a handle that is in use.
    #[inline(always)]
    pub(crate) fn place(self) -> Option<&'static Place> {
        let place = place_at((self.bits as u32).wrapping_sub(1))?;
        // Relaxed: a handle that another thread releases at this moment may be found or not.
        (place.generation.load(Ordering::Relaxed) == (self.bits >> 32) as u32).then_some(place)
    }

    /// The group, and the statistics of its memory.
    pub(crate) fn group(self) -> Option<(Group, &'static Schema)> {
        let place = self.place()?;
        let group = place.group.lock().clone()?;
        // Once more: the place may have another handle by now.
        self.place()?;
        Some((group, place.schema))
    }

    /// Ends the handle; `false` if it was not in use.
    pub fn release(self) -> bool {
        let mut free = FREE.lock();
        let Some(place) = self.place() else {
            return false;
        };
        let group = place.group.lock().take();
        // Relaxed: under the lock of places.
        place.generation.fetch_add(1, Ordering::Relaxed);
        let index = (self.bits as u32).wrapping_sub(1);
        free.by_key.entry(key(place)).or_default().push(index);
        drop(free);
        // Without the lock, and outside of operations: the group may end here, and its registrations with it.
        drop(group);
        true
    }
}

/// Registrations by the numbers of their handles, which are never used again.
struct Registrations {
    last: u64,
    live: BTreeMap<u64, Registration>,
}

static REGISTRATIONS: HostMutex<Registrations> = HostMutex::of(Registrations {
    last: 0,
    live: BTreeMap::new(),
});

impl RegistrationHandle {
    pub(crate) fn new(registration: Registration) -> Self {
        let mut registrations = REGISTRATIONS.lock();
        registrations.last += 1;
        let bits = registrations.last;
        registrations.live.insert(bits, registration);
        Self { bits }
    }

    /// Ends the registration; `false` if it has ended.
    pub(crate) fn release(self) -> bool {
        let ended = REGISTRATIONS.lock().live.remove(&self.bits);
        // Without the lock: what the registration holds may call the program.
        ended.is_some()
    }
}

#[cfg(test)]
mod tests {
    use bursar::{Limits, Memory};

    use super::*;

    #[test]
    fn a_released_handle_is_none_though_its_place_is_used_again() {
        let memory = Memory::host().unwrap();
        let group = memory.root().child("a", Limits::none()).unwrap();
        let mut before: Vec<GroupHandle> = Vec::new();
        for _ in 0..100 {
            let handle = GroupHandle::of(&group).unwrap();
            assert!(!before.contains(&handle));
            assert_eq!(handle.group().unwrap().0, group);
            assert!(
                before
                    .iter()
                    .all(|old| old.place().is_none() && !old.release())
            );
            assert!(handle.release() && handle.group().is_none());
            before.push(handle);
        }
        let places: std::collections::BTreeSet<u32> =
            before.iter().map(|old| old.bits as u32).collect();
        assert_eq!(places.len(), 1, "one place, again and again");
        for bits in [0, 1 << 32, u64::from(u32::MAX), u64::MAX, 1 << 24 | 7] {
            assert!(GroupHandle { bits }.place().is_none(), "{bits:#x}");
        }
    }

    #[test]
    fn handles_of_one_group_are_apart() {
        let memory = Memory::host().unwrap();
        let [one, two] = [(); 2].map(|()| GroupHandle::of(&memory.root()).unwrap());
        assert!(one != two && one.release() && !one.release());
        assert_eq!(two.group().unwrap().0, memory.root());
        assert!(two.release());
    }
}
