//! The share as a function of plain numbers.

use bursar::{Limits, Memory};
use bursar_rig::random::Random;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

use super::*;
use crate::GroupPool;

fn standing(limit: u64, others: u64, held: &[u64]) -> Standing {
    let spillable = held.iter().sum();
    let active = held.iter().filter(|&&held| held > 0).count() as u64;
    Standing {
        limit,
        used: others + spillable,
        spillable,
        active,
        idle: held.len() as u64 - active,
        merges: 0,
    }
}

fn tenant() -> Group {
    let memory = Memory::host().unwrap();
    memory.root().child("tenant", Limits::max(1 << 30)).unwrap()
}

fn spiller(pool: &Arc<dyn MemoryPool>) -> MemoryReservation {
    let consumer = MemoryConsumer::new("spiller").with_can_spill(true);
    consumer.register(pool)
}

#[test]
fn worked_cases() {
    // Limit, what others use, what spillers hold, and the share of each that holds bytes.
    let cases: [(u64, u64, &[u64], u64); 9] = [
        (1200, 0, &[1], 1200),
        // One of eight has half of it.
        (1200, 0, &[1, 0, 0, 0, 0, 0, 0, 0], 600),
        (1200, 0, &[1, 1, 0, 0, 0, 0, 0, 0], 400),
        // All hold bytes: FairSpillPool's share.
        (1200, 0, &[1, 1, 1, 1, 1, 1, 1, 1], 150),
        (1200, 200, &[1, 1], 500),
        (1200, 1200, &[1, 1], 0),
        (1200, 5000, &[1, 1], 0),
        (0, 0, &[1], 0),
        // Nobody: nothing is divided by 0.
        (1200, 0, &[], 1200),
    ];
    for (limit, others, held, share) in cases {
        let standing = standing(limit, others, held);
        assert_eq!(standing.share(), share, "{standing:?}");
    }
}

/// Products say the same as shares.
#[test]
fn a_request_is_allowed_as_its_share_says() {
    let mut random = Random::new(3);
    let mut allowed = [0; 2];
    for _ in 0..200_000 {
        let limit = 1 << random.below(63);
        let standing = Standing {
            limit,
            used: random.below(limit + limit / 8 + 1),
            spillable: random.below(limit + 1),
            active: random.below(5),
            idle: random.below(5),
            merges: random.below(4) / 3,
        };
        let held = random.below(limit + 1) * random.below(2);
        let requested = 1 + random.below(limit);
        let asking = standing.of(held);
        let share = u128::from(asking.share());
        let [used, limit, held_too, more] = [standing.used, limit, held, requested].map(u128::from);
        let stays_free = held == 0 || asking.idle == 0 || used + more + share <= limit;
        let expected = held_too + more <= share && stays_free;
        let found = standing.allows(held, requested);
        assert_eq!(found, expected, "{held}, {requested}: {standing:?}");
        allowed[usize::from(found)] += 1;
    }
    assert!(allowed.iter().all(|&count| count > 10_000), "{allowed:?}");
}

#[test]
fn a_part_is_kept_for_merges() {
    // Bytes of others, bytes of each spiller, and the share of each.
    let cases: [(u64, &[u64], u64); 6] = [
        (0, &[1], 600),
        (0, &[1, 1], 400),
        (0, &[1, 0], 400),
        (0, &[1, 1, 0, 0], 300),
        // Others' bytes may be the merges'.
        (300, &[1, 1], 400),
        (500, &[1, 1], 350),
    ];
    for (others, held, share) in cases {
        let standing = Standing {
            merges: 2,
            ..standing(1200, others, held)
        };
        assert_eq!(standing.share(), share, "{standing:?}");
    }
}

#[test]
fn who_holds_nothing_is_counted_in() {
    let one_of_three = standing(1200, 0, &[600, 0, 0]);
    assert!(one_of_three.allows(0, 400));
    assert!(!one_of_three.allows(0, 401));
    // The other may have no more: what is free is a newcomer's.
    assert!(!one_of_three.allows(600, 1));
    let last_of_three = standing(1200, 0, &[400, 400, 0]);
    assert!(last_of_three.allows(0, 400));
    assert!(!last_of_three.allows(400, 1));
}

#[test]
fn without_a_limit_all_is_allowed() {
    assert!(standing(u64::MAX, 0, &[5, 0]).allows(u64::MAX, u64::MAX));
    // And numbers that cannot be are only refused.
    assert!(!standing(1200, 0, &[5, 0]).allows(u64::MAX, u64::MAX));
}

#[test]
fn shares_never_exceed_what_is_left() {
    let mut numbers = Random::new(1);
    for _ in 0..100_000 {
        let count = numbers.below(20) as usize;
        let held: Vec<u64> = (0..count)
            .map(|_| numbers.below(3) * numbers.below(500))
            .collect();
        let standing = standing(numbers.below(5000), numbers.below(3000), &held);
        let others = standing.used - standing.spillable;
        let left = standing.limit.saturating_sub(others);
        let (active, share) = (standing.active, standing.share());
        // Spillers that hold bytes, and one that begins.
        assert!(
            share * (active + standing.idle.min(1)) <= left,
            "{standing:?}"
        );
        // No less than FairSpillPool's.
        assert!(
            share >= left / (active + standing.idle).max(1),
            "{standing:?}"
        );
        if standing.idle == 0 && active > 0 {
            assert_eq!(share, left / active, "{standing:?}");
        }
    }
}

#[test]
fn who_comes_last_finds_an_even_share_free() {
    // Each takes all it may, byte by byte, before the next begins. None has to spill.
    for count in 1..40_usize {
        let (limit, others) = (100_000, 1_234);
        let mut held = vec![0; count];
        for one in 0..count {
            while standing(limit, others, &held).allows(held[one], 1) {
                held[one] += 1;
            }
            let free = limit - others - held.iter().sum::<u64>();
            assert!(held[one] > 0);
            if one + 1 < count {
                let even = (limit - others) / (one as u64 + 2);
                assert!(free >= even, "{free} are free after {held:?}, not {even}");
            }
        }
    }
}

/// A spiller that returns all of its bytes, and then ends.
#[test]
fn each_spiller_that_ends_is_counted_once() {
    let tenant = tenant();
    let share = FairShare::new(&tenant);
    let pool: Arc<dyn MemoryPool> = GroupPool::builder(tenant.clone()).share(&share).build();
    let active = || share.shared.counts.active.load(Ordering::Relaxed);
    for bytes_left in [0, 1] {
        let spiller = spiller(&pool);
        spiller.grow(100);
        assert_eq!(active(), 1);
        spiller.shrink(100 - bytes_left);
        assert_eq!(active(), bytes_left as i64);
        drop(spiller);
        assert_eq!(active(), 0);
    }
}

#[test]
fn rough_numbers_lack_little_of_each_spiller() {
    let tenant = tenant();
    // So small that the least counts.
    tenant.set_max(8 << 20);
    let share = FairShare::new(&tenant);
    let pool: Arc<dyn MemoryPool> = GroupPool::builder(tenant.clone()).share(&share).build();
    let spillers = [(); 4].map(|()| spiller(&pool));
    // Each by two threads at once, through zero and past what the sum may lack again and again.
    std::thread::scope(|scope| {
        for (thread, spiller) in spillers.iter().cycle().take(8).enumerate() {
            scope.spawn(move || {
                let mut numbers = Random::fork(1, thread as u64);
                for _ in 0..5_000 {
                    let bytes = 1 + numbers.below(300_000) as usize;
                    spiller.grow(bytes);
                    spiller.shrink(bytes);
                }
                spiller.grow(thread % 4 * 100_000);
            });
        }
    });
    assert!(
        Arc::weak_count(&pool) == 0,
        "a share that can reach the pool may be the one to end it"
    );
    let (rough, exact) = (share.roughly(share.shared.chain.max()), share.exactly());
    assert_eq!((exact.active, exact.idle), (3, 1));
    assert_eq!((rough.active, rough.idle), (exact.active, exact.idle));
    assert_eq!(exact.spillable, 1_200_000);
    assert_eq!(exact.used, exact.spillable);
    let below = exact.spillable - rough.spillable;
    assert!(below <= 4 * 2 * LEAST_UNTOLD, "{below}");
    assert!(rough.used >= exact.used);
    drop(spillers);
    let rough = share.roughly(1 << 30);
    assert_eq!((rough.spillable, rough.active, rough.idle), (0, 0, 0));
    assert_eq!(share.shared.counts.registered.load(Ordering::Relaxed), 0);
}

#[test]
fn batches_far_from_the_limit_stay_out_of_the_sum() {
    let tenant = tenant();
    let share = FairShare::new(&tenant);
    let pool: Arc<dyn MemoryPool> = GroupPool::builder(tenant.clone()).share(&share).build();
    let spillers = [(); 2].map(|()| spiller(&pool));
    let told = || number(&share.shared.counts.told);
    // Twice what the sum may lack of each, and more.
    spillers[0].grow(40 << 20);
    let before = told();
    assert!(before > 0);
    for _ in 0..3 {
        spillers[0].try_grow(1 << 20).unwrap();
        assert_eq!(told(), before);
        spillers[0].shrink(1 << 20);
        assert_eq!(told(), before);
    }
    // A lower limit: the first check that needs exact numbers brings the sum up to date, and the next need none.
    tenant.set_max(100 << 20);
    spillers[1].grow(16 << 20);
    let lacks = (56 << 20) - told();
    assert!(lacks > 8 << 20, "{lacks}");
    assert!(!share.allows_roughly(16 << 20, 32 << 20));
    share.check(16 << 20, 32 << 20).unwrap();
    assert!(share.allows_roughly(16 << 20, 32 << 20));
    drop(spillers);
    assert_eq!(told(), 0);
}

#[test]
fn what_spillers_move_meanwhile_is_theirs() {
    let tenant = tenant();
    let share = FairShare::new(&tenant);
    let query = tenant.child("query", Limits::none()).unwrap();
    let pool: Arc<dyn MemoryPool> = GroupPool::builder(query).share(&share).build();
    let spiller = spiller(&pool);
    spiller.grow(100);
    let standing = share.exactly_with(|| {
        spiller.grow(50);
        chain::usage(&tenant)
    });
    assert_eq!((standing.used, standing.spillable), (150, 150));
    let standing = share.exactly_with(|| {
        let used = chain::usage(&tenant);
        spiller.free();
        used
    });
    assert_eq!((standing.used, standing.spillable), (150, 150));
    assert_eq!(standing.active, 1);
    assert_eq!(share.exactly().spillable, 0);
}

#[test]
fn a_request_counts_while_it_is_charged_and_no_longer() {
    let tenant = tenant();
    let share = FairShare::new(&tenant);
    let query = tenant.child("query", Limits::max(1 << 20)).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let _reclaimer = {
        let (share, seen) = (share.clone(), Arc::clone(&seen));
        query.add_reclaimer(0, move |_| {
            let now = share.exactly();
            seen.lock().unwrap().push((now.used, now.spillable));
            0
        })
    };
    let pool: Arc<dyn MemoryPool> = GroupPool::builder(query).share(&share).build();
    let spiller = spiller(&pool);
    spiller.try_grow(1000).unwrap();
    // Its share allows it, but not the limit, at which the reclaimer is called.
    assert!(spiller.try_grow(1 << 20).is_err());
    let during = (1000, 1000 + (1 << 20));
    assert!(seen.lock().unwrap().contains(&during), "{seen:?}");
    let after = share.exactly();
    assert_eq!((after.used, after.spillable), (1000, 1000));
    assert_eq!(share.roughly(1 << 30).spillable, 0);
    spiller.grow(1 << 20);
    let during = (1000, 1000 + (1 << 20));
    let seen = seen.lock().unwrap();
    assert_eq!(seen.last(), Some(&during), "{seen:?}");
}

#[test]
fn places_of_pools_that_ended_are_forgotten() {
    let memory = Memory::host().unwrap();
    let share = FairShare::new(&memory.root());
    let kept = share.member();
    for _ in 0..10_000 {
        share.member();
    }
    let places = share.members(|members| members.len());
    assert!(places < 32, "{places}");
    share.grown(&kept, 5);
    assert_eq!(share.held(), (5, 1));
}
