//! Names of a group's living children, in order. A map of the standard library, except that a new name may find no memory.
//!
//! Names are in pieces of at most [`PIECE`]. So a new name moves few others, and a look-up is two binary searches.

use std::ops::Bound;

use crate::room;

/// Most names of a piece. Judgement: moving half of them takes less than allocating the name.
const PIECE: usize = 128;

/// Children by name.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Each name is above all of the piece before. Only the first may be empty, when there are no names.
    pieces: Vec<Vec<(Box<str>, u32)>>,
    len: usize,
}

/// Room for one more name, and the name.
pub(super) struct NewName {
    name: Box<str>,
    piece: usize,
    place: usize,
}

impl Names {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The place of a name, or where it would be.
    fn place(&self, name: &str) -> Result<(usize, usize), (usize, usize)> {
        let begins_before = |piece: &Vec<(Box<str>, u32)>| {
            let first = piece.first();
            first.is_some_and(|(first, _)| **first <= *name)
        };
        let after = self.pieces.partition_point(begins_before);
        let Some(at) = after.checked_sub(1) else {
            return Err((0, 0));
        };
        match self.pieces[at].binary_search_by(|(known, _)| (**known).cmp(name)) {
            Ok(place) => Ok((at, place)),
            Err(place) => Err((at, place)),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<u32> {
        let (piece, place) = self.place(name).ok()?;
        Some(self.pieces[piece][place].1)
    }

    /// Makes room for a name that is not there; `None` if there is no memory for it. The next change uses it up.
    pub(super) fn make_room(&mut self, name: &str) -> Option<NewName> {
        let (mut piece, mut place) = match self.place(name) {
            Ok(_) => panic!("a name that is there"),
            Err(at) => at,
        };
        let name = room::text(name)?;
        if self.pieces.is_empty() {
            self.pieces.try_reserve(1).ok()?;
            let mut first = Vec::new();
            first.try_reserve(1).ok()?;
            self.pieces.push(first);
        } else if self.pieces[piece].len() == PIECE {
            self.pieces.try_reserve(1).ok()?;
            let mut upper = Vec::new();
            upper.try_reserve_exact(PIECE).ok()?;
            // In order, the last piece stays full.
            let is_last = place == PIECE && piece + 1 == self.pieces.len();
            let half = if is_last { PIECE - 1 } else { PIECE / 2 };
            upper.extend(self.pieces[piece].drain(half..));
            self.pieces.insert(piece + 1, upper);
            if place > half {
                (piece, place) = (piece + 1, place - half);
            }
        } else {
            self.pieces[piece].try_reserve(1).ok()?;
        }
        Some(NewName { name, piece, place })
    }

    /// Puts a name where room was made for it.
    pub(super) fn put(&mut self, new: NewName, index: u32) {
        self.pieces[new.piece].insert(new.place, (new.name, index));
        self.len += 1;
    }

    pub(super) fn remove(&mut self, name: &str) {
        let Ok((piece, place)) = self.place(name) else {
            return;
        };
        self.pieces[piece].remove(place);
        self.len -= 1;
        if self.pieces[piece].is_empty() {
            self.pieces.remove(piece);
        } else if self.pieces.len() > 1 && self.pieces[piece].len() < PIECE / 4 {
            self.join(piece.min(self.pieces.len() - 2));
        }
    }

    /// Joins a piece with the next one, if both fit into its memory.
    fn join(&mut self, piece: usize) {
        let [one, other] = &mut self.pieces[piece..piece + 2] else {
            return;
        };
        let len = one.len() + other.len();
        if len <= PIECE / 2 && len <= one.capacity() {
            one.append(other);
            self.pieces.remove(piece + 1);
        }
    }

    /// Iterates over the names after `from`, in their order.
    pub(super) fn after<'a>(
        &'a self,
        from: Bound<&str>,
    ) -> impl Iterator<Item = &'a (Box<str>, u32)> + use<'a> {
        let (piece, place) = match from {
            Bound::Unbounded => (0, 0),
            Bound::Included(name) => self.place(name).unwrap_or_else(|at| at),
            Bound::Excluded(name) => match self.place(name) {
                Ok((piece, place)) => (piece, place + 1),
                Err(at) => at,
            },
        };
        let pieces = self.pieces.iter().skip(piece);
        pieces.flatten().skip(place)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Random changes, against the map of the standard library.
    #[test]
    fn names_are_those_of_a_map() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut names, mut map) = (Names::default(), BTreeMap::new());
        for step in 0..20_000_u32 {
            // Rises, then falls: pieces are split and joined.
            let grows = random.u32(0..10) < if step < 10_000 { 7 } else { 3 };
            let name = format!("{:x}", random.u32(0..3_000));
            match (map.contains_key(&name), grows) {
                (false, true) => {
                    let new = names.make_room(&name).expect("there is memory");
                    names.put(new, step);
                    map.insert(name.clone(), step);
                }
                (true, false) => {
                    names.remove(&name);
                    map.remove(&name);
                }
                _ => {}
            }
            assert_eq!(
                (names.get(&name), names.len(), names.is_empty()),
                (map.get(&name).copied(), map.len(), map.is_empty())
            );
            if step % 500 == 0 {
                assert!(
                    names
                        .pieces
                        .iter()
                        .all(|piece| (1..=PIECE).contains(&piece.len()))
                );
                let from = Bound::Excluded(&*name);
                let known = names.after(from).map(|(name, index)| (&**name, *index));
                let expected = map.range::<str, _>((from, Bound::Unbounded));
                assert!(known.eq(expected.map(|(name, index)| (&**name, *index))));
            }
        }
    }

    #[test]
    fn names_in_order_fill_their_pieces() {
        let mut names = Names::default();
        for index in 0..10_000 {
            let new = names
                .make_room(&format!("{index:05}"))
                .expect("there is memory");
            names.put(new, index);
        }
        assert!(names.pieces.len() <= 10_000 / (PIECE - 1) + 1);
        assert!(lens(&names).iter().all(|len| *len <= PIECE));
        let all = names.after(Bound::Unbounded).map(|(_, index)| *index);
        assert!(all.eq(0..10_000));
    }

    fn lens(names: &Names) -> Vec<usize> {
        names.pieces.iter().map(Vec::len).collect()
    }

    /// Names of four digits.
    fn put(names: &mut Names, numbers: impl IntoIterator<Item = u32>) {
        for index in numbers {
            let new = names.make_room(&format!("{index:04}"));
            names.put(new.expect("there is memory"), index);
        }
    }

    fn remove(names: &mut Names, numbers: impl IntoIterator<Item = u32>) {
        for index in numbers {
            names.remove(&format!("{index:04}"));
        }
    }

    #[test]
    fn a_full_piece_splits_in_half() {
        // The place of the new name among those before.
        for (place, expected) in [(0, [65, 64]), (64, [65, 64]), (65, [64, 65])] {
            let mut names = Names::default();
            put(&mut names, (1..=PIECE as u32).map(|at| 2 * at));
            put(&mut names, [2 * place + 1]);
            assert_eq!(lens(&names), expected);
        }
    }

    #[test]
    fn neighbours_that_have_shrunk_are_joined() {
        // A piece of 127 and one of the others, which is left as large.
        let two = |other: u32| {
            let mut names = Names::default();
            put(&mut names, 0..127 + other);
            assert_eq!(lens(&names), [127, other as usize]);
            names
        };
        let mut names = two(20);
        remove(&mut names, 32..127);
        assert_eq!(lens(&names), [32, 20]);
        remove(&mut names, [0]);
        assert_eq!(lens(&names), [51]);
        // As long as they fill no more than half a piece.
        let mut names = two(33);
        remove(&mut names, 31..127);
        assert_eq!(lens(&names), [64]);
        let mut names = two(34);
        remove(&mut names, 31..127);
        assert_eq!(lens(&names), [31, 34]);
        // The last one is joined with the one before.
        let mut names = two(33);
        remove(&mut names, 32..127);
        remove(&mut names, [140, 150]);
        assert_eq!(lens(&names), [63]);
        let left = names.after(Bound::Unbounded).map(|(_, index)| *index);
        assert!(left.eq((0..32).chain((127..160).filter(|it| *it != 140 && *it != 150))));
    }
}
