//! The right answer of each read, computed after the run from the logs of all workers.
//!
//! The counter that is read only grows, by one for each update. So if `n` updates of a group had completed before a
//! read began, the read is broken exactly if its value is below `n`. It misses `n - value` updates, and the oldest of
//! these is at least as old as the `value + 1`-th completion. The reported staleness is that age, a lower bound on the
//! age of the oldest missing update. The value does not tell which updates are in it.
//!
//! A completion is logged after the update, so an update may count as completed a little later than it was: the truth errs
//! towards "not broken".

use bursar_kernel::stats::GroupIndex;

use super::parameters::Need;
use super::reader::Read;
use super::tree::Tree;
use super::worker::Log;
use crate::measure::{Samples, Unit};

/// Times at which the updates of each query completed, nanoseconds since the start.
pub(super) struct Truth {
    tree: Tree,
    queries: Vec<Vec<u64>>,
}

/// Distance of a read from the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Miss {
    /// Updates that had completed before the read began and are missing in it.
    pub(super) updates: u64,
    /// Least age of the oldest of them when the read began; 0 if there is none.
    pub(super) staleness_ns: u64,
}

impl Miss {
    /// Returns whether the read was older than its reader needed. False for a reader that stated no need.
    fn is_beyond(self, need: Need) -> bool {
        match need {
            Need::Own => false,
            Need::AtMost(age) => u128::from(self.staleness_ns) > age.as_nanos(),
        }
    }
}

/// Errors of all reads together.
#[derive(Clone, Debug)]
pub(super) struct Misses {
    /// Number of reads that missed an update.
    pub(super) broken: u64,
    /// Number of reads that were older than needed.
    pub(super) beyond_need: u64,
    pub(super) staleness: Samples,
    pub(super) updates: Samples,
}

impl Truth {
    /// Sorts the logs by query; the times of each worker's steps go to `steps`.
    pub(super) fn new(tree: Tree, logs: Vec<Log>, steps: &mut Samples) -> Self {
        let mut queries = vec![Vec::new(); tree.all_queries()];
        for log in logs {
            let mut previous = None;
            for (completed_ns, query) in log.into_entries() {
                queries[query].push(completed_ns);
                if let Some(previous) = previous.replace(completed_ns) {
                    steps.record(completed_ns - previous);
                }
            }
        }
        Self { tree, queries }
    }

    /// Compares all reads with the truth.
    pub(super) fn judge(&self, mut reads: Vec<Read>, need: Need) -> Misses {
        let mut misses = Misses {
            broken: 0,
            beyond_need: 0,
            staleness: Samples::new(Unit::Ns),
            updates: Samples::new(Unit::Count),
        };
        reads.sort_unstable_by_key(|read| read.group);
        for reads in reads.chunk_by(|one, other| one.group == other.group) {
            let completions = self.completions(reads[0].group);
            for read in reads {
                let miss = miss(&completions, read);
                misses.broken += u64::from(miss.updates > 0);
                misses.beyond_need += u64::from(miss.is_beyond(need));
                misses.staleness.record(miss.staleness_ns);
                misses.updates.record(miss.updates);
            }
        }
        misses
    }

    /// Returns the times at which the updates that count towards `group` completed, in order.
    fn completions(&self, group: GroupIndex) -> Vec<u64> {
        let mut all = self.queries[self.tree.queries_below(group)].concat();
        // Stable, because that sort makes use of the sorted runs that the workers left.
        all.sort();
        all
    }
}

fn miss(completions: &[u64], read: &Read) -> Miss {
    let completed = completions.partition_point(|&completed_ns| completed_ns < read.began_ns);
    let seen = usize::try_from(read.value).unwrap_or(0);
    if seen >= completed {
        return Miss::default();
    }
    Miss {
        updates: (completed - seen) as u64,
        staleness_ns: read.began_ns - completions[seen],
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TREE: Tree = Tree {
        tenants: 2,
        queries: 2,
        ancestors: 2,
    };

    fn read(group: GroupIndex, began_ns: u64, value: i64) -> Read {
        Read {
            group,
            began_ns,
            ended_ns: began_ns + 1,
            value,
        }
    }

    /// Two workers; queries 0 and 1 are the first tenant's, 2 the second's.
    fn truth() -> (Truth, Samples) {
        let mut logs = [Log::default(), Log::default()];
        for (worker, at, query) in [(0, 10, 0), (0, 30, 1), (0, 50, 2), (1, 20, 0), (1, 40, 2)] {
            logs[worker].push(at, query);
        }
        let mut steps = Samples::new(Unit::Ns);
        (Truth::new(TREE, Vec::from(logs), &mut steps), steps)
    }

    fn miss_of(read: Read) -> (u64, u64) {
        let (truth, _) = truth();
        let miss = miss(&truth.completions(read.group), &read);
        (miss.updates, miss.staleness_ns)
    }

    #[test]
    fn a_read_that_has_all_completed_updates_is_not_broken() {
        assert_eq!(miss_of(read(Tree::ROOT, 35, 3)), (0, 0));
        assert_eq!(
            miss_of(read(Tree::ROOT, 35, 4)),
            (0, 0),
            "it may see more than had completed"
        );
        assert_eq!(
            miss_of(read(TREE.tenant(1), 40, 0)),
            (0, 0),
            "completed at 40 is not before 40"
        );
    }

    #[test]
    fn a_read_that_misses_updates_is_as_old_as_the_first_one_missing() {
        assert_eq!(miss_of(read(Tree::ROOT, 35, 1)), (2, 15));
        assert_eq!(miss_of(read(TREE.tenant(0), 100, 2)), (1, 70));
        assert_eq!(miss_of(read(TREE.query(2), 100, 0)), (2, 60));
    }

    #[test]
    fn broken_reads_of_all_groups_are_counted() {
        let (truth, _) = truth();
        let reads = vec![
            read(Tree::ROOT, 35, 3),
            read(Tree::ROOT, 35, 0),
            read(TREE.tenant(0), 100, 3),
            read(TREE.tenant(1), 100, 2),
        ];
        let misses = truth.judge(reads, Need::AtMost(Duration::from_nanos(25)));
        assert_eq!((misses.broken, misses.beyond_need), (1, 0));
    }

    #[test]
    fn a_read_is_beyond_its_need_if_it_is_older() {
        let miss = |staleness_ns| Miss {
            updates: 1,
            staleness_ns,
        };
        let need = Need::AtMost(Duration::from_nanos(25));
        assert!(!miss(25).is_beyond(need));
        assert!(miss(26).is_beyond(need));
        assert!(!miss(u64::MAX).is_beyond(Need::Own));
        let judged = truth().0.judge(vec![read(Tree::ROOT, 36, 0)], need);
        assert_eq!((judged.broken, judged.beyond_need), (1, 1));
    }

    #[test]
    fn steps_are_taken_within_one_worker() {
        let (_, steps) = truth();
        let steps = steps.distribution().summary();
        assert_eq!((steps.samples, steps.p50, steps.max), (3, 20, 20));
    }
}
