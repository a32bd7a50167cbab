//! Reclaim on simulated machines: memory that reclaimers free under contention is neither lost nor given twice.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bursar::{Charge, ChargeError, Freshness, Group, Limits};
use bursar_rig::Tasks;
use bursar_rig::random::Random;
use bursar_sim::{Sim, Simulator};

use crate::common::{Body, Struck, US, builder, settings};

/// Bytes that a CPU has of the cache.
const SHARE: u64 = 64 << 10;

/// All CPUs fill a cache that is full: each charge evicts, or is refused with the limit met, and what was evicted and what is
/// held make what was charged.
fn evicting(cpus: usize, struck: Struck) {
    let mut settings = settings(cpus, cpus as u64);
    settings.faults = struck.faults(cpus, 0);
    let simulator = Simulator::new(settings);
    let machine = simulator.machine();
    let memory = builder().build_on(machine.clone()).unwrap();
    let most = cpus as u64 * SHARE;
    let tenant = memory.root().child("tenant", Limits::max(most)).unwrap();
    let cache: Group<Sim> = tenant.child("cache", Limits::none()).unwrap();
    type Pages = Mutex<VecDeque<Charge<Sim>>>;
    let pages: Arc<Pages> = Arc::default();
    let evicted_bytes = Arc::new(AtomicU64::new(0));
    let (from, evicted) = (pages.clone(), evicted_bytes.clone());
    let registration = cache.add_reclaimer(0, move |request| {
        let mut freed = 0;
        // Not under the host's lock: others run while a page is returned.
        let oldest = || from.lock().unwrap().pop_front();
        while freed < request.target
            && let Some(page) = oldest()
        {
            freed += page.bytes();
        }
        evicted.fetch_add(freed, Ordering::Relaxed);
        freed
    });
    let (charged, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let task = |number: usize| -> Body<'_> {
        let (cache, machine, pages) = (&cache, &machine, &pages);
        let (charged, refused) = (&charged, &refused);
        Box::new(move || {
            let mut random = Random::fork(34, number as u64);
            for _ in 0..12 {
                match cache.try_charge(1 + random.below(SHARE / 2)) {
                    Ok(page) => {
                        charged.fetch_add(page.bytes(), Ordering::Relaxed);
                        pages.lock().unwrap().push_back(page);
                    }
                    Err(ChargeError::LimitReached(_)) => {
                        _ = refused.fetch_add(1, Ordering::Relaxed)
                    }
                    Err(other) => panic!("{other}"),
                }
                machine.compute(US);
            }
        })
    };
    machine.run((0..cpus).map(task).collect());
    let held: u64 = pages.lock().unwrap().iter().map(Charge::bytes).sum();
    let (charged, evicted) = (charged.into_inner(), evicted_bytes.load(Ordering::Relaxed));
    println!(
        "{cpus} CPUs, {struck:?}: {} of {} refused",
        refused.into_inner(),
        12 * cpus
    );
    assert_eq!(charged, evicted + held);
    assert!(evicted > 0 && tenant.peak() <= most);
    assert_eq!(tenant.events().reclaimed_bytes, evicted);
    assert!(cache.pressure().stall.some.total.as_nanos() > 0);
    assert_eq!(
        tenant.read(Freshness::Exact).unwrap().usage().value,
        held as i64
    );
    drop(registration);
    pages.lock().unwrap().clear();
    assert_eq!(tenant.read(Freshness::Exact).unwrap().usage().value, 0);
}

#[test]
fn reclaim_under_contention_keeps_the_books() {
    for cpus in [8, 72, 384] {
        for struck in [
            Struck::Not,
            Struck::StalledCpus,
            Struck::PreemptedSections,
            Struck::All,
        ] {
            evicting(cpus, struck);
        }
    }
}
