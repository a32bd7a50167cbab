use bursar_machine::Host;
use bursar_rig::random::Random;

use super::*;

fn counters(count: usize, threshold: i64) -> SmallCounters<Host> {
    let machine = Host::start().expect("a host");
    SmallCounters::new(&machine, count, threshold).expect("room")
}

/// Folds all shards.
fn fold_all(counters: &SmallCounters<Host>) -> u64 {
    counters.shards().map(|shard| counters.fold(shard)).sum()
}

fn held(counters: &SmallCounters<Host>, counter: usize) -> i64 {
    counters.precise(counter) - counters.read(counter)
}

#[test]
fn additions_are_held_back_until_they_exceed_the_threshold() {
    // One thread may move between CPUs, each of which may hold back 10.
    let counters = counters(2, 10);
    counters.add(1, 10);
    assert_eq!((counters.read(1), counters.precise(1)), (0, 10));
    assert_eq!(fold_all(&counters), 1);
    assert_eq!((counters.read(1), counters.precise(1)), (10, 10));
    counters.add(1, 11);
    assert_eq!(counters.read(1), 21, "all of it at once");
    counters.add(1, -11);
    assert_eq!((counters.read(1), counters.read(0)), (10, 0));
    assert_eq!(fold_all(&counters), 0);
}

#[test]
fn steps_move_half_a_threshold_in_advance() {
    let counters = counters(1, 10);
    let only = counters.machine.cpus() as u32;
    // The test cannot choose this thread's CPU: count moves over all CPUs, and allow for each CPU's part.
    let mut moves = 0;
    let mut last = 0;
    for _ in 0..16_000 {
        counters.inc(0);
        let now = counters.read(0);
        moves += u64::from(now != last);
        last = now;
    }
    // From -5 to 11, so that one in 16 moves; without the advance one in 11 would.
    assert!((16_000 / 17..=16_000 / 16 + 2 * u64::from(only)).contains(&moves));
    assert_eq!(counters.precise(0), 16_000);
    let most = 10 * i64::from(only + 1);
    assert!(held(&counters, 0).abs() <= most);
    (0..16_000).for_each(|_| counters.dec(0));
    assert_eq!(counters.precise(0), 0);
    assert!(held(&counters, 0).abs() <= most);
    fold_all(&counters);
    assert_eq!(counters.read(0), 0);
}

#[test]
fn folding_again_changes_nothing_and_needs_says_so() {
    let counters = counters(3, 100);
    counters.add(2, 7);
    counters.add(0, -7);
    let needs = |counters: &SmallCounters<Host>| {
        let shards = counters.shards();
        shards.filter(|&shard| counters.needs_fold(shard)).count()
    };
    assert!((1..=2).contains(&needs(&counters)));
    assert_eq!(fold_all(&counters), 2);
    assert_eq!(needs(&counters), 0);
    assert_eq!(fold_all(&counters), 0);
}

#[test]
fn without_a_threshold_nothing_is_held_back() {
    for threshold in [0, -5] {
        let counters = counters(1, threshold);
        counters.add(0, 1);
        counters.inc(0);
        counters.dec(0);
        assert_eq!(counters.read(0), 1);
    }
}

#[test]
fn a_lower_threshold_counts_from_the_next_addition() {
    let counters = counters(1, 100);
    counters.add(0, 50);
    counters.set_threshold(1);
    assert_eq!(counters.threshold(), 1);
    assert_eq!(counters.read(0), 0);
    // On the same CPU or another: in the end each holds back 1 at most.
    (0..1_000).for_each(|_| counters.add(0, 2));
    fold_all(&counters);
    assert_eq!(counters.read(0), 2_050);
}

#[test]
fn extremes_wrap_and_harm_nobody() {
    let counters = counters(1, i64::MAX);
    counters.add(0, i64::MAX);
    counters.add(0, i64::MIN);
    counters.inc(0);
    fold_all(&counters);
    assert_eq!((counters.read(0), counters.precise(0)), (0, 0));
}

#[test]
#[should_panic = "no such counter"]
fn a_counter_that_is_not_there_is_a_bug() {
    counters(1, 1).add(1, 1);
}

#[test]
fn a_recount_agrees() {
    let counters = counters(2, 3);
    (0..100).for_each(|_| counters.inc(1));
    let before = counters.read(1);
    counters.recount();
    assert_eq!((counters.read(0), counters.read(1)), (0, before));
}

#[test]
fn threads_and_folders_lose_nothing_and_count_nothing_twice() {
    let counters = counters(2, 5);
    let cpus = counters.machine.cpus() as i64;
    let total: i64 = std::thread::scope(|scope| {
        let adders: Vec<_> = (0..4)
            .map(|seed| {
                let counters = &counters;
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    let mut sum = 0;
                    for _ in 0..20_000 {
                        let delta = random.below(9) as i64 - 3;
                        sum += delta;
                        counters.add(0, delta);
                        if random.happens(3) {
                            counters.inc(1);
                        } else {
                            counters.dec(1);
                        }
                    }
                    sum
                })
            })
            .collect();
        let folder = scope.spawn(|| (0..2_000).map(|_| fold_all(&counters)).sum::<u64>());
        let sums = adders.into_iter().map(|adder| adder.join().expect("ends"));
        let total = sums.sum();
        folder.join().expect("ends");
        total
    });
    assert_eq!(counters.precise(0), total);
    assert!(held(&counters, 0).abs() <= 5 * (cpus + 1));
    fold_all(&counters);
    assert_eq!(counters.read(0), total);
    assert_eq!(held(&counters, 1), 0);
}
