//! The memory of one scenario: a small tree of groups, and the number of updates that each got.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bursar::{
    Builder, Counter, FlushPolicy, Freshness, Group, HighPolicy, Limits, Memory, Reading, Statistic,
};
use bursar_machine::Machine;
use bursar_rig::Watched;

use crate::model::{Flow, GroupIndex, Shape};
use crate::random::Random;

const STATISTICS: &[Statistic] = &[Statistic::counter("rows")];
const ROWS: Counter = Counter::from_name(STATISTICS, "rows");

/// Work of a task.
pub(super) type Task<'a> = Box<dyn FnOnce() + Send + 'a>;

/// No limit.
pub(super) const NO_LIMIT: u64 = u64::MAX;

/// A memory whose groups have indexes. Dropped from the bottom up.
pub(super) struct Books<M: Machine> {
    pub(super) memory: Memory<M>,
    pub(super) groups: Vec<Group<M>>,
    pub(super) shape: Shape,
    /// Updates of each group.
    rows: Vec<Flow>,
    /// Most rows that a read of each group found.
    seen: Vec<AtomicI64>,
}

impl<M: Machine> Books<M> {
    /// Makes the root, with limit `root_max`, and below it groups, each given by its parent (an earlier one) and limit.
    pub(super) fn new(machine: &M, root_max: u64, below: &[(GroupIndex, u64)]) -> Self {
        Self::with_policy(machine, FlushPolicy::Combining, root_max, below)
    }

    /// Makes groups without a limit of the root, where a waiting charge is passed so many times.
    pub(super) fn passing(machine: &M, times: u32, below: &[(GroupIndex, u64)]) -> Self {
        let builder = Memory::builder().passing(times, Duration::MAX);
        Self::built(machine, builder, NO_LIMIT, below)
    }

    /// Makes groups without limits, given by their parents. For a quarter of the seeds each read of a group with children
    /// retires all slots first.
    pub(super) fn read_with_some_policy(machine: &M, seed: u64, below: &[GroupIndex]) -> Self {
        let policy = match Random::fork(seed, u64::MAX).below(4) {
            0 => FlushPolicy::CombiningFence,
            _ => FlushPolicy::Combining,
        };
        let below: Vec<_> = below.iter().map(|&parent| (parent, NO_LIMIT)).collect();
        Self::with_policy(machine, policy, NO_LIMIT, &below)
    }

    fn with_policy(
        machine: &M,
        policy: FlushPolicy,
        root_max: u64,
        below: &[(GroupIndex, u64)],
    ) -> Self {
        Self::built(machine, Memory::builder().policy(policy), root_max, below)
    }

    fn built(machine: &M, builder: Builder, root_max: u64, below: &[(GroupIndex, u64)]) -> Self {
        let memory = builder
            .high_policy(HighPolicy::Throttle)
            .statistics(STATISTICS)
            .max(root_max)
            // Each drain in as many turns as there is stock to take.
            .shards_per_slice(1)
            // Each tick flushes.
            .flush_period(Duration::ZERO)
            // Each read does a step of a pass over idle slots, so each second finds some.
            .retire_period(Duration::ZERO)
            .build_on(machine.clone())
            .expect("a small memory");
        let mut groups = vec![memory.root()];
        let (mut parents, mut paths) = (vec![None], vec!["/".to_owned()]);
        for (index, &(parent, max)) in (1..).zip(below) {
            let name = format!("g{index}");
            let group = groups[parent]
                .child(&name, Limits::max(max))
                .expect("a name of its own");
            let path = format!("{}/{name}", paths[parent].trim_end_matches('/'));
            parents.push(Some(parent));
            paths.push(path);
            groups.push(group);
        }
        Self {
            rows: groups.iter().map(|_| Flow::default()).collect(),
            seen: groups.iter().map(|_| AtomicI64::new(0)).collect(),
            shape: Shape::new(parents, paths),
            groups,
            memory,
        }
    }

    /// Adds one row.
    pub(super) fn add(&self, group: GroupIndex) {
        self.add_to(&self.groups[group], group);
    }

    /// Adds one row to a group that comes and goes below `noted_at`, and records it there.
    pub(super) fn add_to(&self, group: &Group<M>, noted_at: GroupIndex) {
        self.rows[noted_at].change(1, || group.add(ROWS, 1));
    }

    /// Returns the rows of a group that were begun.
    fn begun(&self, scope: GroupIndex) -> i64 {
        let below = |&group: &GroupIndex| self.shape.contains(scope, group);
        let groups = (0..self.shape.len()).filter(below);
        groups.map(|group| self.rows[group].added().1).sum()
    }

    /// Returns the rows of a group that a read which begins now must not miss: those whose update has returned, and
    /// those that a read of a group below has found.
    fn known(&self, scope: GroupIndex) -> i64 {
        let own = self.rows[scope].added().0;
        let children = self.shape.children(scope).map(|at| self.known(at));
        // Relaxed, here and below: one thread of the host runs all tasks.
        let seen = self.seen[scope].load(Ordering::Relaxed);
        seen.max(own + children.sum::<i64>())
    }

    /// Reads exactly, and checks that no update is missing that had returned before, and that none is there that has
    /// not begun.
    pub(super) fn read(&self, scope: GroupIndex) -> Reading {
        let known = self.known(scope);
        let reading = self.groups[scope]
            .read(Freshness::Exact)
            .expect("the policy lets readers flush");
        let begun = self.begun(scope);
        let rows = reading.get(ROWS).value;
        let path = &self.shape.paths[scope];
        assert!(
            rows >= known,
            "stale: {path} reads {rows} rows, and {known} were there before"
        );
        assert!(
            rows <= begun,
            "made up: {path} reads {rows} rows, and only {begun} were ever added"
        );
        self.seen[scope].fetch_max(rows, Ordering::Relaxed);
        reading
    }

    /// Checks, after all tasks have ended, that every group reads its updates, and that own and children make up the
    /// group.
    pub(super) fn check_rows(&self) {
        let rows: Vec<i64> = (0..self.shape.len())
            .map(|group| {
                let reading = self.read(group);
                let own = self.rows[group].added().0;
                let path = &self.shape.paths[group];
                assert_eq!(reading.own(ROWS), own, "own rows of {path}");
                reading.get(ROWS).value
            })
            .collect();
        for group in 0..self.shape.len() {
            let own = self.rows[group].added().0;
            let children: i64 = self.shape.children(group).map(|at| rows[at]).sum();
            let path = &self.shape.paths[group];
            assert_eq!(rows[group], own + children, "own and children of {path}");
        }
    }

    /// Checks, after all tasks have ended or were cut off, that own and children make up the group, and that the rows
    /// of a group are between the returned and the begun updates.
    pub(super) fn check_parts(&self) {
        for (at, group) in self.groups.iter().enumerate() {
            let whole = self.read(at);
            let (mut rows, mut usage) = (whole.own(ROWS), whole.own_usage());
            let mut noted = rows;
            for child in group.children() {
                let part = child.read(Freshness::Exact).expect("as above");
                rows += part.get(ROWS).value;
                usage += part.usage().value;
                if !self.shape.paths.contains(&child.path()) {
                    noted += part.get(ROWS).value;
                }
            }
            let path = &self.shape.paths[at];
            let parts = (rows, usage);
            let all = (whole.get(ROWS).value, whole.usage().value);
            assert_eq!(parts, all, "rows and bytes, own and children's, of {path}");
            let (returned, begun) = self.rows[at].added();
            assert!(
                (returned..=begun).contains(&noted),
                "{path} itself has {noted} rows, and {returned} to {begun} were added"
            );
        }
    }

    /// Checks, after all tasks have ended and all bytes are returned, that there is no usage anywhere, and no stock
    /// that a drain leaves.
    pub(super) fn check_empty(&self) {
        for (group, path) in self.groups.iter().zip(&self.shape.paths).rev() {
            let usage = group.read(Freshness::Exact).expect("as above").usage();
            assert_eq!(
                usage.value, 0,
                "bytes used by {path} after all were returned"
            );
            group.set_max(0);
            let left = group.reserved();
            assert_eq!(
                left, 0,
                "bytes of {path} that nobody holds and no drain finds"
            );
        }
    }
}

/// Runs tasks, each with random numbers of its own, and calls `check` after each step.
pub(super) fn run<'a, M: Watched>(
    machine: &M,
    seed: u64,
    check: impl FnMut() + 'a,
    tasks: Vec<Box<dyn FnOnce(Random) + Send + 'a>>,
) {
    let with_random = |(index, task): (u64, Box<dyn FnOnce(Random) + Send + 'a>)| -> Task<'a> {
        let random = Random::fork(seed, index + 1);
        Box::new(move || task(random))
    };
    let tasks = (0..).zip(tasks).map(with_random).collect();
    machine.run_watched(Box::new(check), tasks);
}
