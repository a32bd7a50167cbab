//! State of a CPU's upkeep in one word: two bits for the state, the rest for the due time.

use bursar_machine::AtomicWord;
use bursar_machine::MemoryOrder;

/// Latest due time that fits: 146 years.
const LATEST_NS: u64 = u64::MAX >> BITS;
const BITS: u32 = 2;

const IDLE: u64 = 0;
const QUEUED: u64 = 1;
const RUNNING: u64 = 2;
const EARLY: u64 = 3;

/// State of a CPU's upkeep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No timer is set; the shepherd may queue upkeep.
    Idle,
    /// A timer is set, and upkeep is due at that time.
    Queued { due_ns: u64 },
    /// Upkeep runs because its timer expired.
    Running,
    /// Upkeep runs ahead of its time, with its timer still set.
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
        // Relaxed: a caller that acts on it uses an exchange.
        Self::of(word.load(MemoryOrder::Relaxed))
    }

    /// Changes from `self` to `next`; returns `false` if another task was first.
    pub(super) fn change(self, word: &impl AtomicWord, next: Self) -> bool {
        // Full: as an acquire it pairs with the Release in `Call`'s drop. So upkeep sees the effects of the previous
        // call.
        word.compare_exchange(self.bits(), next.bits(), MemoryOrder::Full)
            .is_ok()
    }
}

/// Guard of a call of upkeep that is under way. If the call unwinds, it sets the state that lets upkeep come again.
pub(super) struct Call<'a, W: AtomicWord> {
    word: &'a W,
    after: State,
}

impl<'a, W: AtomicWord> Call<'a, W> {
    /// Starts a call. Unless [`Call::end`] says otherwise, the state afterwards is `after`.
    pub(super) fn new(word: &'a W, after: State) -> Self {
        Self { word, after }
    }

    pub(super) fn end(mut self, after: State) {
        self.after = after;
    }
}

impl<W: AtomicWord> Drop for Call<'_, W> {
    fn drop(&mut self) {
        // Release: pairs with `State::change`. A plain store is enough: nothing else changes the word while upkeep
        // runs.
        self.word.store(self.after.bits(), MemoryOrder::Release);
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
