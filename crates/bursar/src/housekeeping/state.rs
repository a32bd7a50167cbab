//! Where a CPU's upkeep stands, as one word: two bits for what, the rest for when.

use bursar_machine::AtomicWord;
use bursar_machine::Order;

/// The latest time that has room: 146 years.
const LATEST_NS: u64 = u64::MAX >> BITS;
const BITS: u32 = 2;

const IDLE: u64 = 0;
const QUEUED: u64 = 1;
const RUNNING: u64 = 2;
const EARLY: u64 = 3;

/// Where a CPU's upkeep stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The shepherd may queue it.
    Idle,
    /// A timer is set, and it is due then.
    Queued { due_ns: u64 },
    /// Under way, by its timer.
    Running,
    /// Under way ahead of its time, with its timer still set.
    Early,
}

impl State {
    pub(super) fn bits(self) -> u64 {
        match self {
            Self::Idle => IDLE,
            Self::Queued { due_ns } => due_ns.min(LATEST_NS) << BITS | QUEUED,
            Self::Running => RUNNING,
            Self::Early => EARLY,
        }
    }

    pub(super) fn of(bits: u64) -> Self {
        match bits & ((1 << BITS) - 1) {
            IDLE => Self::Idle,
            QUEUED => Self::Queued {
                due_ns: bits >> BITS,
            },
            RUNNING => Self::Running,
            _ => Self::Early,
        }
    }

    pub(super) fn look(word: &impl AtomicWord) -> Self {
        // Relaxed: whoever acts on it exchanges it.
        Self::of(word.load(Order::Relaxed))
    }

    /// Goes from `self` to `next`, unless somebody else was first.
    pub(super) fn change(self, word: &impl AtomicWord, next: Self) -> bool {
        // Full: as an acquire it pairs with the release at the end of the call before: upkeep sees what that one left.
        word.compare_exchange(self.bits(), next.bits(), Order::Full)
            .is_ok()
    }
}

/// A call of upkeep that is under way. Should it unwind, the CPU is not forgotten.
pub(super) struct Call<'a, W: AtomicWord> {
    word: &'a W,
    after: State,
}

impl<'a, W: AtomicWord> Call<'a, W> {
    /// Unless it ends otherwise, upkeep will be `after`.
    pub(super) fn new(word: &'a W, after: State) -> Self {
        Self { word, after }
    }

    pub(super) fn end(mut self, after: State) {
        self.after = after;
    }
}

impl<W: AtomicWord> Drop for Call<'_, W> {
    fn drop(&mut self) {
        // Release: pairs with `State::change`. A store: while upkeep runs, nobody else changes the word.
        self.word.store(self.after.bits(), Order::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_each_state() {
        for state in [
            State::Idle,
            State::Queued { due_ns: 0 },
            State::Queued { due_ns: LATEST_NS },
            State::Running,
            State::Early,
        ] {
            assert_eq!(State::of(state.bits()), state);
        }
        let never = State::Queued { due_ns: u64::MAX };
        assert_eq!(State::of(never.bits()), State::Queued { due_ns: LATEST_NS });
        assert_eq!(State::of(0), State::Idle, "a new word");
    }
}
