//! Handles: numbers that name groups, registrations and grants to C.
//!
//! A handle is a place in a table, and the place's generation. Releasing a handle changes the generation, so a handle that was released, or
//! was never given, is told from one that is in use. Looking one up takes no lock. The next handle of any group uses the place again. So a
//! place has two words that change, its generation and a pointer to the account, and accounts are never freed. A thread that uses a handle
//! while another releases it has one account or the other. A place whose generations are used up is not used again.
//!
//! The locks are the host's, so a fork waits until they are free.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

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
                true => Column::Counter(Counter::from_name(declared, statistic.name())),
                false => Column::Gauge(Gauge::from_name(declared, statistic.name())),
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

/// A group as handles name it. There is one for each number of a group in a memory, which later groups have again; it lives until the process
/// ends.
pub(crate) struct Named {
    pub(crate) account: Account,
    pub(crate) schema: &'static Schema,
}

struct Place {
    generation: AtomicU32,
    /// A `&'static Named`.
    named: AtomicPtr<Named>,
    /// `None` while the place is free.
    group: HostMutex<Option<Group>>,
}

type Piece = Box<[OnceLock<Place>; PIECE]>;

static TABLE: [OnceLock<Piece>; PIECES] = [const { OnceLock::new() }; PIECES];

/// Generation of a place that is not used again.
const USED_UP: u32 = u32::MAX;

/// The memory and the group's number there, and the memory's statistics.
type Key = ((usize, u32), usize);

struct Free {
    /// Places that were never used begin here.
    next: usize,
    places: Vec<u32>,
    named: BTreeMap<Key, &'static Named>,
}

static FREE: HostMutex<Free> = HostMutex::of(Free {
    next: 0,
    places: Vec::new(),
    named: BTreeMap::new(),
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

impl Free {
    fn named(&mut self, group: &Group, schema: &'static Schema) -> &'static Named {
        let account = group.engine().account();
        let key = (account.key(), std::ptr::from_ref(schema).addr());
        let make = || Box::leak(Box::new(Named { account, schema }));
        self.named.entry(key).or_insert_with(|| make())
    }

    /// A place that no handle has; `None` if there is none left.
    fn place(&mut self, named: &'static Named) -> Option<u32> {
        if let Some(index) = self.places.pop() {
            return Some(index);
        }
        let index = self.next;
        let piece = TABLE.get(index / PIECE)?;
        let piece = piece.get_or_init(|| {
            let places: Box<[_]> = (0..PIECE).map(|_| OnceLock::new()).collect();
            places
                .try_into()
                .unwrap_or_else(|_| unreachable!("of that length"))
        });
        self.next += 1;
        let place = Place {
            generation: AtomicU32::new(0),
            named: AtomicPtr::new(std::ptr::from_ref(named).cast_mut()),
            group: HostMutex::of(None),
        };
        let is_new = piece[index % PIECE].set(place).is_ok();
        assert!(is_new, "a place that was never used");
        Some(index as u32)
    }
}

impl GroupHandle {
    /// Makes a handle of a group; `None` if the process has 16,777,216 handles.
    pub fn of(group: &Group) -> Option<Self> {
        let schema = Schema::of(group.memory().statistics());
        Self::new(group.clone(), schema)
    }

    pub(crate) fn new(group: Group, schema: &'static Schema) -> Option<Self> {
        let mut free = FREE.lock();
        let named = free.named(&group, schema);
        let index = free.place(named)?;
        let place = place_at(index).expect("it was made");
        let pointer = std::ptr::from_ref(named).cast_mut();
        // Release: pairs with the load in `named`, by a thread that has a handle of the place that was released meanwhile.
        place.named.store(pointer, Ordering::Release);
        *place.group.lock() = Some(group);
        // Relaxed: changed under the lock of places, and when the handle is given to another thread, so is this.
        let generation = place.generation.load(Ordering::Relaxed);
        Some(Self {
            bits: bits(index, generation),
        })
    }

    /// The place of a handle that is in use.
    #[inline(always)]
    fn place(self) -> Option<&'static Place> {
        let place = place_at((self.bits as u32).wrapping_sub(1))?;
        // Relaxed: a handle that another thread releases at this moment may be found or not.
        (place.generation.load(Ordering::Relaxed) == (self.bits >> 32) as u32).then_some(place)
    }

    /// The group's account, and the statistics of its memory.
    #[inline(always)]
    pub(crate) fn named(self) -> Option<&'static Named> {
        Some(self.place()?.named())
    }

    /// The group, and the statistics of its memory.
    pub(crate) fn group(self) -> Option<(Group, &'static Schema)> {
        let place = self.place()?;
        let schema = place.named().schema;
        let group = place.group.lock().clone()?;
        // Once more: the place may have another handle by now.
        self.place()?;
        Some((group, schema))
    }

    /// Ends the handle; `false` if it was not in use.
    pub fn release(self) -> bool {
        let mut free = FREE.lock();
        let Some(place) = self.place() else {
            return false;
        };
        // A number that the program made up.
        let Some(group) = place.group.lock().take() else {
            return false;
        };
        // Relaxed: under the lock of places.
        let before = place.generation.fetch_add(1, Ordering::Relaxed);
        if before + 1 < USED_UP {
            free.places.push((self.bits as u32).wrapping_sub(1));
        }
        drop(free);
        // Without the lock, and outside of operations: the group may end here, and its registrations with it.
        drop(group);
        true
    }
}

impl Place {
    #[inline(always)]
    fn named(&self) -> &'static Named {
        // Acquire: pairs with the store in `GroupHandle::new`, if the handle is released at this moment.
        let named = self.named.load(Ordering::Acquire);
        // SAFETY: each pointer that is stored came from a `&'static Named`.
        unsafe { &*named }
    }
}

/// Values by the numbers of their handles, which are never used again.
pub(crate) struct Numbered<T>(HostMutex<(u64, BTreeMap<u64, T>)>);

impl<T: Send + 'static> Numbered<T> {
    pub(crate) const fn new() -> Self {
        Self(HostMutex::of((0, BTreeMap::new())))
    }

    pub(crate) fn add(&self, value: T) -> u64 {
        let (last, live) = &mut *self.0.lock();
        *last += 1;
        live.insert(*last, value);
        *last
    }

    pub(crate) fn get(&self, bits: u64) -> Option<T>
    where
        T: Clone,
    {
        self.0.lock().1.get(&bits).cloned()
    }

    /// Ends a handle; `None` if it has ended. The caller drops the value without the lock: it may call the program.
    pub(crate) fn take(&self, bits: u64) -> Option<T> {
        self.0.lock().1.remove(&bits)
    }
}

static REGISTRATIONS: Numbered<Registration> = Numbered::new();

impl RegistrationHandle {
    pub(crate) fn new(registration: Registration) -> Self {
        Self {
            bits: REGISTRATIONS.add(registration),
        }
    }

    /// Ends the registration; `false` if it has ended.
    pub(crate) fn release(self) -> bool {
        REGISTRATIONS.take(self.bits).is_some()
    }
}

#[cfg(test)]
mod tests {
    use bursar::{Limits, Memory};

    use super::*;

    /// Tests count places, so one at a time takes some.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn a_released_handle_is_none_though_its_place_is_used_again() {
        let _one = ONE.lock().unwrap();
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
        assert_eq!(places(&before), 1, "one place, again and again");
        for bits in [0, 1 << 32, u64::from(u32::MAX), u64::MAX, 1 << 24 | 7] {
            assert!(GroupHandle { bits }.place().is_none(), "{bits:#x}");
        }
    }

    fn places(handles: &[GroupHandle]) -> usize {
        let places = handles.iter().map(|handle| handle.bits as u32);
        places.collect::<std::collections::BTreeSet<u32>>().len()
    }

    /// As many places as handles at a time, whatever groups they were of.
    #[test]
    fn a_place_is_used_again_by_another_group() {
        let _one = ONE.lock().unwrap();
        let memory = Memory::host().unwrap();
        let child = |number: u32| memory.root().child(format!("{number}"), Limits::none());
        let groups: Vec<_> = (0..50).map(|number| child(number).unwrap()).collect();
        let mut all = Vec::new();
        for group in &groups {
            let some: Vec<_> = (0..40).map(|_| GroupHandle::of(group).unwrap()).collect();
            for handle in &some {
                assert_eq!(&handle.group().unwrap().0, group);
                let account = handle.named().unwrap().account;
                assert_eq!(account, group.engine().account());
            }
            assert!(some.iter().all(|handle| handle.release()));
            all.extend(some);
        }
        assert_eq!(places(&all), 40);
        let is_none = |old: &GroupHandle| old.group().is_none() && old.named().is_none();
        assert!(all.iter().all(|old| is_none(old) && !old.release()));
    }

    #[test]
    fn a_place_whose_generations_are_used_up_is_left() {
        let _one = ONE.lock().unwrap();
        let memory = Memory::host().unwrap();
        let first = GroupHandle::of(&memory.root()).unwrap();
        let place = first.place().unwrap();
        place.generation.store(USED_UP - 1, Ordering::Relaxed);
        let index = (first.bits as u32) - 1;
        let last = GroupHandle {
            bits: bits(index, USED_UP - 1),
        };
        assert!(first.named().is_none() && last.release() && !last.release());
        let later: Vec<_> = (0..100).map(|_| GroupHandle::of(&memory.root())).collect();
        for handle in later {
            let handle = handle.unwrap();
            assert!(handle.bits as u32 != index + 1 && handle.release());
        }
        let made_up = GroupHandle {
            bits: bits(index, USED_UP),
        };
        assert!(made_up.group().is_none() && !made_up.release());
    }

    #[test]
    fn handles_of_one_group_are_apart() {
        let _one = ONE.lock().unwrap();
        let memory = Memory::host().unwrap();
        let [one, two] = [(); 2].map(|()| GroupHandle::of(&memory.root()).unwrap());
        assert!(one != two && one.release() && !one.release());
        assert_eq!(two.group().unwrap().0, memory.root());
        assert!(two.release());
    }
}
