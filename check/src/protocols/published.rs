//! The published policies, and their promise to readers: *at least one flush has begun since the read began, and has
//! ended before it returned*. So an update that had completed when a read began must be in the read's result.
//!
//! Updaters and readers of a small tree, on two CPUs, under every policy and with three [`Asked`] of the threshold. A
//! stale read is not a bug of this project: these policies are as they were published, and this shows which of them
//! keep the promise.
//!
//! Whatever its policy, a tree must neither lose an update nor invent one. That is checked as well, and is a failure.

use std::fmt;
use std::sync::Mutex;

use bursar_kernel::stats::{Gate, GroupIndex, Policy, Published, Substrate, Tunables};
use bursar_rig::Watched;

use super::books::run;
use super::locked::locked;
use crate::model::Flow;
use crate::random::Random;

/// 0 - 1 - 2, 0 - 3
const PARENTS: [Option<GroupIndex>; 4] = [None, Some(0), Some(1), Some(0)];
/// Groups that are updated.
const LEAVES: [GroupIndex; 2] = [2, 3];
const STATISTIC: usize = 0;
/// CPUs of the machine.
const CPUS: usize = 2;

/// Small enough for both sides of each bound to happen. Time is steps here.
const TUNABLES: Tunables = Tunables {
    max_waiters: 1,
    timeout_ns: 4,
    counters: 2,
};

/// Role of the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// None: a flush is always worth it, so that only the rule by which readers wait is judged.
    Never,
    /// As published, with updates of one page: far below it.
    Small,
    /// As published, with updates each of which is above it.
    Large,
}

/// A policy, and the role of its threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The policy.
    pub policy: Policy,
    /// The role of its threshold.
    pub asked: Asked,
}

/// A read that broke the promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    group: GroupIndex,
    read: i64,
    known: i64,
}

impl Stale {
    /// Begin of its text, and of no other failure's.
    pub const PREFIX: &str = "stale: ";
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, read, known } = self;
        let prefix = Self::PREFIX;
        write!(
            f,
            "{prefix}group {group} reads {read}, and {known} were there before"
        )
    }
}

/// Returns all policies, with each role that the threshold can have.
pub fn all() -> Vec<Case> {
    let cases = |policy| {
        let asked = [Asked::Never, Asked::Small, Asked::Large];
        asked.map(|asked| Case { policy, asked })
    };
    Policy::all(TUNABLES).into_iter().flat_map(cases).collect()
}

impl Case {
    /// Returns the name on the command line.
    pub fn name(self) -> String {
        let policy = self.policy.name();
        match self.asked {
            Asked::Never => policy.to_owned(),
            Asked::Small => format!("{policy}+threshold"),
            Asked::Large => format!("{policy}+large-updates"),
        }
    }

    /// Describes the concurrent operations.
    pub fn summary(self) -> String {
        let asked = match self.asked {
            Asked::Never => "a flush is always worth it",
            Asked::Small => "its own threshold, and updates below it",
            Asked::Large => "its own threshold, and each update is above it",
        };
        format!("{}; {asked}", self.policy.summary())
    }

    /// Returns the number of CPUs of the machine.
    pub fn cpus(self) -> usize {
        CPUS
    }

    /// Runs it once, with variety from a number. Panics if a read is stale.
    pub fn scenario<M: Watched>(self, machine: &M, variety: u64) {
        if let Some(stale) = self.first_stale(machine, variety) {
            panic!("{stale}");
        }
    }

    /// Runs it once, with variety from a number; returns the first stale read.
    pub fn first_stale<M: Watched>(self, machine: &M, variety: u64) -> Option<Stale> {
        let scene = Scene::new(self, machine);
        let scene = &scene;
        let update = move |mut random: Random| {
            for _ in 0..1 + random.below(2) {
                scene.update(random.below(2) as usize);
            }
        };
        let read = move |mut random: Random| {
            for _ in 0..1 + random.below(2) {
                if random.below(2) == 0 {
                    scene.update(random.below(2) as usize);
                }
                scene.read(random.below(PARENTS.len() as u64) as GroupIndex);
            }
        };
        let flush = move |_: Random| scene.published.flush_periodic();
        run(
            machine,
            variety,
            || (),
            tasks![update, read, read, read, read, flush],
        );
        scene.check();
        *locked(&scene.stale)
    }
}

/// A tree under a policy, and its known updates.
struct Scene<M: Watched> {
    published: Published<M>,
    /// Amount that one update adds.
    delta: i64,
    /// By leaf.
    updates: [Flow; 2],
    stale: Mutex<Option<Stale>>,
}

impl<M: Watched> Scene<M> {
    fn new(case: Case, machine: &M) -> Self {
        let gate = match case.asked {
            Asked::Never => Gate::AlwaysDue,
            Asked::Small | Asked::Large => Gate::Threshold,
        };
        let delta = match case.asked {
            Asked::Never | Asked::Small => 1,
            // More than 64 for each CPU.
            Asked::Large => 64 * (machine.cpus() as i64 + 1),
        };
        let substrate = Substrate {
            gate,
            ..Substrate::default()
        };
        let published = Published::new(machine, case.policy, substrate, &PARENTS, 1);
        let published = published.expect("a small tree");
        // It has run for a while, so that costs are known where they are asked.
        published.flush_forced(1);
        published.flush_periodic();
        Self {
            published,
            delta,
            updates: Default::default(),
            stale: Mutex::new(None),
        }
    }

    fn update(&self, leaf: usize) {
        let add = || self.published.add(LEAVES[leaf], STATISTIC, self.delta);
        self.updates[leaf].change(self.delta, add);
    }

    /// Returns the sum of the updates of a group and below it: of those that have returned, and of those that have begun.
    fn sums(&self, group: GroupIndex) -> (i64, i64) {
        let is_below = |leaf: GroupIndex| {
            std::iter::successors(Some(leaf), |&at| PARENTS[at]).any(|at| at == group)
        };
        let leaves = LEAVES.iter().zip(&self.updates);
        let added = leaves
            .filter(|&(&leaf, _)| is_below(leaf))
            .map(|(_, flow)| flow.added());
        added.fold((0, 0), |sum, added| (sum.0 + added.0, sum.1 + added.1))
    }

    fn read(&self, group: GroupIndex) {
        let (known, _) = self.sums(group);
        self.published.flush(group);
        let read = self.published.total(group, STATISTIC);
        let (_, begun) = self.sums(group);
        assert!(
            read <= begun,
            "made up: group {group} reads {read}, and only {begun} were ever added"
        );
        if read < known {
            let mut first = locked(&self.stale);
            first.get_or_insert(Stale { group, read, known });
        }
    }

    /// Checks, after all tasks have ended, that a flush that nothing prevents brings everything.
    fn check(&self) {
        self.published.flush_forced(0);
        for group in 0..PARENTS.len() {
            let read = self.published.total(group, STATISTIC);
            assert_eq!(read, self.sums(group).0, "lost: group {group}");
        }
    }
}
