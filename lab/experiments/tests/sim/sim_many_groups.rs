//! Guarantee 5 on simulated machines: what one call does, and what others wait for meanwhile, does not grow faster than the
//! work itself, however many groups there are beside it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bursar::{ChargeError, Freshness, Group, Limits, Memory};
use bursar_machine::Machine;
use bursar_rig::Tasks;
use bursar_sim::{Sim, Simulator};

use crate::common::{Body, MS, ROWS, US, builder, cost_on, settings};

const MAX: u64 = 1 << 40;

/// A tenant with as many queries, of which each holds stock on one CPU.
fn with_stock(
    cpus: usize,
    queries: usize,
) -> (Simulator, Memory<Sim>, Group<Sim>, Vec<Group<Sim>>) {
    let simulator = Simulator::new(settings(cpus, 3));
    let memory = builder().build_on(simulator.machine()).unwrap();
    let tenant = memory.root().child("tenant", Limits::max(MAX)).unwrap();
    let query = |number: usize| tenant.child(number.to_string(), Limits::none()).unwrap();
    let queries: Vec<_> = (0..queries).map(query).collect();
    for cpu in 0..cpus {
        let some = queries.iter().skip(cpu).step_by(cpus);
        cost_on(&simulator, cpu as u32, || {
            some.for_each(|query| drop(query.try_charge(100).unwrap()));
        });
    }
    (simulator, memory, tenant, queries)
}

#[test]
fn a_drain_costs_the_same_for_each_group_however_many_there_are() {
    let each = |count: usize| {
        let (simulator, _memory, tenant, _queries) = with_stock(8, count);
        let drain = cost_on(&simulator, 0, || tenant.set_max(MAX - 1));
        assert_eq!(tenant.reserved(), 0);
        assert_eq!(drain.fences, count.div_ceil(256) as u64);
        drain.events as f64 / count as f64
    };
    let (few, many) = (each(512), each(8192));
    println!("operations for each group with stock: {few:.1} of 512, {many:.1} of 8,192");
    assert!(many < 1.1 * few, "{few} {many}");
}

#[test]
fn charges_below_go_on_while_stock_is_taken_back() {
    for (cpus, count) in [(8, 8192), (72, 8192)] {
        let (simulator, _memory, tenant, queries) = with_stock(cpus, count);
        let machine = simulator.machine();
        let (drained, charges) = (&AtomicBool::new(false), &AtomicU64::new(0));
        let (longest_ns, drain_ns) = (&AtomicU64::new(0), &AtomicU64::new(0));
        let mut bodies: Vec<Body<'_>> = vec![Box::new(|| {
            machine.sleep_until(machine.now_ns() + 10 * US);
            let begun_ns = machine.now_ns();
            tenant.set_max(MAX - 1);
            drain_ns.store(machine.now_ns() - begun_ns, Ordering::Relaxed);
            drained.store(true, Ordering::Relaxed);
        })];
        for query in &queries[1..8] {
            let machine = &machine;
            bodies.push(Box::new(move || {
                for round in 0_u64.. {
                    if drained.load(Ordering::Relaxed) {
                        break;
                    }
                    let begun_ns = machine.now_ns();
                    // Small, and large. While stock is taken back, neither finds any.
                    let charge = query.try_charge(100 + (round % 2) * 400_000);
                    drop(charge.expect("there is room"));
                    let took_ns = machine.now_ns() - begun_ns;
                    longest_ns.fetch_max(took_ns, Ordering::Relaxed);
                    charges.fetch_add(1, Ordering::Relaxed);
                    machine.compute(US);
                }
            }));
        }
        machine.run(bodies);
        let [longest_ns, drain_ns, charges] =
            [longest_ns, drain_ns, charges].map(|word| word.load(Ordering::Relaxed));
        println!(
            "{cpus} CPUs, {count} groups: drained in {drain_ns} virtual ns, {charges} charges meanwhile, {longest_ns} ns at most"
        );
        assert!(drain_ns > MS && charges > 1000);
        assert!(
            longest_ns < drain_ns / 32,
            "no charge waits for more than a slice"
        );
    }
}

/// Whether the queries hold the stock that they once had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marks {
    OfStock,
    /// It was taken back from each of them, and the way to them is still marked.
    Stale,
}

/// Groups that end while a group above them is drained wait for a slice, not for the drain. A slice is bounded by the marks that it
/// follows, also by those that lead to no stock.
#[test]
fn groups_end_while_stock_above_them_is_taken_back() {
    for marks in [Marks::OfStock, Marks::Stale] {
        let (simulator, memory, tenant, queries) = with_stock(8, 16_384);
        if marks == Marks::Stale {
            cost_on(&simulator, 0, || {
                queries.iter().for_each(|query| query.set_max(MAX / 2));
            });
        }
        let machine = simulator.machine();
        let (drained, ended) = (&AtomicBool::new(false), &AtomicU64::new(0));
        let (longest_ns, drain_ns) = (&AtomicU64::new(0), &AtomicU64::new(0));
        let drain = || {
            machine.sleep_until(machine.now_ns() + 10 * US);
            let begun_ns = machine.now_ns();
            tenant.set_max(MAX - 1);
            drain_ns.store(machine.now_ns() - begun_ns, Ordering::Relaxed);
            drained.store(true, Ordering::Relaxed);
        };
        let end = || {
            for query in &queries {
                if drained.load(Ordering::Relaxed) {
                    break;
                }
                let begun_ns = machine.now_ns();
                query.remove().unwrap();
                longest_ns.fetch_max(machine.now_ns() - begun_ns, Ordering::Relaxed);
                ended.fetch_add(1, Ordering::Relaxed);
                machine.compute(US);
            }
        };
        machine.run(vec![Box::new(drain), Box::new(end)]);
        let [longest_ns, drain_ns, ended] =
            [longest_ns, drain_ns, ended].map(|word| word.load(Ordering::Relaxed));
        println!(
            "{marks:?}: drained in {drain_ns} virtual ns, {ended} groups ended meanwhile, {longest_ns} ns at most"
        );
        assert!(ended >= 20, "{ended}");
        assert!(longest_ns < drain_ns / 8, "{longest_ns}");
        drop(queries);
        memory.tick();
        memory.tick();
        assert_eq!((memory.removed_groups(), tenant.reserved()), (0, 0));
    }
}

/// A birth and an end, beside as many groups that were removed, and of which something is still there.
fn life_beside(count: usize, keep: impl Fn(Group<Sim>) -> Box<dyn std::any::Any>) -> u64 {
    let simulator = Simulator::new(settings(8, 4));
    let memory = builder().build_on(simulator.machine()).unwrap();
    let root = memory.root();
    let mut kept = Vec::new();
    for number in 0..count {
        let group = root.child(number.to_string(), Limits::none()).unwrap();
        kept.push(keep(group.clone()));
        group.remove().unwrap();
    }
    assert_eq!(memory.removed_groups(), count);
    let life = || drop(root.child("short", Limits::none()).unwrap());
    // The first makes room for the record.
    cost_on(&simulator, 0, life);
    cost_on(&simulator, 0, life).events
}

#[test]
fn births_and_ends_cost_the_same_beside_removed_groups() {
    let alone = life_beside(0, |group| Box::new(group));
    let referred = life_beside(4000, |group| Box::new(group));
    let charge = |group: Group<Sim>| -> Box<dyn std::any::Any> { Box::new(group.charge(100)) };
    let [few, many] = [100, 4000].map(|count| life_beside(count, charge));
    println!(
        "operations: {alone} alone, {referred} beside 4,000 with handles, {few} and {many} beside 100 and 4,000 with bytes"
    );
    assert_eq!(referred, alone, "what somebody refers to is not looked at");
    assert_eq!(many, few, "a bounded number with bytes is");
    assert!(many < 3 * alone, "{many} {alone}");
}

#[test]
fn a_tick_looks_at_a_bounded_number_of_removed_groups_and_finds_each_in_its_turn() {
    let tick = |count: usize| {
        let simulator = Simulator::new(settings(8, 5));
        let memory = builder().build_on(simulator.machine()).unwrap();
        let mut kept = Vec::new();
        for number in 0..count {
            let name = number.to_string();
            let group = memory.root().child(&name, Limits::none()).unwrap();
            kept.push(group.charge(100));
        }
        assert_eq!(memory.removed_groups(), count);
        cost_on(&simulator, 0, || memory.tick());
        let cost = cost_on(&simulator, 0, || memory.tick()).events;
        kept.clear();
        let ticks = 2 + count / 1024;
        (0..ticks).for_each(|_| memory.tick());
        assert_eq!(memory.removed_groups(), 0);
        cost
    };
    let (some, many) = (tick(1100), tick(8000));
    println!(
        "operations of a tick beside removed groups with bytes: {some} of 1,100, {many} of 8,000"
    );
    assert!(many <= some + some / 10, "{some} {many}");
}

#[test]
fn refusals_name_the_biggest_children_and_look_at_them_ten_times_a_second() {
    let refuse = |count: usize| {
        let simulator = Simulator::new(settings(8, 6));
        let machine = simulator.machine();
        let memory = builder().build_on(machine.clone()).unwrap();
        let tenant = memory.root().child("tenant", Limits::max(MAX)).unwrap();
        let mut children = Vec::new();
        for number in 0..count {
            let child = tenant
                .child(format!("{number:05}"), Limits::none())
                .unwrap();
            let charge = child.charge((1 << 20) + number as u64);
            children.push((child, charge));
        }
        let _held = tenant.charge(1);
        let refusal = || match tenant.try_charge(MAX).unwrap_err() {
            ChargeError::LimitReached(reached) => *reached,
            other => panic!("{other}"),
        };
        let biggest: Vec<String> = (0..count)
            .rev()
            .take(5)
            .map(|number| format!("{number:05}"))
            .collect();
        cost_on(&simulator, 0, || {
            let first = refusal();
            assert!(first.largest_age.is_zero());
            let names: Vec<_> = first.largest.iter().map(|(name, _)| name.clone()).collect();
            assert_eq!(names, biggest);
        });
        // Meanwhile the biggest gives its bytes back. The next refusal may say otherwise, and then says how old that is.
        let gone = children.pop();
        let costs = cost_on(&simulator, 0, || {
            let second = refusal();
            assert!(count == 0 || !second.largest_age.is_zero());
            assert_eq!(second.largest.first().map(|one| &one.0), biggest.first());
            assert_eq!(
                second.to_string().contains("largest below it"),
                count > 0,
                "{second}"
            );
        });
        drop(gone);
        cost_on(&simulator, 0, || {
            machine.sleep_until(machine.now_ns() + 100 * MS);
            let later = refusal();
            assert!(later.largest_age.is_zero());
            assert_eq!(later.largest.first().map(|one| &one.0), biggest.get(1));
        });
        costs.events
    };
    let (none, many) = (refuse(0), refuse(5000));
    println!("operations of a refusal: {none} without children, {many} with 5,000");
    assert!(many <= none + 8, "{none} {many}");
}

/// A walk releases the lock of a group after a bounded number of slots, however many its children have together.
#[test]
fn cached_reads_wait_for_a_bounded_part_of_a_walk() {
    const CPUS: usize = 64;
    let longest = |children: usize| {
        let simulator = Simulator::new(settings(CPUS, 3));
        let machine = simulator.machine();
        let memory = builder().build_on(machine.clone()).unwrap();
        let tenant = memory.root().child("tenant", Limits::none()).unwrap();
        let query = |number: usize| tenant.child(number.to_string(), Limits::none()).unwrap();
        let queries: Vec<_> = (0..children).map(query).collect();
        for cpu in 0..CPUS as u32 {
            cost_on(&simulator, cpu, || {
                queries.iter().for_each(|query| query.add(ROWS, 1));
            });
        }
        let (walked, longest_ns) = (&AtomicBool::new(false), &AtomicU64::new(0));
        let reader = || {
            while !walked.load(Ordering::Relaxed) {
                let begun_ns = machine.now_ns();
                tenant.read(Freshness::Cached).unwrap();
                longest_ns.fetch_max(machine.now_ns() - begun_ns, Ordering::Relaxed);
            }
        };
        let walker = || {
            machine.sleep_until(machine.now_ns() + 10 * US);
            let reading = tenant.read(Freshness::Exact).unwrap();
            assert_eq!(reading.get(ROWS).value, (children * CPUS) as i64);
            walked.store(true, Ordering::Relaxed);
        };
        let bodies: [Body<'_>; 2] = [Box::new(walker), Box::new(reader)];
        machine.run(bodies.into());
        longest_ns.load(Ordering::Relaxed)
    };
    let (few, many) = (longest(8), longest(64));
    println!(
        "longest cached read beside a walk, virtual ns: {few} with 8 children, {many} with 64"
    );
    assert!(many < 8 * few, "{few} {many}");
}
