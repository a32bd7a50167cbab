//! Sets of small numbers that many CPUs mark without locks. One task at a time removes members.
//!
//! A set is four bitmaps of growing depth. Members below 64 are bits of one word. The next 4,096 are in 64 words under
//! a summary word. Then come bitmaps of three and four levels.
//!
//! Marking sets the member's bit first and the summaries above it last; taking clears the summaries first. So a marker
//! that finishes after a taker has passed leaves a way from the top. A marker that finds a bit set does not wait for
//! the thread that set it: it sets the rest of the way itself. **Never stop early at a bit that is set already**: the
//! thread that set it may have been preempted before it set the summary.
//!
//! One member is removed from the bottom up ([`MarkSet::unmark`]): its bit, then the summary above if no bit is left below it. A
//! second look below finds a marker that came meanwhile and saw the summary still set.

use std::array;
use std::sync::OnceLock;

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use crate::room;

const BITS: u32 = 64;
const DEPTH: usize = 4;

struct Branch<M: Machine> {
    word: M::Word,
    below: OnceLock<Box<[Branch<M>]>>,
}

impl<M: Machine> Branch<M> {
    fn new() -> Self {
        Self {
            word: M::Word::new(0),
            below: OnceLock::new(),
        }
    }

    fn below(&self, digit: usize) -> Option<&Self> {
        Some(&self.below.get()?[digit])
    }
}

/// A set of members below [`MarkSet::LIMIT`].
pub(crate) struct MarkSet<M: Machine> {
    roots: [Branch<M>; DEPTH],
}

impl<M: Machine> std::fmt::Debug for MarkSet<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut members = Vec::new();
        self.peek(|member| members.push(member));
        f.debug_set().entries(members).finish()
    }
}

/// Bitmap of `member`, and its number inside it.
fn place(member: u32) -> (usize, u32) {
    let mut rest = member;
    let mut size = BITS;
    for depth in 0..DEPTH {
        if rest < size {
            return (depth, rest);
        }
        rest -= size;
        size = size.wrapping_mul(BITS);
    }
    panic!("a member below the limit");
}

impl<M: Machine> MarkSet<M> {
    /// Number of possible members.
    pub(crate) const LIMIT: u32 = 64 + 64 * 64 + 64 * 64 * 64 + 64 * 64 * 64 * 64;

    /// Makes an empty set for members `0..capacity`.
    /// `None` if there is no memory for it.
    pub(crate) fn new(capacity: u32) -> Option<Self> {
        let set = Self {
            roots: array::from_fn(|_| Branch::new()),
        };
        let mut lasts = (BITS..capacity)
            .step_by(BITS as usize)
            .chain(capacity.checked_sub(1));
        lasts.all(|last| set.ensure(last)).then_some(set)
    }

    /// Makes room for `member`, which must happen before it is marked. Allocates, unlike marking; `false` if there is no memory for it.
    pub(crate) fn ensure(&self, member: u32) -> bool {
        let (depth, rest) = place(member);
        let mut branch = &self.roots[depth];
        for level in (1..=depth).rev() {
            let below = match branch.below.get() {
                Some(below) => below,
                None => {
                    let Some(made) = room::boxed(BITS as usize, Branch::new) else {
                        return false;
                    };
                    // Another task may have been faster.
                    branch.below.get_or_init(|| made)
                }
            };
            branch = &below[(rest >> (6 * level) & 63) as usize];
        }
        true
    }

    /// The branches on the way to a member: the one with its own bit first, the top of its bitmap at `depth`. `None` if there is no
    /// room for the member.
    fn way(&self, depth: usize, rest: u32) -> Option<[&Branch<M>; DEPTH]> {
        let mut way = [&self.roots[depth]; DEPTH];
        for level in (1..=depth).rev() {
            way[level - 1] = way[level].below((rest >> (6 * level) & 63) as usize)?;
        }
        Some(way)
    }

    /// Marks `member`. Async-signal-safe. A member without room is ignored: only a straggler marks one, with the number
    /// of a group that has ended since.
    pub(crate) fn mark(&self, member: u32) {
        let (depth, rest) = place(member);
        let Some(way) = self.way(depth, rest) else {
            return;
        };
        for (level, branch) in way.iter().enumerate().take(depth + 1) {
            let bit = 1 << (rest >> (6 * level) & 63);
            // Full, both: pair with the swaps in `take`. If our bit comes before the taker's swap of this word, the
            // taker finds it. If the swap comes first, we see the words above it cleared as well, and set them again.
            if branch.word.load(MemoryOrder::Full) & bit == 0 {
                branch.word.fetch_or(bit, MemoryOrder::Full);
            }
        }
    }

    #[cfg(test)]
    /// Removes all members and calls `member` with each.
    pub(crate) fn take(&self, mut member: impl FnMut(u32)) {
        self.take_while(|taken| {
            member(taken);
            true
        });
    }

    /// Calls `take` with one member after the other and removes those for which it returns `true`. Stops at the first
    /// `false`: that member and those after it stay. The cost follows the number removed.
    pub(crate) fn take_while(&self, mut take: impl FnMut(u32) -> bool) {
        let mut first = 0;
        let mut size = BITS;
        for (depth, root) in self.roots.iter().enumerate() {
            if !Self::take_branch(root, depth, first, &mut take) {
                return;
            }
            first = first.wrapping_add(size);
            size = size.wrapping_mul(BITS);
        }
    }

    /// Returns whether `take` always returned `true`.
    fn take_branch(
        branch: &Branch<M>,
        level: usize,
        first: u32,
        take: &mut impl FnMut(u32) -> bool,
    ) -> bool {
        // Full, all three: pair with `mark`. Words are cleared from the top down.
        let mut bits = match branch.word.load(MemoryOrder::Full) {
            0 => 0,
            _ => branch.word.swap(0, MemoryOrder::Full),
        };
        while bits != 0 {
            let digit = bits.trailing_zeros();
            let at = first + (digit << (6 * level));
            let goes_on = match level {
                0 => take(at),
                _ => branch
                    .below(digit as usize)
                    .is_none_or(|below| Self::take_branch(below, level - 1, at, take)),
            };
            if !goes_on {
                // Full, as in `mark`: set again from the bottom up. The bits below this digit are set again already.
                branch.word.fetch_or(bits, MemoryOrder::Full);
                return false;
            }
            bits &= bits - 1;
        }
        true
    }

    /// Calls `member` with each member, and removes none.
    pub(crate) fn peek(&self, mut member: impl FnMut(u32)) {
        self.peek_from(0, |at| {
            member(at);
            true
        });
    }

    /// Calls `member` with one member after the other, from `from` on, and removes none. Stops at the first `false`.
    pub(crate) fn peek_from(&self, from: u32, mut member: impl FnMut(u32) -> bool) {
        let mut first = 0_u32;
        let mut size = BITS;
        for (depth, root) in self.roots.iter().enumerate() {
            if !Self::peek_branch(root, depth, first, from, &mut member) {
                return;
            }
            first = first.wrapping_add(size);
            size = size.wrapping_mul(BITS);
        }
    }

    /// Returns whether `member` always returned `true`.
    fn peek_branch(
        branch: &Branch<M>,
        level: usize,
        first: u32,
        from: u32,
        member: &mut impl FnMut(u32) -> bool,
    ) -> bool {
        let shift = 6 * level as u32;
        let skipped = from.saturating_sub(first) >> shift;
        if skipped >= BITS {
            return true;
        }
        // Full: pairs with `mark`. Bits below `from` are not looked at.
        let mut bits = branch.word.load(MemoryOrder::Full) & (u64::MAX << skipped);
        while bits != 0 {
            let digit = bits.trailing_zeros();
            bits &= bits - 1;
            let at = first + (digit << shift);
            let goes_on = match level {
                0 => member(at),
                _ => branch
                    .below(digit as usize)
                    .is_none_or(|below| Self::peek_branch(below, level - 1, at, from, member)),
            };
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// Removes `member`. Others may be marked meanwhile; none may be peeked at or removed. The caller looks afterwards whether
    /// what the mark stood for is still gone, and marks again if not: a marker may have found this mark and gone on.
    pub(crate) fn unmark(&self, member: u32) {
        let (depth, rest) = place(member);
        let Some(way) = self.way(depth, rest) else {
            return;
        };
        for (level, branch) in way.iter().enumerate().take(depth + 1) {
            let bit = 1 << (rest >> (6 * level) & 63);
            // Full, all: pair with `mark`. A marker of another member below sets its bit first and looks at this word last. So
            // either the second look finds its bit, or it finds ours cleared.
            let left = branch.word.fetch_and(!bit, MemoryOrder::Full) & !bit;
            if level > 0 && way[level - 1].word.load(MemoryOrder::Full) != 0 {
                branch.word.fetch_or(bit, MemoryOrder::Full);
                return;
            }
            if left != 0 {
                return;
            }
        }
    }

    /// Begins to bring the set's first words here.
    pub(crate) fn prefetch(&self) {
        self.roots.iter().for_each(|root| root.word.prefetch());
    }

    /// Returns whether `member` is marked. Its way from the top may not be there yet.
    pub(crate) fn has(&self, member: u32) -> bool {
        let (depth, rest) = place(member);
        self.way(depth, rest).is_some_and(|way| {
            // Full: pairs with `mark`, and with `unmark` under the same lock.
            way[0].word.load(MemoryOrder::Full) & 1 << (rest & 63) != 0
        })
    }

    /// Returns whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        // Full: pairs with `mark`, which sets the top of the way last.
        self.roots
            .iter()
            .all(|root| root.word.load(MemoryOrder::Full) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_machine::Host;
    use std::collections::BTreeSet;

    #[test]
    fn bitmaps_have_a_place_for_every_member() {
        let limit = MarkSet::<Host>::LIMIT;
        assert_eq!([place(0), place(63), place(64)], [(0, 0), (0, 63), (1, 0)]);
        assert_eq!([place(4159), place(4160)], [(1, 4095), (2, 0)]);
        assert_eq!([place(266_303), place(266_304)], [(2, 262_143), (3, 0)]);
        assert_eq!(place(limit - 1), (3, 64_u32.pow(4) - 1));
    }

    #[test]
    fn members_come_out_as_they_went_in() {
        let members = [
            0,
            1,
            63,
            64,
            65,
            127,
            128,
            4159,
            4160,
            4161,
            266_303,
            266_304,
            1 << 20,
        ];
        let set = MarkSet::<Host>::new(0).expect("there is memory");
        for member in members {
            assert!(set.ensure(member));
            assert!(!set.has(member));
            set.mark(member);
            set.mark(member);
            assert!(set.has(member));
        }
        let mut seen = BTreeSet::new();
        set.peek(|member| assert!(seen.insert(member)));
        assert!(seen.iter().copied().eq(members));
        seen.clear();
        set.take(|member| assert!(seen.insert(member)));
        assert!(seen.iter().copied().eq(members));
        assert!(set.is_empty());
    }

    /// Pieces of any size give the same members as one take of all, and the others stay.
    #[test]
    fn some_are_taken_and_the_others_stay() {
        let members: BTreeSet<u32> = (0..9_000)
            .filter(|member| member % 7 < 3)
            .chain([266_303, 266_304, 1 << 20])
            .collect();
        let set = MarkSet::<Host>::new(0).expect("there is memory");
        for &member in &members {
            assert!(set.ensure(member));
            set.mark(member);
        }
        let mut taken = BTreeSet::new();
        let mut left = members.clone();
        for size in (1..200).cycle() {
            let before = taken.len();
            set.take_while(|member| {
                let has_room = taken.len() < before + size;
                if has_room {
                    assert!(taken.insert(member) && left.remove(&member));
                }
                has_room
            });
            assert_eq!(taken.len() - before, size.min(members.len() - before));
            let mut there = BTreeSet::new();
            set.peek(|member| assert!(there.insert(member)));
            assert_eq!(there, left);
            if left.is_empty() {
                break;
            }
        }
        assert!(set.is_empty());
        assert_eq!(taken, members);
    }

    /// Random marks and removals, against the set of the standard library.
    #[test]
    fn members_are_those_of_a_set() {
        let edges = [63, 64, 4159, 4160, 266_303, 266_304, 1 << 20];
        let near = edges.iter().flat_map(|edge| edge - 60..edge + 70);
        let members: Vec<u32> = near.chain([MarkSet::<Host>::LIMIT - 1]).collect();
        let set = MarkSet::<Host>::new(0).expect("there is memory");
        assert!(members.iter().all(|&member| set.ensure(member)));
        let mut random = fastrand::Rng::with_seed(3);
        let mut known = BTreeSet::new();
        for step in 0..40_000 {
            let member = members[random.usize(..members.len())];
            // Rises, then falls.
            if random.u32(0..10) < if step < 20_000 { 7 } else { 3 } {
                set.mark(member);
                known.insert(member);
            } else {
                set.unmark(member);
                known.remove(&member);
            }
            assert_eq!(set.has(member), known.contains(&member));
            assert_eq!(set.is_empty(), known.is_empty());
            if step % 100 == 0 {
                let from = members[random.usize(..members.len())] + random.u32(0..2);
                let most = random.usize(1..members.len());
                let mut seen = Vec::new();
                set.peek_from(from, |member| {
                    seen.push(member);
                    seen.len() < most
                });
                assert!(seen.iter().eq(known.range(from..).take(most)));
            }
        }
        known.iter().for_each(|&member| set.unmark(member));
        assert!(set.is_empty());
        set.take(|member| panic!("{member} is not marked"));
    }

    #[test]
    fn capacity_makes_room_for_all_below() {
        let set = MarkSet::<Host>::new(1025).expect("there is memory");
        (0..1025).for_each(|member| set.mark(member));
        let mut count = 0;
        set.take(|_| count += 1);
        assert_eq!(count, 1025);
    }

    /// Four threads mark while one takes, and no mark is lost.
    #[test]
    fn nothing_marked_is_lost() {
        use std::sync::atomic::{AtomicU64, Ordering};
        const MEMBERS: u32 = 300;
        let set = MarkSet::<Host>::new(MEMBERS).expect("there is memory");
        let rounds: Vec<AtomicU64> = (0..MEMBERS).map(|_| AtomicU64::new(0)).collect();
        let mut seen = vec![0; MEMBERS as usize];
        std::thread::scope(|scope| {
            let markers: Vec<_> = (0..4)
                .map(|marker| {
                    let (set, rounds) = (&set, &rounds);
                    scope.spawn(move || {
                        for step in 0..40_000_u32 {
                            let member = (step * 7 + marker * 13) % MEMBERS;
                            rounds[member as usize].fetch_add(1, Ordering::SeqCst);
                            set.mark(member);
                        }
                    })
                })
                .collect();
            let mut take = |count: usize| {
                let mut taken = 0;
                set.take_while(|member| {
                    let has_room = taken < count;
                    if has_room {
                        seen[member as usize] = rounds[member as usize].load(Ordering::SeqCst);
                        taken += 1;
                    }
                    has_room
                });
            };
            for count in (1..MEMBERS as usize).cycle() {
                if markers.iter().all(|marker| marker.is_finished()) {
                    break;
                }
                take(count);
            }
            take(usize::MAX);
        });
        for (seen, rounds) in seen.iter().zip(rounds) {
            assert_eq!(*seen, rounds.into_inner());
        }
    }
}
