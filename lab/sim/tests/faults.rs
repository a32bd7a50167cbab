//! The library on simulated machines of 1 to 1,024 CPUs, with faults: no update is lost or counted twice, no read is
//! stale, no limit is exceeded. The seed makes each run the same again.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar::{Counter, Freshness, Limits, Memory, Statistic};
use bursar_machine::Machine;
use bursar_rig::Tasks;
use bursar_sim::{Chance, Faults, Kill, SectionKind, Settings, Simulator, Stall, Topology};

const STATISTICS: &[Statistic] = &[Statistic::counter("rows")];
const ROWS: Counter = Counter::from_name(STATISTICS, "rows");
/// Limit of the tenant, bytes.
const LIMIT: u64 = 64 << 20;

fn faults(kind: &str, cpus: usize) -> Faults {
    let mut faults = Faults::default();
    let chance = |one_in, for_ns| Chance { one_in, for_ns };
    match kind {
        "none" => {}
        "stalled CPU" => faults.stalls.extend((0..5).map(|at| Stall {
            cpu: at * 7 % cpus as u32,
            at_ns: 20_000 * u64::from(at + 1),
            for_ns: 3_000_000,
        })),
        "stall with a lock" => faults.lock_stall = chance(20, 500_000),
        "killed task" => faults.kills.extend((0..4).map(|task| Kill {
            task,
            at_ns: 100_000,
        })),
        "late timer" => faults.late_timer = chance(2, 2_000_000),
        "preempted section" => faults.section_preemption = chance(5, 100_000),
        other => panic!("{other}"),
    }
    faults
}

const KINDS: [&str; 6] = [
    "none",
    "stalled CPU",
    "stall with a lock",
    "killed task",
    "late timer",
    "preempted section",
];

/// Returns the event hash.
fn run(cpus: usize, kind: &str, sections: SectionKind, seed: u64) -> u64 {
    let mut settings = Settings::new(Topology::new(cpus, cpus.div_ceil(192), 1000), seed);
    settings.faults = faults(kind, cpus);
    settings.sections = sections;
    let simulator = Simulator::new(settings);
    let machine = simulator.machine();
    let memory = Memory::<bursar_machine::Host>::builder()
        .statistics(STATISTICS)
        .build_on(machine.clone())
        .unwrap();
    let tenant = memory.root().child("tenant", Limits::max(LIMIT)).unwrap();
    let queries: Vec<_> = (0..4)
        .map(|number| tenant.child(number.to_string(), Limits::none()).unwrap())
        .collect();
    // Added so far, by query: begun, and returned.
    let begun: [AtomicU64; 4] = Default::default();
    let ended: [AtomicU64; 4] = Default::default();
    let sum = |counts: &[AtomicU64; 4]| -> u64 {
        counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    };

    let mut tasks: Vec<Box<dyn FnOnce() + Send + '_>> = Vec::new();
    for number in 0..(cpus + cpus / 2).clamp(6, 96) {
        let (machine, queries, begun, ended) = (&machine, &queries, &begun, &ended);
        tasks.push(Box::new(move || {
            let mut held = Vec::new();
            for round in 0..12 {
                let which = (number + round) % 4;
                begun[which].fetch_add(1, Ordering::Relaxed);
                queries[which].add(ROWS, 1_u64);
                ended[which].fetch_add(1, Ordering::Relaxed);
                if let Ok(charge) =
                    queries[which].try_charge((number * round % 9 + 1) as u64 * (64 << 10))
                {
                    held.push(charge);
                }
                machine.compute(1_000);
                if round % 5 == 4 {
                    held.clear();
                    machine.sleep_until(machine.now_ns() + 50_000);
                }
            }
        }));
    }
    for number in 0..4 {
        let (machine, tenant, queries, begun, ended) =
            (&machine, &tenant, &queries, &begun, &ended);
        tasks.push(Box::new(move || {
            for _ in 0..8 {
                let of_tenant = number % 2 == 0;
                let before = if of_tenant {
                    sum(ended)
                } else {
                    ended[number].load(Ordering::Relaxed)
                };
                let group = if of_tenant { tenant } else { &queries[number] };
                let reading = group.read(Freshness::Exact).unwrap();
                let after = if of_tenant {
                    sum(begun)
                } else {
                    begun[number].load(Ordering::Relaxed)
                };
                let rows = reading.get(ROWS).value as u64;
                assert!(
                    before <= rows && rows <= after,
                    "{before} <= {rows} <= {after}"
                );
                // The usage that is read has no such bound: it may hold a charge and lack the return that made room.
                assert!(group.reserved() <= LIMIT);
                machine.sleep_until(machine.now_ns() + 30_000);
            }
        }));
    }
    machine.run(tasks);

    let reading = tenant.read(Freshness::Exact).unwrap();
    assert_eq!(reading.get(ROWS).value as u64, sum(&ended));
    assert_eq!(sum(&begun), sum(&ended), "nobody dies inside an update");
    assert_eq!(reading.usage().value, 0);
    // All that is reserved is stock: a charge of the whole limit drains it and fits.
    drop(tenant.try_charge(LIMIT).unwrap());
    if kind != "none" && cpus > 1 {
        assert!(simulator.counts().faults > 0, "{kind} never struck");
    }
    simulator.event_hash()
}

#[test]
fn every_fault_at_every_size() {
    for cpus in [1, 2, 8, 72, 384, 1024] {
        for kind in KINDS {
            for sections in [SectionKind::Restartable, SectionKind::Atomic] {
                if kind == "preempted section" && sections == SectionKind::Atomic {
                    continue;
                }
                println!("{cpus} CPUs, {kind}, {sections:?}");
                run(cpus, kind, sections, cpus as u64);
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    for kind in KINDS {
        let hash = run(8, kind, SectionKind::Restartable, 3);
        assert_eq!(hash, run(8, kind, SectionKind::Restartable, 3), "{kind}");
    }
}
