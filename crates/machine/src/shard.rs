//! Operations of a shard that is changed by plain atomic operations: the extra shard of every machine, and all shards
//! of a machine without sections.
//!
//! Several tasks may be inside an operation of the same shard at once. The account operations count themselves in the
//! state word ([`State::BUSY_ONE`]), so that a freezer can wait for them as a fence waits for sections. The two words
//! of an account change one after the other, the room first. A compare-and-exchange against the cap claims the room, so
//! the room never exceeds the cap, however many tasks return at once. Between the two steps of a return the bytes count
//! both as room and as charged. Only a fork can stop a task there for good, and the forked child gives up all room.
//!
//! Statistics are added *before* the mark is checked, both `Full`. Either the adder sees that the shard is no longer
//! published and publishes again, or the flusher that cleaned it sees the addition.

use crate::slot::{CAP, CEILING, CHARGED, STATE, Shard};
use crate::{AtomicWord, MemoryOrder, Outcome, State};

/// Words of one shard without sections.
#[derive(Debug)]
pub struct AtomicShard<'a, W> {
    words: &'a [W],
    shard: Shard,
}

impl<'a, W: AtomicWord> AtomicShard<'a, W> {
    /// Makes a view of `words`, the words of `shard`.
    #[inline]
    pub fn new(words: &'a [W], shard: Shard) -> Self {
        Self { words, shard }
    }

    /// Does [`crate::Slot::add_fetch`].
    pub fn add_fetch(&self, word: usize, delta: i64) -> (Outcome, i64) {
        // Full: pairs with the flusher's `Full` clean of the state word, see the module.
        let now = self.words[word]
            .fetch_add_signed(delta, MemoryOrder::Full)
            .wrapping_add(delta);
        let state = State(self.words[STATE].load(MemoryOrder::Full));
        (self.committed(state), now)
    }

    /// Does [`crate::Slot::charge`].
    pub fn charge(&self, bytes: u64) -> Outcome {
        let Ok(bytes) = i64::try_from(bytes) else {
            return Outcome::Short;
        };
        if bytes == 0 {
            return Outcome::Short;
        }
        self.account(|shard| {
            if !shard.change_room(-bytes) {
                return false;
            }
            // Full: as in `add_fetch`. `account` looks at the state afterwards.
            shard.words[CHARGED].fetch_add_signed(bytes, MemoryOrder::Full);
            true
        })
    }

    /// Does [`crate::Slot::uncharge`].
    pub fn uncharge(&self, bytes: u64) -> Outcome {
        let Ok(bytes) = i64::try_from(bytes) else {
            return Outcome::Short;
        };
        self.account(|shard| {
            if !shard.change_room(bytes) {
                return false;
            }
            // Full: as in `charge`.
            shard.words[CHARGED].fetch_add_signed(-bytes, MemoryOrder::Full);
            true
        })
    }

    /// Does [`crate::Slot::adjust`], for a shard that may hold stock.
    pub fn adjust(&self, charged: i64, ceiling: i64) -> Outcome {
        let room = ceiling.wrapping_sub(charged);
        self.account(|shard| {
            if room != 0 && !shard.change_room(room) {
                return false;
            }
            // Full: as in `charge`.
            shard.words[CHARGED].fetch_add_signed(charged, MemoryOrder::Full);
            true
        })
    }

    /// Does [`crate::Slot::add_extra`]; the caller publishes.
    pub fn add(&self, word: usize, delta: i64) {
        // Full: as in `add_fetch`; the caller checks the state afterwards.
        self.words[word].fetch_add_signed(delta, MemoryOrder::Full);
    }

    /// Room of the shard, bytes.
    pub fn room(&self) -> i64 {
        // Full: pairs with `change_room`. The room may change at once.
        self.words[CEILING].load_signed(MemoryOrder::Full)
    }

    /// Takes the whole room, bytes.
    pub fn take_room(&self) -> u64 {
        // Full: pairs with `change_room`. The caller has frozen the shard and waited until it is not busy.
        self.words[CEILING].swap(0, MemoryOrder::Full)
    }

    /// Returns whether an operation on the account is under way.
    pub fn is_busy(&self) -> bool {
        // Full: pairs with the count in `account`: an operation that missed `FROZEN` is seen here until it has ended.
        State(self.words[STATE].load(MemoryOrder::Full)).is_busy()
    }

    fn account(&self, commit: impl FnOnce(&Self) -> bool) -> Outcome {
        // Full: pairs with the freezer's `fetch_or(FROZEN)`. If our count comes first, the freezer waits for us. If its
        // flag comes first, we see it and do nothing.
        let before = State(self.words[STATE].fetch_add(State::BUSY_ONE, MemoryOrder::Full));
        let committed = !before.is_frozen() && commit(self);
        let after = State(self.words[STATE].fetch_sub(State::BUSY_ONE, MemoryOrder::Full));
        if committed {
            return self.committed(after);
        }
        // The first look decides: the shard may have been thawed since, and then the room was never looked at.
        if before.is_frozen() {
            return Outcome::Unpublished {
                shard: self.shard,
                committed: false,
            };
        }
        Outcome::Short
    }

    fn committed(&self, state: State) -> Outcome {
        if state.tag() == State::PUBLISHED {
            return Outcome::Done;
        }
        Outcome::Unpublished {
            shard: self.shard,
            committed: true,
        }
    }

    /// Changes the room by `by`, unless it would become negative or exceed the cap.
    fn change_room(&self, by: i64) -> bool {
        let word = &self.words[CEILING];
        let mut room = word.load_signed(MemoryOrder::Relaxed);
        loop {
            let changed = room.saturating_add(by);
            // Relaxed: the cap may rise at any time, and an old one then only refuses. It falls only in a frozen shard,
            // and the freezer waits for us.
            if changed < 0 || by > 0 && changed > self.words[CAP].load_signed(MemoryOrder::Relaxed)
            {
                return false;
            }
            // Full: pairs with itself, and with `take_room`: each change begins from the room that the last one left.
            match word.compare_exchange(room as u64, changed as u64, MemoryOrder::Full) {
                Ok(_) => return true,
                Err(now) => room = now as i64,
            }
        }
    }
}

/// Waits for `done`, with a back-off by `relax`, which works like [`crate::Machine::relax`].
pub fn busy_wait(mut done: impl FnMut() -> bool, relax: impl Fn(u32)) {
    let mut round = 0;
    while !done() {
        relax(round);
        round = round.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FIRST_STATISTIC;
    use crate::host::HostWord;

    const SHARD: Shard = Shard(3);
    const REFUSED: Outcome = Outcome::Unpublished {
        shard: SHARD,
        committed: false,
    };

    /// Words of a published shard that may hold 100 bytes and holds none.
    fn words() -> [HostWord; FIRST_STATISTIC + 1] {
        let words = [(); FIRST_STATISTIC + 1].map(|()| HostWord::new(0));
        words[STATE].store(State::PUBLISHED, MemoryOrder::Full);
        words[CAP].store(100, MemoryOrder::Full);
        words
    }

    fn charged(words: &[HostWord]) -> i64 {
        words[CHARGED].load_signed(MemoryOrder::Full)
    }

    #[test]
    fn the_room_is_used_up_and_filled_to_the_cap() {
        use Outcome::{Done, Short};
        let words = words();
        let shard = AtomicShard::new(&words, SHARD);
        assert_eq!(shard.adjust(0, 101), Short, "beyond the cap");
        assert_eq!(shard.adjust(-10, 50), Done);
        assert_eq!((shard.room(), charged(&words)), (60, -10));
        assert_eq!(
            [0, 61, 60, 1].map(|bytes| shard.charge(bytes)),
            [Short, Short, Done, Short]
        );
        assert_eq!((shard.room(), charged(&words)), (0, 50));
        assert_eq!(
            [40, 61, 60, 1].map(|bytes| shard.uncharge(bytes)),
            [Done, Short, Done, Short]
        );
        assert_eq!((shard.room(), charged(&words)), (100, -50));
        assert_eq!(shard.adjust(7, 7), Done);
        assert_eq!([shard.adjust(0, -101), shard.adjust(0, -30)], [Short, Done]);
        assert_eq!([shard.take_room(), shard.take_room()], [70, 0]);
        assert_eq!((shard.room(), charged(&words)), (0, -43));
        assert!(!shard.is_busy(), "each operation has ended");
    }

    #[test]
    fn frozen_and_clean_shards_say_so() {
        let words = words();
        let shard = AtomicShard::new(&words, SHARD);
        words[STATE].store(State::PUBLISHED | State::FROZEN, MemoryOrder::Full);
        let account = || {
            [
                shard.adjust(0, 50),
                shard.charge(0),
                shard.charge(1),
                shard.uncharge(1),
            ]
        };
        let short = Outcome::Short;
        assert_eq!(account(), [REFUSED, short, REFUSED, REFUSED]);
        assert_eq!((shard.room(), charged(&words)), (0, 0));
        words[STATE].store(State::CLEAN, MemoryOrder::Full);
        let done = Outcome::Unpublished {
            shard: SHARD,
            committed: true,
        };
        assert_eq!(account(), [done, short, done, done]);
        assert_eq!(shard.add_fetch(FIRST_STATISTIC, -4), (done, -4));
        assert_eq!((shard.room(), charged(&words)), (50, 0));
        assert_eq!(words[STATE].load(MemoryOrder::Full), State::CLEAN);
    }

    #[test]
    fn an_operation_counts_itself_while_it_is_under_way() {
        let words = words();
        let shard = AtomicShard::new(&words, SHARD);
        let mut was_busy = false;
        let outcome = shard.account(|shard| {
            was_busy = shard.is_busy();
            false
        });
        assert_eq!((outcome, was_busy), (Outcome::Short, true));
        assert!(!shard.is_busy());
    }
}
