//! Guarantee 1 on simulated machines: nothing is lost or counted twice, while groups come and go, charges move, limits
//! change, faults strike and tasks are killed in their sleep.

use std::sync::Mutex;

use bursar::{Freshness, Group, Limits, Memory};
use bursar_check::model::Flow;
use bursar_machine::Machine;
use bursar_rig::Tasks;
use bursar_rig::random::Random;
use bursar_sim::{SectionKind, Sim, Simulator};

use crate::common::truth::{Held, Place, Truth};
use crate::common::{BALANCE, BATCHED, Body, EAGER, ROWS, Struck, US, builder, settings};

const TENANTS: usize = 3;
const QUERIES: usize = 3;
/// Limit of each tenant, bytes: near enough to be met.
const LIMIT: u64 = 24 << 20;

fn work(machine: &Sim, places: &[Place], kept: &Mutex<Vec<Held>>, seed: u64, number: u64) {
    let mut random = Random::fork(seed, number);
    let mut held: Vec<Held> = Vec::new();
    for step in 0..30 {
        let place = &places[random.below(places.len() as u64) as usize];
        let bytes = 1 + random.below(200_000);
        let at = random.below(held.len().max(1) as u64) as usize;
        match random.below(11) {
            0..3 => place.add(&mut random),
            3..5 => {
                let charge = place.group.try_charge(bytes).ok();
                held.extend(charge.map(|charge| Held::new(charge, &place.truth)));
            }
            5 => {
                let charge = place.group.engine().try_charge_nowait(bytes).ok();
                held.extend(charge.map(|charge| Held::new(charge, &place.truth)));
            }
            6 => held.push(Held::new(place.group.charge(bytes), &place.truth)),
            7 => {
                // A group with a child, both used, removed while the child's charge is still held, by another truth: what
                // is left of them counts as their parent's.
                let name = format!("{number}-{step}");
                let Ok(query) = place.group.child(&name, Limits::none()) else {
                    continue;
                };
                let query = Place {
                    group: query,
                    truth: place.truth.clone(),
                };
                let scan = query.group.child("scan", Limits::none()).expect("it lives");
                let scan = Place {
                    group: scan,
                    truth: place.truth.clone(),
                };
                query.add(&mut random);
                scan.add(&mut random);
                let charge = scan.group.try_charge(bytes).ok();
                held.extend(charge.map(|charge| Held::new(charge, &scan.truth)));
                scan.group.remove().expect("it has no children");
                scan.add(&mut random);
            }
            8 if at < held.len() => held[at].change(place, |charge| {
                let moved = charge.move_to(&place.group);
                moved.is_ok()
            }),
            9 if at < held.len() => held.swap_remove(at).release_nowait(),
            _ if at < held.len() => drop(held.swap_remove(at)),
            _ => {}
        }
        machine.compute(2 * US);
        if random.happens(6) {
            machine.sleep_until(machine.now_ns() + 20 * US);
        }
    }
    // Without a visible operation in between, so the host's lock is never waited for.
    let keep = held.len() / 2;
    kept.lock().expect("no panic").extend(held.drain(..keep));
}

/// The simulator is dropped last.
struct Run {
    kept: Mutex<Vec<Held>>,
    queries: Vec<Place>,
    tenants: Vec<Place>,
    memory: Memory<Sim>,
    simulator: Simulator,
}

fn run(cpus: usize, struck: Struck, sections: SectionKind, seed: u64) -> Run {
    let tasks = (2 * cpus as u32).clamp(32, 200);
    let mut settings = settings(cpus, seed);
    settings.faults = struck.faults(cpus, tasks);
    settings.sections = sections;
    let simulator = Simulator::new(settings);
    let machine = simulator.machine();
    let memory = builder().build_on(machine.clone()).expect("there is room");
    let child = |parent: &Group<Sim>, name: String, limits| {
        Place::new(parent.child(&name, limits).expect("there is room"))
    };
    let tenant = |number: usize| child(&memory.root(), number.to_string(), Limits::max(LIMIT));
    let tenants: Vec<Place> = (0..TENANTS).map(tenant).collect();
    let query = |number: usize| {
        let limits = match number % QUERIES {
            0 => Limits::max(LIMIT / 2),
            // Tasks are killed where they sleep above it, too.
            1 => Limits::none().high(LIMIT / 64),
            _ => Limits::none(),
        };
        child(&tenants[number / QUERIES].group, number.to_string(), limits)
    };
    let queries: Vec<Place> = (0..TENANTS * QUERIES).map(query).collect();
    let places: Vec<Place> = tenants.iter().chain(&queries).cloned().collect();
    let kept = Mutex::default();

    let mut bodies: Vec<Body<'_>> = Vec::new();
    for number in 0..u64::from(tasks) {
        let (machine, places, kept) = (&machine, &places, &kept);
        bodies.push(Box::new(move || work(machine, places, kept, seed, number)));
    }
    for tenant in &tenants {
        let (machine, memory, tenant) = (&machine, &memory, &tenant.group);
        bodies.push(Box::new(move || {
            for round in 0..12 {
                // Flushes, upkeep and drains in the way of the others.
                tenant.read(Freshness::Exact).expect("readers may flush");
                memory.tick();
                tenant.set_max(LIMIT / (1 + round % 3));
                machine.sleep_until(machine.now_ns() + 30 * US);
            }
            tenant.set_max(LIMIT);
        }));
    }
    machine.run(bodies);
    Run {
        simulator,
        memory,
        tenants,
        queries,
        kept,
    }
}

impl Run {
    /// Returns the event hash.
    fn check(self) -> u64 {
        let exact = |group: &Group<Sim>| group.read(Freshness::Exact).expect("readers may flush");
        let memory = &self.memory;
        memory.tick();
        let mut sum_of_tenants = 0;
        for (number, tenant) in self.tenants.iter().enumerate() {
            let queries = &self.queries[number * QUERIES..(number + 1) * QUERIES];
            let reading = exact(&tenant.group);
            let all = || queries.iter().chain([tenant]);
            let truth = |count: fn(&Truth) -> &Flow| -> i64 {
                all().map(|place| count(&place.truth).value()).sum()
            };
            assert_eq!(reading.get(ROWS).value, truth(|truth| &truth.rows));
            for statistic in [BALANCE, EAGER, BATCHED] {
                assert_eq!(reading.get(statistic).value, truth(|truth| &truth.balance));
            }
            let held = truth(|truth| &truth.bytes);
            assert_eq!(reading.usage().value, held);
            sum_of_tenants += held;
            // Children and own make the parent. Children are all that live, those that tasks left behind too.
            let children: Vec<_> = tenant.group.children().iter().map(exact).collect();
            let sum = |of: &dyn Fn(&bursar::Reading) -> i64| children.iter().map(of).sum::<i64>();
            assert_eq!(
                sum(&|child| child.get(ROWS).value) + reading.own(ROWS),
                reading.get(ROWS).value
            );
            assert_eq!(
                sum(&|child| child.get(BATCHED).value) + reading.own(BATCHED),
                reading.get(BATCHED).value
            );
            assert_eq!(
                sum(&|child| child.usage().value) + reading.own_usage(),
                held
            );
            for query in queries {
                let reading = exact(&query.group);
                assert_eq!(reading.get(ROWS).value, query.truth.rows.value());
                assert_eq!(reading.usage().value, query.truth.bytes.value());
                assert!(query.group.reserved() as i64 >= query.truth.bytes.value());
            }
            // Bytes that are reserved beyond are stock, and all of it can be taken back.
            assert!(tenant.group.reserved() as i64 >= held);
            tenant.group.set_max(0);
            assert_eq!(tenant.group.reserved() as i64, held);
        }
        assert_eq!(exact(&memory.root()).usage().value, sum_of_tenants);
        memory.root().set_max(0);
        assert_eq!(memory.reserved() as i64, sum_of_tenants);
        drop(self.kept.into_inner());
        assert_eq!(memory.reserved(), 0);
        memory.tick();
        memory.tick();
        assert_eq!(
            memory.removed_groups(),
            0,
            "records of groups that are gone"
        );
        self.simulator.event_hash()
    }
}

#[test]
fn nothing_is_lost_whatever_strikes() {
    for cpus in [8, 72, 384] {
        for struck in Struck::EACH {
            println!("{cpus} CPUs, {struck:?}");
            let done = run(cpus, struck, SectionKind::Restartable, cpus as u64);
            let faults = done.simulator.counts().faults;
            assert_eq!(faults > 0, struck != Struck::Not, "{struck:?}");
            assert!(done.memory.reserved() > 0, "or this shows nothing");
            done.check();
        }
    }
}

#[test]
fn nor_on_1024_cpus_nor_without_sections() {
    run(1024, Struck::All, SectionKind::Restartable, 5).check();
    for seed in 0..6 {
        run(72, Struck::All, SectionKind::Atomic, seed).check();
        run(8, Struck::All, SectionKind::Restartable, seed).check();
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let hash = || run(8, Struck::All, SectionKind::Restartable, 3).check();
    assert_eq!(hash(), hash());
}
