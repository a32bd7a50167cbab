//! The choice between many small flushes and one large one.
//!
//! All flushes take one lock, so `n` readers together pay for flushes of their own about `n` times the cost of one. The
//! rule: let `n` readers want a flush now, including the caller. If `n` times the average cost of a flush of a subtree
//! is above the average cost of a flush of the whole tree, the caller takes part in one flush of the whole tree.
//! Otherwise it flushes what it reads. As long as one of the costs is unknown, it flushes what it reads; the periodic
//! flush makes the other known.
//!
//! A cost is the time for which a flush had the lock. Averages are exponential with a weight of 1/8, as that of round-trip
//! times in RFC 6298; one average serves subtrees of all sizes.

use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use super::{Padded, Scope};

/// Inverse weight of a new cost in the average.
const WEIGHT_ONE_IN: u64 = 8;
/// Value of an unknown cost.
const UNKNOWN: u64 = 0;

/// Costs of flushes so far, and the number of readers that want one.
pub(super) struct Costs<M: Machine> {
    /// Averages, nanoseconds; `UNKNOWN` before the first.
    subtree_ns: Padded<M::Word>,
    root_ns: Padded<M::Word>,
    wanting: Padded<M::Word>,
}

impl<M: Machine> Costs<M> {
    pub(super) fn new() -> Self {
        Self {
            subtree_ns: Padded(M::Word::new(UNKNOWN)),
            root_ns: Padded(M::Word::new(UNKNOWN)),
            wanting: Padded(M::Word::new(0)),
        }
    }

    /// Runs `flush` on the chosen scope; meanwhile the caller counts as one that wants a flush.
    pub(super) fn choose(&self, flush: impl FnOnce(Scope)) {
        // Relaxed throughout this file: a choice that is made on old numbers costs time and nothing else.
        let wanting = self.wanting.0.fetch_add(1, MemoryOrder::Relaxed) + 1;
        let subtree_ns = self.subtree_ns.0.load(MemoryOrder::Relaxed);
        flush(cheaper(
            wanting,
            subtree_ns,
            self.root_ns.0.load(MemoryOrder::Relaxed),
        ));
        self.wanting.0.fetch_sub(1, MemoryOrder::Relaxed);
    }

    /// Records that a flush had the lock for so long.
    pub(super) fn note(&self, scope: Scope, cost_ns: u64) {
        let average_ns = match scope {
            Scope::Root => &self.root_ns.0,
            Scope::Subtree => &self.subtree_ns.0,
        };
        // Two at once: one of them is forgotten.
        let before_ns = average_ns.load(MemoryOrder::Relaxed);
        average_ns.store(averaged(before_ns, cost_ns), MemoryOrder::Relaxed);
    }
}

/// Applies the rule; see the module.
fn cheaper(wanting: u64, subtree_ns: u64, root_ns: u64) -> Scope {
    let is_known = subtree_ns != UNKNOWN && root_ns != UNKNOWN;
    if is_known && wanting.saturating_mul(subtree_ns) > root_ns {
        Scope::Root
    } else {
        Scope::Subtree
    }
}

/// Returns the average after one more cost.
fn averaged(average_ns: u64, cost_ns: u64) -> u64 {
    let cost_ns = cost_ns.max(UNKNOWN + 1);
    if average_ns == UNKNOWN {
        return cost_ns;
    }
    // Upwards, so that an average never rests below what all costs are.
    let sum_ns = average_ns.saturating_mul(WEIGHT_ONE_IN - 1);
    sum_ns.saturating_add(cost_ns).div_ceil(WEIGHT_ONE_IN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_tree_is_cheaper_from_so_many_on() {
        // A subtree costs a tenth of the whole: at ten they are even.
        let choices = [1, 9, 10, 11].map(|wanting| cheaper(wanting, 1_000, 10_000));
        assert_eq!(
            choices,
            [Scope::Subtree, Scope::Subtree, Scope::Subtree, Scope::Root]
        );
        // A reader of the largest group of all saves nothing by flushing less.
        assert_eq!(cheaper(1, 10_000, 10_000), Scope::Subtree);
        assert_eq!(cheaper(2, 10_000, 10_000), Scope::Root);
        assert_eq!(cheaper(u64::MAX, u64::MAX, u64::MAX - 1), Scope::Root);
    }

    #[test]
    fn with_a_cost_unknown_readers_flush_what_they_read() {
        assert_eq!(cheaper(1_000, UNKNOWN, 5), Scope::Subtree);
        assert_eq!(cheaper(1_000, 5, UNKNOWN), Scope::Subtree);
    }

    #[test]
    fn an_average_moves_by_an_eighth() {
        assert_eq!(averaged(UNKNOWN, 800), 800);
        assert_eq!(averaged(800, 1_600), 900);
        assert_eq!(averaged(800, 0), 701, "0 ns are 1 ns: known");
        assert_eq!(averaged(1, 1), 1);
        let long = (0..200).fold(UNKNOWN, |average, _| averaged(average, 1_000));
        assert_eq!(long, 1_000);
    }
}
