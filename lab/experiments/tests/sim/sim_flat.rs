//! Guarantee 7 on simulated machines: what the fast paths touch does not depend on depth or CPUs, what slow paths touch is
//! known, and what may not wait does not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bursar::{Freshness, Group, Limits};
use bursar_machine::Machine;
use bursar_rig::Tasks;
use bursar_sim::{Chance, Counts, SectionKind, Sim, Simulator};

use crate::common::{BALANCE, BATCHED, Body, MS, ROWS, US, builder, cost_on, settings};

/// A machine, and a group so many levels below the root.
fn deep(cpus: usize, depth: usize, sections: SectionKind) -> (Group<Sim>, Simulator) {
    let mut settings = settings(cpus, 1);
    settings.sections = sections;
    let simulator = Simulator::new(settings);
    let memory = builder().build_on(simulator.machine()).unwrap();
    let mut group = memory.root();
    for level in 0..depth {
        group = group.child(level.to_string(), Limits::none()).unwrap();
    }
    (group, simulator)
}

/// Counts of one covered charge, its return, and an addition to each kind of statistic, while another CPU does the same.
fn fast_costs(cpus: usize, depth: usize, sections: SectionKind) -> [Counts; 5] {
    let (group, simulator) = deep(cpus, depth, sections);
    let last = cpus as u32 - 1;
    let kept = std::sync::Mutex::new(Vec::new());
    let charge = || kept.lock().unwrap().push(group.try_charge(100).unwrap());
    let uncharge = || drop(kept.lock().unwrap().pop());
    let works: [&(dyn Fn() + Sync); 5] = [
        &charge,
        &uncharge,
        &|| group.add(ROWS, 1_u64),
        &|| group.add(BALANCE, -1),
        &|| group.add(BATCHED, 1),
    ];
    let mut costs = [Counts::default(); 5];
    // The first round arms and publishes; the second is what is meant.
    for round in 0..2 {
        for (cost, work) in costs.iter_mut().zip(works) {
            let both = [0, last].map(|cpu| cost_on(&simulator, cpu, work));
            assert!(round == 0 || both[0] == both[1], "each CPU pays the same");
            *cost = both[1];
        }
    }
    kept.into_inner().unwrap().clear();
    costs
}

#[test]
fn fast_paths_cost_the_same_at_any_depth_on_any_number_of_cpus() {
    for sections in [SectionKind::Restartable, SectionKind::Atomic] {
        let flat = fast_costs(8, 1, sections);
        for (cpus, depth) in [(8, 10), (72, 3), (384, 1), (384, 10), (1024, 10)] {
            assert_eq!(fast_costs(cpus, depth, sections), flat, "{cpus} {depth}");
        }
        println!(
            "{sections:?}: {:?} visible operations",
            flat.map(|counts| counts.events)
        );
        for counts in flat {
            assert!((1..=6).contains(&counts.events), "{counts:?}");
            assert_eq!((counts.transfers, counts.acquisitions), (0, 0));
            assert_eq!((counts.fences, counts.wakes, counts.switches), (0, 0, 0));
        }
        if sections == SectionKind::Restartable {
            // One section each; a batched statistic also looks at what it has reported.
            assert_eq!(flat.map(|counts| counts.events), [1, 1, 1, 1, 3]);
        }
    }
}

#[test]
fn the_first_touch_of_a_retired_slot_walks_to_the_root_once() {
    for cpus in [8, 384] {
        let first = |depth: usize| {
            let (group, simulator) = deep(cpus, depth, SectionKind::Restartable);
            let add = || group.add(ROWS, 1_u64);
            let mut touches = [0; 3];
            for _ in 0..2 {
                // A slot that two passes find unchanged is retired. On the same CPU, so that no line is elsewhere.
                let memory = group.memory();
                cost_on(&simulator, 3, || (0..2).for_each(|_| memory.tick()));
                touches = [0; 3].map(|_: u64| {
                    let counts = cost_on(&simulator, 3, add);
                    assert_eq!((counts.acquisitions, counts.fences), (0, 0));
                    counts.events
                });
            }
            assert_eq!(touches[1..], [1, 1], "the way is made");
            touches[0]
        };
        let [one, two, three, ten] = [1, 2, 3, 10].map(first);
        println!("{cpus} CPUs: first touch {one} operations at depth 1, {ten} at 10");
        // For each level a look at the mark, the mark, and the count of publications.
        assert_eq!([two - one, three - two, ten - one], [3, 3, 27]);
    }
}

#[test]
fn a_refusal_passes_a_fence_for_each_slice_with_stock_and_none_without() {
    for (cpus, holders) in [
        (8, 0),
        (8, 1),
        (8, 8),
        (72, 72),
        (384, 0),
        (384, 256),
        (384, 257),
        (384, 384),
    ] {
        let (tenant, simulator) = deep(cpus, 1, SectionKind::Restartable);
        const MAX: u64 = 1 << 30;
        // So a charge of all that the limit allows does not fit.
        let held = tenant.try_charge(1).unwrap();
        tenant.set_max(MAX);
        // A group for each, so that both kinds of marks are walked.
        let queries: Vec<_> = (0..cpus)
            .map(|cpu| tenant.child(cpu.to_string(), Limits::none()).unwrap())
            .collect();
        for (cpu, query) in queries.iter().enumerate().take(holders) {
            cost_on(&simulator, cpu as u32, || {
                drop(query.try_charge(100).unwrap());
            });
        }
        assert_eq!(tenant.reserved() > 1, holders > 0);
        let refuse = || assert!(tenant.try_charge(MAX).is_err());
        let counts = cost_on(&simulator, 0, refuse);
        // 256 shards are a slice.
        assert_eq!(
            counts.fences,
            holders.div_ceil(256) as u64,
            "{cpus} {holders}"
        );
        assert_eq!(tenant.reserved(), 1);
        let counts = cost_on(&simulator, 0, refuse);
        assert_eq!(counts.fences, 0, "nothing to take back");
        drop(held);
    }
}

/// Each lock that anybody takes is held for 10 ms here, so who takes one, or waits for one who has, is late by that.
/// Calls that may not wait charge and return meanwhile, past the stock too, in microseconds.
#[test]
fn nothing_that_may_not_wait_does_while_stock_is_taken_back() {
    for cpus in [8, 72, 384] {
        let mut settings = settings(cpus, 2);
        settings.faults.lock_stall = Chance {
            one_in: 1,
            for_ns: 10 * MS,
        };
        let simulator = Simulator::new(settings);
        let machine = simulator.machine();
        let memory = builder().build_on(machine.clone()).unwrap();
        let tenant = memory.root().child("tenant", Limits::max(1 << 30)).unwrap();
        let query = tenant.child("query", Limits::none()).unwrap();
        // So a charge of all that the limit allows does not fit.
        let _held = tenant.try_charge(1).unwrap();
        let (draining, drained) = (AtomicBool::new(false), AtomicBool::new(false));
        let (longest_ns, busy, meanwhile) =
            (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let mut bodies: Vec<Body<'_>> = vec![Box::new(|| {
            machine.sleep_until(machine.now_ns() + 200 * US);
            draining.store(true, Ordering::Relaxed);
            assert!(tenant.try_charge(1 << 30).is_err());
            drained.store(true, Ordering::Relaxed);
        })];
        for _ in 1..cpus.min(32) {
            bodies.push(Box::new(|| {
                let mut held = None;
                for round in 0_u64.. {
                    if drained.load(Ordering::Relaxed) {
                        break;
                    }
                    let begun_ns = machine.now_ns();
                    // Small ones that the stock covers, and large ones that the least stock does not.
                    match query.engine().try_charge_nowait(1 + (round % 2) * 400_000) {
                        Ok(charge) => {
                            if let Some(before) = held.replace(charge) {
                                bursar::Charge::release_nowait(before);
                            }
                        }
                        Err(_) => _ = busy.fetch_add(1, Ordering::Relaxed),
                    }
                    if let Some(before) = held.take_if(|_| round % 3 == 0) {
                        before.release_nowait();
                    }
                    query.add(ROWS, 1_u64);
                    let took_ns = machine.now_ns() - begun_ns;
                    longest_ns.fetch_max(took_ns, Ordering::Relaxed);
                    let is_draining = draining.load(Ordering::Relaxed);
                    meanwhile.fetch_add(u64::from(is_draining), Ordering::Relaxed);
                    machine.compute(20 * US);
                }
                if let Some(last) = held {
                    last.release_nowait();
                }
            }));
        }
        machine.run(bodies);
        let (longest_ns, busy) = (longest_ns.into_inner(), busy.into_inner());
        println!("{cpus} CPUs: {longest_ns} virtual ns at most; {busy} found a drain under way");
        assert!(
            busy > 0 && meanwhile.into_inner() > 0,
            "a drain was under way"
        );
        assert!(longest_ns < 500 * US, "{longest_ns}");
        assert_eq!(query.read(Freshness::Exact).unwrap().usage().value, 0);
    }
}

#[test]
fn nor_takes_it_a_lock_when_it_goes_past_the_stock() {
    for (cpus, depth) in [(8, 1), (384, 10)] {
        let (group, simulator) = deep(cpus, depth, SectionKind::Restartable);
        for bytes in [1, 1 << 20] {
            let counts = cost_on(&simulator, 5, || {
                let charge = group.engine().try_charge_nowait(bytes).unwrap();
                charge.release_nowait();
            });
            assert_eq!((counts.acquisitions, counts.fences), (0, 0));
            assert_eq!((counts.switches, counts.wakes), (0, 0));
        }
    }
}
