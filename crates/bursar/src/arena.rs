//! Table that grows and whose entries never move; ids are indexes into it.

use std::sync::OnceLock;

use crate::room;

/// Number of entries in the first segment; each further segment holds twice as many.
const FIRST: usize = 64;
/// Number of segments, enough for 2^32 entries.
const SEGMENTS: usize = 27;

type Segment<T> = OnceLock<Box<[OnceLock<T>]>>;

/// Table of `T` that grows at its end and is read without locks.
///
/// The caller serialises growth.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    segments: [Segment<T>; SEGMENTS],
}

impl<T> Arena<T> {
    pub(crate) fn new() -> Self {
        Self {
            segments: [const { OnceLock::new() }; SEGMENTS],
        }
    }

    fn place(index: u32) -> (usize, usize) {
        let position = index as usize + FIRST;
        let segment = (position / FIRST).ilog2() as usize;
        (segment, position - (FIRST << segment))
    }

    /// Returns the entry at `index`.
    ///
    /// # Panics
    /// If there is none: ids come from this table.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> &T {
        let (segment, offset) = Self::place(index);
        self.segments[segment]
            .get()
            .and_then(|entries| entries[offset].get())
            .expect("an id of this table")
    }

    /// Whether there is an entry at `index`.
    pub(crate) fn has(&self, index: u32) -> bool {
        let (segment, offset) = Self::place(index);
        let entries = self.segments[segment].get();
        entries.is_some_and(|entries| entries[offset].get().is_some())
    }

    /// Makes room for `index`; returns `false` if there is no memory for it.
    pub(crate) fn reserve(&self, index: u32) -> bool {
        let (segment, _) = Self::place(index);
        if self.segments[segment].get().is_some() {
            return true;
        }
        let entries = room::boxed(FIRST << segment, OnceLock::new);
        entries.is_some_and(|entries| self.segments[segment].set(entries).is_ok())
    }

    /// Puts `value` at `index`, the first unused index, for which room was made.
    pub(crate) fn put(&self, index: u32, value: T) {
        let (segment, offset) = Self::place(index);
        let entries = self.segments[segment].get().expect("room was made");
        assert!(entries[offset].set(value).is_ok(), "entries are put once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_where_they_are() {
        let arena = Arena::new();
        assert!(arena.reserve(0));
        arena.put(0, 0_u32);
        let first: *const u32 = arena.get(0);
        for index in 1..10_000 {
            assert!(arena.reserve(index));
            arena.put(index, index);
        }
        assert!((0..10_000).all(|index| *arena.get(index) == index));
        assert!(std::ptr::eq(first, arena.get(0)));
    }

    #[test]
    fn the_last_index_has_a_place() {
        let (segment, offset) = Arena::<u8>::place(u32::MAX);
        assert!(segment < SEGMENTS && offset < FIRST << segment);
    }
}
