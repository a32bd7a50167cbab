//! The published policies against a naive model, and what each of them promises its readers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bursar_machine::{Host, Lock, Machine, Shard, busy_wait};
use bursar_rig::Tasks;
use bursar_rig::random::Random;
use bursar_sim::{Settings, Sim, Simulator, Topology};

use super::flush::Flushed;
use super::rstat::Rstat;
use super::*;

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

const TUNABLES: Tunables = Tunables {
    max_waiters: 2,
    timeout_ns: 1_000,
    counters: 2,
};

fn all() -> Vec<Policy> {
    Policy::all(TUNABLES)
}

/// Policies whose statistics need flushes.
fn flushing() -> Vec<Policy> {
    let flushes = |policy: &Policy| !matches!(policy, Policy::TreeWalk | Policy::Eager);
    all().into_iter().filter(flushes).collect()
}

/// 0 - 1 - 2, 0 - 3
const SMALL: [Option<GroupIndex>; 4] = [None, Some(0), Some(1), Some(0)];

fn small(policy: Policy) -> Published<Host> {
    small_on(policy, Substrate::default())
}

fn small_on(policy: Policy, substrate: Substrate) -> Published<Host> {
    Published::new(&host(), policy, substrate, &SMALL, 1).expect("memory")
}

fn flushed<M: Machine>(published: &Published<M>) -> &Flushed<M> {
    published.flushed().expect("a policy that flushes")
}

fn rstat<M: Machine>(published: &Published<M>) -> &Rstat<M> {
    &flushed(published).rstat
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
        for policy in all() {
            let mut random = Random::new(seed);
            let parents = random_tree(&mut random);
            let published =
                Published::new(&host(), policy, Substrate::default(), &parents, STATISTICS)
                    .expect("memory");
            let mut model = Model::new(&parents);
            for _ in 0..2_000 {
                let group = random.below(GROUPS as u64) as usize;
                if random.below(20) == 0 {
                    published.flush_forced(group);
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
                if published.flushed().is_none() {
                    let read = published.total(group, statistic);
                    assert_eq!(read, model.totals[group][statistic], "{policy:?}");
                }
            }
            published.flush_forced(0);
            model.assert_agrees(&published, seed);
        }
    }
}

#[test]
fn a_subtree_flush_brings_its_group_up_to_date_and_passes_the_rest_up() {
    let published = small(Policy::Direct);
    published.add(LEAF, 0, 5);
    published.flush_forced(LEAF);
    assert_eq!(
        (published.total(LEAF, 0), published.total(PARENT, 0)),
        (5, 0)
    );
    published.add(3, 0, 1);
    published.flush_forced(PARENT);
    assert_eq!((published.total(PARENT, 0), published.total(0, 0)), (5, 0));
    published.flush_forced(0);
    assert_eq!(published.total(0, 0), 6);
}

#[test]
fn nothing_is_lost_or_counted_twice_while_threads_update_and_flush() {
    const UPDATES: i64 = 20_000;
    for policy in all() {
        let mut random = Random::new(7);
        let parents = random_tree(&mut random);
        let published = Published::new(&host(), policy, Substrate::default(), &parents, STATISTICS)
            .expect("memory");
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
        if published.flushed().is_some() {
            rstat(&published).list_all();
        }
        published.flush_forced(0);
        assert_eq!(published.total(0, 0), 3 * UPDATES, "{}", policy.name());
    }
}

#[test]
fn direct_waits_for_the_lock_once_for_each_flusher_beyond_the_first() {
    let waits = |flushers: u64| {
        let published = small(Policy::Direct);
        make_due(&published, LEAF);
        // The one that holds the lock stands for the flusher that came first; every other arrives while it works.
        let mut waited = 0;
        thread::scope(|scope| {
            rstat(&published).while_locked(|| {
                for _ in 1..flushers {
                    scope.spawn(|| published.flush(LEAF));
                }
                wait_until(|| published.counts().lock_waits == flushers - 1);
                // Now: a flusher gives the lock up on its way, and may wait for it again.
                waited = published.counts().lock_waits;
            });
        });
        assert_eq!(published.counts().subtree, flushers - 1);
        waited
    };
    assert_eq!([1, 2, 4, 16].map(waits), [0, 1, 3, 15]);
}

#[test]
fn unified_skips_instead_of_waiting_for_the_lock() {
    let published = small(Policy::Unified);
    make_due(&published, LEAF);
    thread::scope(|scope| {
        rstat(&published).while_locked(|| {
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

// The following tests show which policies let a reader return without a flush that began after its read did. Each test
// adds one update that has completed, then reads, and looks whether the read has it.

#[test]
fn every_policy_returns_old_numbers_below_its_threshold() {
    for policy in flushing() {
        let published = small(policy);
        published.add(LEAF, 0, 1);
        published.flush(LEAF);
        assert_eq!(published.total(LEAF, 0), 0, "{}", policy.name());
        assert_eq!(published.counts(), Counts::default(), "{}", policy.name());
    }
}

#[test]
fn every_policy_is_fresh_when_a_lone_reader_finds_enough_updates() {
    for policy in all() {
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
        rstat(&published).while_locked(|| {
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
    let shared = &flushed(published).shared;
    let _subtree_flusher = flushed(published).turn.mutex.lock();
    assert!(shared.begin());
    published.flush_forced(0);
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
        shared.end();
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
        let flusher = flushed(&published).turn.mutex.lock();
        make_due(&published, LEAF);
        scope.spawn(|| published.flush(LEAF));
        wait_until(|| published.counts().lock_waits == 1);
        rstat(&published).counts.folded(Shard(0), LEAF);
        drop(flusher);
    });
    assert_eq!(published.counts().skips, 1);
    assert_eq!(published.total(LEAF, 0), 0);
}

#[test]
fn contended_coalesced_flushes_the_whole_tree_once_for_all() {
    for policy in [
        Policy::Coalesced { max_waiters: 8 },
        Policy::CoalescedFlag { max_waiters: 8 },
    ] {
        let published = small(policy);
        let updates = make_due(&published, LEAF);
        thread::scope(|scope| {
            rstat(&published).while_locked(|| {
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
}

#[test]
fn per_group_looks_again_once_it_holds_the_mutex() {
    let published = small(Policy::PerGroup);
    let updates = make_due(&published, LEAF);
    thread::scope(|scope| {
        let first = flushed(&published).turn.mutex.lock();
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

#[test]
fn direct_root_flushes_the_whole_tree_for_a_reader_of_a_leaf() {
    let published = small(Policy::DirectRoot);
    let updates = make_due(&published, LEAF);
    published.flush(LEAF);
    let counts = published.counts();
    assert_eq!((counts.root, counts.subtree), (1, 0));
    assert_eq!(published.total(0, 0), updates);
}

#[test]
fn a_bounded_mutex_lets_so_many_wait_and_the_next_skip() {
    let published = small(Policy::MutexBounded { max_waiters: 2 });
    let updates = make_due(&published, LEAF);
    thread::scope(|scope| {
        let first = flushed(&published).turn.mutex.lock();
        for _ in 0..2 {
            scope.spawn(|| published.flush(LEAF));
        }
        wait_until(|| published.counts().lock_waits == 2);
        scope.spawn(|| published.flush(LEAF));
        wait_until(|| published.counts().skips == 1);
        drop(first);
    });
    let counts = published.counts();
    assert_eq!((counts.subtree, counts.root, counts.skips), (2, 0, 1));
    assert_eq!(published.total(LEAF, 0), updates);
}

#[test]
fn an_unbounded_mutex_lets_all_wait() {
    let published = small(Policy::MutexBounded {
        max_waiters: UNBOUNDED,
    });
    make_due(&published, LEAF);
    thread::scope(|scope| {
        let first = flushed(&published).turn.mutex.lock();
        for _ in 0..8 {
            scope.spawn(|| published.flush(LEAF));
        }
        wait_until(|| published.counts().lock_waits == 8);
        drop(first);
    });
    let counts = published.counts();
    assert_eq!((counts.subtree, counts.root, counts.skips), (8, 0, 0));
}

#[test]
fn those_who_run_out_of_time_share_one_flush_of_the_whole_tree() {
    let published = small(Policy::TimedLock { timeout_ns: 0 });
    make_due(&published, LEAF);
    thread::scope(|scope| {
        let _turn = flushed(&published).turn.mutex.lock();
        rstat(&published).while_locked(|| {
            scope.spawn(|| published.flush(LEAF));
            wait_until(|| published.counts().root == 1);
            for _ in 0..3 {
                scope.spawn(|| published.flush(LEAF));
            }
            wait_until(|| published.counts().waits == 3);
        });
    });
    let counts = published.counts();
    assert_eq!((counts.root, counts.subtree, counts.waits), (1, 0, 3));
    // Four waited for the lock in vain, and one of them for the global one.
    assert_eq!(counts.lock_waits, 5);
}

#[test]
fn who_gets_the_lock_in_time_flushes_what_it_reads() {
    let published = small(Policy::TimedLock {
        timeout_ns: u64::MAX,
    });
    make_due(&published, LEAF);
    thread::scope(|scope| {
        let turn = flushed(&published).turn.mutex.lock();
        scope.spawn(|| published.flush(LEAF));
        wait_until(|| published.counts().lock_waits == 1);
        drop(turn);
    });
    let counts = published.counts();
    assert_eq!((counts.root, counts.subtree), (0, 1));
}

#[test]
fn adaptive_shares_a_flush_where_those_who_want_one_would_pay_more() {
    let published = small(Policy::Adaptive);
    make_due(&published, LEAF);
    let costs = &flushed(&published).costs;
    costs.note(Scope::Subtree, 100);
    costs.note(Scope::Root, 150);
    thread::scope(|scope| {
        rstat(&published).while_locked(|| {
            scope.spawn(|| published.flush(LEAF));
            wait_until(|| published.counts().subtree == 1);
            // Two subtrees cost 200.
            scope.spawn(|| published.flush(LEAF));
            wait_until(|| published.counts().root == 1);
            scope.spawn(|| published.flush(LEAF));
            wait_until(|| published.counts().waits == 1);
        });
    });
    let counts = published.counts();
    assert_eq!((counts.subtree, counts.root, counts.skips), (1, 1, 0));
}

#[test]
fn own_threshold_does_not_hear_of_updates_below() {
    let published = small(Policy::OwnThreshold);
    let updates = make_due(&published, LEAF);
    published.flush(PARENT);
    assert_eq!(published.total(PARENT, 0), 0, "nothing of its own");
    published.flush_forced(PARENT);
    assert_eq!(published.total(PARENT, 0), updates);
    published.flush(LEAF);
    assert_eq!(published.counts().subtree, 1, "its count was reset");
}

#[test]
fn net_change_flushes_for_what_moved_alone() {
    for (policy, flushes) in [(Policy::PerGroup, 1), (Policy::PerGroupNet, 0)] {
        let published = small(policy);
        let updates = make_due(&published, LEAF);
        published.add(LEAF, 0, -updates);
        published.flush(LEAF);
        assert_eq!(published.counts().subtree, flushes, "{}", policy.name());
    }
}

#[test]
fn a_forced_flush_asks_no_threshold_and_waits_in_no_queue() {
    for policy in flushing() {
        let published = small(policy);
        published.add(LEAF, 0, 1);
        let _turn = flushed(&published).turn.mutex.lock();
        published.flush_forced(LEAF);
        assert_eq!(published.total(LEAF, 0), 1, "{}", policy.name());
    }
}

#[test]
fn a_flush_drops_the_lock_after_so_many_cpus_if_it_is_wanted() {
    let shards = host().cpus() + 1;
    for cpus_a_hold in [1, 2, 8, 64, usize::MAX] {
        let substrate = Substrate {
            cpus_a_hold,
            ..Substrate::default()
        };
        let published = small_on(Policy::Direct, substrate);
        published.flush_forced(0);
        assert_eq!(published.counts().lock_drops, 0, "nobody wants it");
        rstat(&published).want();
        published.flush_forced(0);
        let holds = shards.div_ceil(cpus_a_hold) as u64;
        assert_eq!(published.counts().lock_drops, holds - 1, "{cpus_a_hold}");
    }
}

#[test]
fn todays_kernel_drops_the_lock_after_each_cpu_though_nobody_wants_it() {
    let published = small(Policy::Kernel617);
    published.flush_forced(0);
    assert_eq!(published.counts().lock_drops, host().cpus() as u64);
}

// On simulated machines, whose time is their own.

fn simulated(cpus: usize) -> Simulator {
    Simulator::new(Settings::new(Topology::new(cpus, 1, 1000), 1))
}

#[test]
fn a_ratelimited_flush_waits_for_two_periods() {
    const PERIOD_NS: u64 = 1_000_000;
    let simulator = simulated(2);
    let machine = simulator.machine();
    for policy in flushing() {
        let substrate = Substrate::with_period(PERIOD_NS);
        let published = Published::new(&machine, policy, substrate, &SMALL, 1).expect("memory");
        published.flush_periodic();
        let began_ns = machine.now_ns();
        published.add(LEAF, 0, 1_000);
        machine.sleep_until(began_ns + 2 * PERIOD_NS);
        published.flush_ratelimited(LEAF);
        let counts = published.counts();
        assert_eq!(counts.ratelimited_skips, 1, "{}", policy.name());
        assert_eq!(published.total(LEAF, 0), 0);
        machine.sleep_until(began_ns + 2 * PERIOD_NS + 1);
        published.flush_ratelimited(LEAF);
        assert_eq!(published.counts().ratelimited_skips, 1);
        assert_eq!(published.total(LEAF, 0), 1_000, "{}", policy.name());
        // Not late, and asked again: what is below the threshold stays.
        machine.sleep_until(began_ns + 9 * PERIOD_NS);
        published.add(LEAF, 0, 1);
        let flushes = |counts: Counts| counts.root + counts.subtree;
        let before = published.counts();
        published.flush_periodic();
        published.flush_ratelimited(LEAF);
        assert_eq!(flushes(published.counts()), flushes(before) + 1);
    }
}

/// Virtual time that each of some flushers takes on average, all at once.
fn simulated_flush_ns(policy: Policy, flushers: usize) -> u64 {
    let simulator = simulated(64);
    let machine = simulator.machine();
    let substrate = Substrate {
        gate: Gate::AlwaysDue,
        ..Substrate::default()
    };
    let published = Published::<Sim>::new(&machine, policy, substrate, &SMALL, 1).expect("memory");
    let mut taken_ns = vec![0; flushers];
    let tasks = taken_ns.iter_mut().map(|taken_ns| {
        let (machine, published) = (&machine, &published);
        Box::new(move || {
            published.add(LEAF, 0, 1);
            let began_ns = machine.now_ns();
            published.flush(LEAF);
            *taken_ns = machine.now_ns() - began_ns;
        }) as Box<dyn FnOnce() + Send>
    });
    machine.run(tasks.collect());
    taken_ns.iter().sum::<u64>() / flushers as u64
}

#[test]
fn direct_is_slower_with_each_flusher_on_a_simulated_machine() {
    let direct = [1, 4, 16, 64].map(|flushers| simulated_flush_ns(Policy::Direct, flushers));
    println!("virtual ns a flush by 1, 4, 16, 64 flushers: {direct:?}");
    assert!(
        direct.is_sorted_by(|few, many| 2 * few < *many),
        "{direct:?}"
    );
    let unified = simulated_flush_ns(Policy::Unified, 64);
    assert!(10 * unified < direct[3], "{unified} ns: others skip");
}
