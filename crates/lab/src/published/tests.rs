//! The published policies against a naive model, and what each of them promises its readers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bursar_machine::{Host, Shard, busy_wait};

use super::*;
use crate::random::Random;

const POLICIES: [Policy; 4] = [
    Policy::Unified,
    Policy::Direct,
    Policy::Coalesced { max_waiters: 2 },
    Policy::PerGroup,
];
const GROUPS: usize = 40;
const STATISTICS: usize = 3;
/// A leaf of the small tree of `small`, its parent, and a leaf elsewhere.
const LEAF: GroupIndex = 2;
const PARENT: GroupIndex = 1;

fn host() -> Host {
    Host::start().expect("the host has a backend")
}

/// Waits for what other threads are about to do. Fails, so that a broken policy does not hang the tests, after far more
/// rounds than that can take.
fn wait_until(happened: impl FnMut() -> bool) {
    busy_wait(happened, |round| {
        assert!(round < 5_000_000, "what was waited for never came");
        thread::yield_now();
    });
}

fn random_tree(random: &mut Random) -> Vec<Option<GroupIndex>> {
    let parent = |group: usize, random: &mut Random| random.below(group as u64) as usize;
    (0..GROUPS)
        .map(|group| (group > 0).then(|| parent(group, random)))
        .collect()
}

/// 0 - 1 - 2, 0 - 3
fn small(policy: Policy) -> Published<Host> {
    Published::new(&host(), policy, &[None, Some(0), Some(1), Some(0)], 1).expect("memory")
}

/// Enough updates of a leaf for a flush to be worth it, whatever the policy and wherever the scheduler puts them.
fn make_due(published: &Published<Host>, group: GroupIndex) -> i64 {
    let updates = (4 * 64 * (host().cpus() as i64 + 2)) * 2;
    published.add(group, 0, updates);
    updates
}

/// Sum of the updates of each group and all below it.
struct Model {
    parents: Vec<Option<GroupIndex>>,
    totals: Vec<[i64; STATISTICS]>,
}

impl Model {
    fn new(parents: &[Option<GroupIndex>]) -> Self {
        Self {
            parents: parents.to_vec(),
            totals: vec![[0; STATISTICS]; parents.len()],
        }
    }

    fn add(&mut self, group: GroupIndex, statistic: usize, delta: i64) {
        let mut next = Some(group);
        while let Some(group) = next {
            self.totals[group][statistic] += delta;
            next = self.parents[group];
        }
    }

    fn assert_agrees(&self, published: &Published<Host>, seed: u64) {
        for (group, totals) in self.totals.iter().enumerate() {
            for (statistic, total) in totals.iter().enumerate() {
                assert_eq!(
                    published.total(group, statistic),
                    *total,
                    "{} seed {seed}: group {group}, statistic {statistic}",
                    published.policy().name()
                );
            }
        }
    }
}

#[test]
fn random_updates_and_flushes_agree_with_a_naive_model() {
    for seed in 0..20 {
        for policy in POLICIES {
            let mut random = Random::new(seed);
            let parents = random_tree(&mut random);
            let published = Published::new(&host(), policy, &parents, STATISTICS).expect("memory");
            let mut model = Model::new(&parents);
            for _ in 0..2_000 {
                let group = random.below(GROUPS as u64) as usize;
                if random.below(20) == 0 {
                    published.rstat.flush(group);
                    continue;
                }
                if random.below(20) == 0 {
                    published.flush(group);
                    continue;
                }
                let statistic = random.below(STATISTICS as u64) as usize;
                let delta = random.below(200) as i64 - 100;
                published.add(group, statistic, delta);
                model.add(group, statistic, delta);
            }
            published.flush_periodic();
            model.assert_agrees(&published, seed);
        }
    }
}

#[test]
fn a_subtree_flush_brings_its_group_up_to_date_and_passes_the_rest_up() {
    let published = small(Policy::Direct);
    published.add(LEAF, 0, 5);
    published.rstat.flush(LEAF);
    assert_eq!(
        (published.total(LEAF, 0), published.total(PARENT, 0)),
        (5, 0)
    );
    published.add(3, 0, 1);
    published.rstat.flush(PARENT);
    assert_eq!((published.total(PARENT, 0), published.total(0, 0)), (5, 0));
    published.rstat.flush(0);
    assert_eq!(published.total(0, 0), 6);
}

#[test]
fn nothing_is_lost_or_counted_twice_while_threads_update_and_flush() {
    const UPDATES: i64 = 20_000;
    for policy in POLICIES {
        let mut random = Random::new(7);
        let parents = random_tree(&mut random);
        let published = Published::new(&host(), policy, &parents, STATISTICS).expect("memory");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for reader in 0..2 {
                let (published, done) = (&published, &done);
                scope.spawn(move || {
                    let mut random = Random::fork(1, reader);
                    while !done.load(Ordering::Relaxed) {
                        published.flush(random.below(GROUPS as u64) as usize);
                        published.flush_periodic();
                    }
                });
            }
            let writers: Vec<_> = (0..3)
                .map(|_| {
                    let published = &published;
                    scope.spawn(move || {
                        for update in 0..UPDATES {
                            published.add(update as usize % GROUPS, 0, 1);
                        }
                    })
                })
                .collect();
            for writer in writers {
                writer.join().expect("a writer");
            }
            done.store(true, Ordering::Relaxed);
        });
        // An update that saw "listed" while it was being taken off the list waits for the next one on its CPU (see the
        // module): list every group everywhere, as that next one would.
        published.rstat.list_all();
        published.rstat.flush(0);
        assert_eq!(published.total(0, 0), 3 * UPDATES, "{}", policy.name());
    }
}

#[test]
fn direct_waits_for_the_lock_once_for_each_flusher_beyond_the_first() {
    let waits = |flushers: u64| {
        let published = small(Policy::Direct);
        make_due(&published, LEAF);
        // The one that holds the lock stands for the flusher that came first; every other arrives while it works.
        thread::scope(|scope| {
            published.rstat.while_locked(|| {
                for _ in 1..flushers {
                    scope.spawn(|| published.flush(LEAF));
                }
                wait_until(|| published.counts().lock_waits == flushers - 1);
            });
        });
        assert_eq!(published.counts().subtree, flushers - 1);
        published.counts().lock_waits
    };
    assert_eq!([1, 2, 4, 16].map(waits), [0, 1, 3, 15]);
}

#[test]
fn unified_skips_instead_of_waiting_for_the_lock() {
    let published = small(Policy::Unified);
    make_due(&published, LEAF);
    thread::scope(|scope| {
        published.rstat.while_locked(|| {
            scope.spawn(|| published.flush(LEAF));
            wait_until(|| published.counts().lock_waits == 1);
            for _ in 0..15 {
                scope.spawn(|| published.flush(LEAF));
            }
            wait_until(|| published.counts().skips == 15);
        });
    });
    let counts = published.counts();
    assert_eq!((counts.root, counts.skips, counts.lock_waits), (1, 15, 1));
}

// What follows shows which policies let a reader return without a flush that began after its read did. Each test adds one
// update that has completed, then reads, and looks whether the read has it.

#[test]
fn every_policy_returns_old_numbers_below_its_threshold() {
    for policy in POLICIES {
        let published = small(policy);
        published.add(LEAF, 0, 1);
        published.flush(LEAF);
        assert_eq!(published.total(LEAF, 0), 0, "{}", policy.name());
        assert_eq!(published.counts(), Counts::default(), "{}", policy.name());
    }
}

#[test]
fn every_policy_is_fresh_when_a_lone_reader_finds_enough_updates() {
    for policy in POLICIES {
        let published = small(policy);
        let updates = make_due(&published, LEAF);
        published.flush(LEAF);
        assert_eq!(published.total(LEAF, 0), updates, "{}", policy.name());
    }
}

#[test]
fn a_reader_that_skips_returns_old_numbers() {
    let published = small(Policy::Unified);
    let updates = make_due(&published, LEAF);
    thread::scope(|scope| {
        published.rstat.while_locked(|| {
            scope.spawn(|| published.flush(0));
            wait_until(|| published.counts().lock_waits == 1);
            scope.spawn(|| published.flush(LEAF));
            wait_until(|| published.counts().skips == 1);
            assert_eq!(
                published.total(LEAF, 0),
                0,
                "skipped: nothing was flushed yet"
            );
        });
    });
    assert_eq!(published.total(LEAF, 0), updates);
}

/// Runs `read` while a flush of the whole tree, which folded everything before `read` was called, has not ended yet.
fn during_a_shared_flush(published: &Published<Host>, read: impl Fn() + Sync) {
    let running = Arc::new(<Host as Machine>::Event::new());
    let _subtree_flusher = published.flushing.lock();
    *published.shared.lock() = Some(running.clone());
    published.rstat.flush(0);
    make_due(published, 3);
    published.add(LEAF, 0, 1);
    let before = published.counts();
    thread::scope(|scope| {
        scope.spawn(&read);
        let arrived = || {
            let now = published.counts();
            now.waits + now.skips > before.waits + before.skips
        };
        wait_until(arrived);
        *published.shared.lock() = None;
        running.set();
    });
}

#[test]
fn a_reader_that_joins_a_flush_may_return_old_numbers() {
    let published = small(Policy::Coalesced { max_waiters: 1 });
    during_a_shared_flush(&published, || published.flush(LEAF));
    assert_eq!(published.counts().waits, 1);
    assert_eq!(
        published.total(LEAF, 0),
        0,
        "it waited, and misses the update all the same"
    );
}

#[test]
fn a_reader_beyond_the_bound_on_waiters_returns_old_numbers() {
    let published = small(Policy::Coalesced { max_waiters: 0 });
    during_a_shared_flush(&published, || published.flush(LEAF));
    let counts = published.counts();
    assert_eq!((counts.waits, counts.skips), (0, 1));
    assert_eq!(published.total(LEAF, 0), 0);
}

#[test]
fn a_reader_whose_threshold_is_reset_while_it_waits_returns_old_numbers() {
    let published = small(Policy::PerGroup);
    thread::scope(|scope| {
        // A flush is past the CPU where these updates are made now, and folds the group on another one once the reader has
        // found them and waits: that resets the count which the reader looks at again.
        let flusher = published.flushing.lock();
        make_due(&published, LEAF);
        scope.spawn(|| published.flush(LEAF));
        wait_until(|| published.counts().lock_waits == 1);
        published.rstat.counts.folded(Shard(0), LEAF);
        drop(flusher);
    });
    assert_eq!(published.counts().skips, 1);
    assert_eq!(published.total(LEAF, 0), 0);
}

#[test]
fn contended_coalesced_flushes_the_whole_tree_once_for_all() {
    let published = small(Policy::Coalesced { max_waiters: 8 });
    let updates = make_due(&published, LEAF);
    thread::scope(|scope| {
        published.rstat.while_locked(|| {
            scope.spawn(|| published.flush(LEAF));
            wait_until(|| published.counts().lock_waits == 1);
            for _ in 0..6 {
                scope.spawn(|| published.flush(LEAF));
            }
            wait_until(|| published.counts().waits == 5);
        });
    });
    let counts = published.counts();
    assert_eq!((counts.subtree, counts.root, counts.skips), (1, 1, 0));
    assert_eq!(published.total(0, 0), updates);
}

#[test]
fn per_group_looks_again_once_it_holds_the_mutex() {
    let published = small(Policy::PerGroup);
    let updates = make_due(&published, LEAF);
    thread::scope(|scope| {
        let first = published.flushing.lock();
        for _ in 0..4 {
            scope.spawn(|| published.flush(LEAF));
        }
        wait_until(|| published.counts().lock_waits == 4);
        drop(first);
    });
    let counts = published.counts();
    assert_eq!((counts.subtree, counts.skips), (1, 3));
    assert_eq!(published.total(LEAF, 0), updates);
}
