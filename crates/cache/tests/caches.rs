//! Caches of both crates in groups: conservation, eviction, and a controller with a gauge of its own.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use bursar::{FlushPolicy, Freshness, Group, Limits, Memory};
use bursar_arbiter::Real;
use bursar_cache::{CacheController, CachePolicy, Evict, Held, Place, QuickCache, evict_from};
use bursar_rig::random::Random;

const MAX: u64 = 1 << 20;

type Moka = moka::sync::Cache<u64, Place<u64>>;
type Quick = Arc<QuickCache<u64, u64>>;

/// A cache of either crate.
trait Any: Evict + Clone {
    fn fresh() -> Self;
    fn put(&self, key: u64, held: Held<u64>);
    fn find(&self, key: u64) -> Option<Held<u64>>;
    fn forget(&self, key: u64);
    /// Bytes of all entries.
    fn bytes(&self) -> u64;
    fn empty(&self);
}

impl Any for Moka {
    fn fresh() -> Self {
        Self::builder()
            .eviction_listener(|_, place: Place<u64>, _| place.empty())
            .build()
    }
    fn put(&self, key: u64, held: Held<u64>) {
        self.insert(key, held.into());
    }
    fn find(&self, key: u64) -> Option<Held<u64>> {
        self.get(&key)?.get()
    }
    fn forget(&self, key: u64) {
        self.invalidate(&key);
    }
    fn bytes(&self) -> u64 {
        self.run_pending_tasks();
        let held = self.iter().filter_map(|(_, place)| place.get());
        held.map(|held| Held::bytes(&held)).sum()
    }
    fn empty(&self) {
        self.invalidate_all();
        self.run_pending_tasks();
    }
}

impl Any for Quick {
    fn fresh() -> Self {
        Arc::new(QuickCache::new(1000))
    }
    fn put(&self, key: u64, held: Held<u64>) {
        self.insert(key, held);
    }
    fn find(&self, key: u64) -> Option<Held<u64>> {
        self.get(&key)
    }
    fn forget(&self, key: u64) {
        self.remove(&key);
    }
    fn bytes(&self) -> u64 {
        self.weight()
    }
    fn empty(&self) {
        self.clear();
    }
}

fn usage(group: &Group) -> u64 {
    group.read(Freshness::Exact).unwrap().usage_bytes()
}

/// Several threads use a cache that is much larger than its limit; what is charged is what the cache has.
fn charged_is_cached<C: Any>(seed: u64) {
    let memory = Memory::host().unwrap();
    let group = memory.root().child("cache", Limits::max(MAX)).unwrap();
    let cache = C::fresh();
    let reclaimer = evict_from(&group, 0, cache.clone());
    thread::scope(|scope| {
        for thread in 0..3 {
            let (cache, group) = (&cache, &group);
            scope.spawn(move || {
                let mut random = Random::fork(seed, thread);
                for _ in 0..2000 {
                    let key = random.below(500);
                    match random.below(8) {
                        0 => cache.forget(key),
                        1..3 => {
                            if let Some(held) = cache.find(key) {
                                assert_eq!(*held, key);
                            }
                        }
                        _ => {
                            let bytes = 1 + random.below(MAX / 32);
                            // Another thread may be evicting what there is.
                            if let Ok(held) = Held::charged(group, bytes, || key) {
                                cache.put(key, held);
                            }
                        }
                    }
                    assert!(group.reserved() <= MAX);
                }
            });
        }
    });
    assert_eq!(usage(&group), cache.bytes(), "seed {seed}");
    assert!(group.events().reclaimed_bytes > MAX);
    cache.empty();
    assert_eq!(usage(&group), 0, "seed {seed}");
    drop(reclaimer);
}

#[test]
fn charged_is_cached_in_moka() {
    for seed in 0..4 {
        charged_is_cached::<Moka>(seed);
    }
}

#[test]
fn charged_is_cached_in_quick_cache() {
    for seed in 0..4 {
        charged_is_cached::<Quick>(seed);
    }
}

/// A value that does something when it goes.
struct Ends(Box<dyn Fn() + Send + Sync>);

impl Drop for Ends {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// An eviction lowers the capacity for a moment. One that begins in that moment, and ends after it, leaves the capacity as it was.
#[test]
fn evictions_give_the_capacity_back() {
    let memory = Memory::host().unwrap();
    let group = memory.root().child("cache", Limits::none()).unwrap();
    let cache = Arc::new(QuickCache::new(2));
    let capacity = cache.capacity();
    let (ended, began, over) = (AtomicU64::new(0), Barrier::new(2), Barrier::new(2));
    let steps = Arc::new((ended, began, over));
    let (second, receiver) = mpsc::channel();
    for key in 0..2 {
        let (ends, other, second) = (steps.clone(), cache.clone(), second.clone());
        let end = move || {
            let (ended, began, over) = &*ends;
            // The first that goes starts an eviction of the other, which ends last.
            match ended.fetch_add(1, Ordering::Relaxed) {
                0 => {
                    let other = other.clone();
                    let evicted = thread::spawn(move || other.evict(100));
                    second.send(evicted).unwrap();
                    began.wait();
                }
                _ => {
                    began.wait();
                    over.wait();
                }
            }
        };
        let value = || Ends(Box::new(end));
        cache.insert(key, Held::charged(&group, 100, value).unwrap());
    }
    assert_eq!(cache.evict(100), 200);
    steps.2.wait();
    assert_eq!(receiver.recv().unwrap().join().unwrap(), 100);
    assert_eq!((cache.capacity(), usage(&group)), (capacity, 0));
}

/// The return of many evicted entries tells a listener that looks at the cache.
#[test]
fn listeners_may_use_a_cache_that_evicts() {
    let memory = Memory::host().unwrap();
    let group = memory.root().child("cache", Limits::max(MAX)).unwrap();
    let cache = Arc::new(QuickCache::new(20));
    let (looked, watched) = (Arc::new(AtomicU64::new(0)), cache.clone());
    let looks = looked.clone();
    let _listener = group.on_pressure(move |_| {
        looks.fetch_add(1 + watched.weight() % 2, Ordering::Relaxed);
    });
    let _reclaimer = evict_from(&group, 0, cache.clone());
    for key in 0..100 {
        let held = Held::charged(&group, 10_000, || key).unwrap();
        cache.insert(key, held);
    }
    let charge = group.try_charge(600 << 10).unwrap();
    assert!(looked.load(Ordering::Relaxed) > 0);
    drop(charge);
}

/// A few bytes are evicted of a cache with more shards than that.
#[test]
fn the_smallest_eviction_frees_something() {
    let memory = Memory::host().unwrap();
    let group = memory.root().child("cache", Limits::none()).unwrap();
    let cache = Quick::fresh();
    for key in 0..200 {
        cache.put(key, Held::charged(&group, 2, || key).unwrap());
    }
    while cache.weight() > 0 {
        assert!(cache.evict(1) > 0);
    }
    assert_eq!(usage(&group), 0);
}

/// A key whose hash first runs the reader of its thread.
#[derive(PartialEq, Eq)]
struct Watched;

thread_local! {
    static READER: Cell<Option<Box<dyn FnMut()>>> = const { Cell::new(None) };
}

impl Hash for Watched {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        // None while it runs, so that its own calls of the cache run none.
        if let Some(mut reader) = READER.take() {
            reader();
            READER.set(Some(reader));
        }
        7.hash(hasher);
    }
}

/// In the middle of an eviction, others evict, and insert the key anew if they miss it. No entry goes without being counted.
#[test]
fn an_eviction_removes_only_what_it_counts() {
    let memory = Memory::host().unwrap();
    let group = memory.root().child("cache", Limits::none()).unwrap();
    let cache: moka::sync::Cache<Watched, Place<u64>> = moka::sync::Cache::builder()
        .eviction_listener(|_, place: Place<u64>, _| place.empty())
        .build();
    // Bytes of all entries so far, and of the evicted ones.
    let totals = Rc::new(Cell::new((0, 0)));
    let insert = |cache: &moka::sync::Cache<_, _>, group: &Group| {
        let held = Held::charged(group, 100, || 7).unwrap();
        cache.insert(Watched, held.into());
        100
    };
    insert(&cache, &group);
    let (others, other_group, counts) = (cache.clone(), group.clone(), totals.clone());
    let reader = move |evicts: bool| {
        let (mut inserted, mut evicted) = counts.get();
        if evicts {
            evicted += others.evict(1);
        }
        let found = others.get(&Watched).and_then(|place| place.get());
        if found.is_none() {
            inserted += insert(&others, &other_group);
        }
        counts.set((inserted, evicted));
    };
    for evicts in [false, true] {
        totals.set((usage(&group), 0));
        let reader = reader.clone();
        READER.set(Some(Box::new(move || reader(evicts))));
        let own = cache.evict(1);
        READER.set(None);
        let (inserted, evicted) = totals.get();
        assert!(own > 0);
        assert_eq!(usage(&group), inserted - evicted - own, "{evicts}");
        insert(&cache, &group);
    }
}

/// An entry is charged while a reader has it, also after its eviction.
fn readers_keep_their_charge<C: Any>() {
    let memory = Memory::host().unwrap();
    let group = memory.root().child("cache", Limits::none()).unwrap();
    let cache = C::fresh();
    let _reclaimer = evict_from(&group, 0, cache.clone());
    for key in 0..10 {
        cache.put(key, Held::charged(&group, 100, || key).unwrap());
    }
    let held = cache.find(3).unwrap();
    group.reclaim(MAX);
    assert_eq!(cache.bytes(), 0);
    assert_eq!((usage(&group), *held), (100, 3));
    drop(held);
    assert_eq!(usage(&group), 0);
}

#[test]
fn readers_keep_their_charge_of_both() {
    readers_keep_their_charge::<Moka>();
    readers_keep_their_charge::<Quick>();
}

#[test]
fn refusals_and_panics_charge_nothing() {
    let memory = Memory::host().unwrap();
    let group = memory.root().child("cache", Limits::max(100)).unwrap();
    Held::charged(&group, 101, || unreachable!("refused")).unwrap_err();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        Held::<u64>::charged(&group, 100, || panic!("on purpose"))
    }));
    assert!(panicked.is_err());
    let held = Held::new(7, group.try_charge(60).unwrap());
    assert_eq!((Held::bytes(&held), *held.clone()), (60, 7));
    drop(held);
    assert_eq!(usage(&group), 0);
}

/// A process in which only the cache grows: the controller leads it to the set point, and down again when others take memory.
fn controlled<C: Any>() {
    let memory = Memory::builder().max(MAX).build().unwrap();
    let group = memory.root().child("cache", Limits::none()).unwrap();
    let cache = C::fresh();
    let _reclaimer = evict_from(&group, 0, cache.clone());
    let rest = Arc::new(AtomicU64::new(0));
    let (gauged, others) = (group.clone(), rest.clone());
    let gauge = move || {
        Some(Real {
            // Relaxed: a number that one thread sets and reads.
            bytes: usage(&gauged) + others.load(Ordering::Relaxed),
            stall_percent: 0.0,
        })
    };
    let controller = CacheController::with_gauge(&group, CachePolicy::default(), gauge);
    let set_point = MAX * 65 / 100;
    let (entry, mut key) = (MAX / 1024, 0);
    for (others, expected) in [(0, set_point), (MAX / 2, set_point - MAX / 2), (MAX, 0)] {
        rest.store(others, Ordering::Relaxed);
        let mut look = controller.look().unwrap();
        for _ in 0..100 {
            for _ in 0..100 {
                cache.put(key, Held::charged(&group, entry, || key).unwrap());
                key += 1;
            }
            look = controller.look().unwrap();
            assert!(look.usage <= look.target, "{look:?}");
        }
        let distance = look.usage.abs_diff(expected);
        // Of some entries, because quick_cache's shards evict by themselves.
        assert!(distance <= set_point / 20, "{look:?}, expected {expected}");
    }
    cache.empty();
    assert_eq!(usage(&group), 0);
}

#[test]
fn controllers_lead_both() {
    controlled::<Moka>();
    controlled::<Quick>();
}

#[test]
fn eviction_that_frees_nothing_is_told() {
    struct Stubborn;
    impl Evict for Stubborn {
        fn evict(&self, bytes: u64) -> u64 {
            bytes
        }
    }
    let memory = Memory::builder().max(1000).build().unwrap();
    let group = memory.root().child("cache", Limits::none()).unwrap();
    let _reclaimer = evict_from(&group, 0, Stubborn);
    let held = group.try_charge(500).unwrap();
    let gauge = || {
        Some(Real {
            bytes: 1000,
            stall_percent: 50.0,
        })
    };
    let controller = CacheController::with_gauge(&group, CachePolicy::default(), gauge);
    for _ in 0..100 {
        let look = controller.look().unwrap();
        assert_eq!((look.usage_before, look.usage), (500, 500));
        assert!(look.target < 500);
    }
    assert!(group.events().reclaim_unreturned > 0);
    drop(held);
    assert_eq!(usage(&group), 0);
}

/// The policy may forbid readers to flush. A look then goes by the bytes of the last flush, and does not take the caches for empty.
#[test]
fn memories_that_only_flush_by_the_period() {
    let memory = Memory::builder()
        .max(1000)
        .policy(FlushPolicy::PeriodicOnly)
        .flush_period(Duration::ZERO)
        .build()
        .unwrap();
    let group = memory.root().child("cache", Limits::none()).unwrap();
    let _held = group.try_charge(500).unwrap();
    memory.tick();
    let gauge = || {
        Some(Real {
            bytes: 610,
            stall_percent: 0.0,
        })
    };
    let controller = CacheController::with_gauge(&group, CachePolicy::default(), gauge);
    let look = controller.look().unwrap();
    // An eighth of the distance of 40.
    assert_eq!((look.usage_before, look.target), (500, 505));
    assert_eq!(look.usage, 500);
}

#[test]
fn without_a_gauge_nothing_changes() {
    let memory = Memory::builder().max(1000).build().unwrap();
    let group = memory.root().child("cache", Limits::none()).unwrap();
    let controller = CacheController::with_gauge(&group, CachePolicy::default(), || None);
    assert_eq!(controller.look(), None);
    assert_eq!(group.limits(), Limits::none());
}
