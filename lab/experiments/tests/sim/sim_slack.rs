//! Guarantee 6 on simulated machines: how much stock there can be, that one CPU can take all of it back, and that groups
//! nobody touches cost nothing.

use bursar::{Counter, Freshness, Group, Limits, Statistic};
use bursar_machine::Machine;
use bursar_rig::Tasks;
use bursar_rig::random::Random;
use bursar_sim::{Sim, Simulator};

use crate::common::{Body, US, builder, calm, cost_on, settings};

/// The most stock of one group on one CPU whose requests are small, bytes.
const LEAST: u64 = 256 << 10;

/// The most stock of one group whose requests are small, where this limit is all room: the documented bounds.
fn bound(cpus: usize, max: u64) -> u64 {
    (max / 4).min(cpus as u64 * LEAST)
}

/// Bytes that are reserved and not charged.
fn stock_of(group: &Group<Sim>) -> u64 {
    let reading = group.read(Freshness::Exact).expect("readers may flush");
    group.reserved() - reading.usage().value as u64
}

/// Charges and returns on all CPUs, in all groups.
fn stir(machine: &Sim, groups: &[Group<Sim>], rounds: usize, most: u64) {
    let task = |cpu: usize| -> Body<'_> {
        Box::new(move || {
            let mut random = Random::fork(21, cpu as u64);
            let mut held = Vec::new();
            for _ in 0..rounds {
                let group = &groups[random.below(groups.len() as u64) as usize];
                held.extend(group.try_charge(1 + random.below(most)).ok());
                if held.len() > 3 {
                    drop(held.remove(0));
                }
                machine.compute(random.below(US));
            }
        })
    };
    // Twice as many tasks as CPUs: they move, and two of one CPU may arm it at once.
    machine.run((0..2 * machine.cpus()).map(task).collect());
}

#[test]
fn stock_is_bounded_by_cpu_and_shrinks_with_the_head_room() {
    for cpus in [8, 72, 384, 1024] {
        let (_simulator, machine, memory) = calm(cpus, 4);
        let wide = memory.root().child("wide", Limits::none()).unwrap();
        stir(&machine, std::slice::from_ref(&wide), 12, 2 * LEAST);
        let stock = stock_of(&wide);
        println!("{cpus} CPUs: {stock} bytes, {} a CPU", stock / cpus as u64);
        // As many of the largest request.
        assert!(stock > 0 && stock <= cpus as u64 * 32 * 2 * LEAST);
        for shift in [26, 22, 16] {
            let max = 1_u64 << shift;
            let narrow = memory.root().child(shift.to_string(), Limits::max(max));
            let narrow = narrow.expect("there is room");
            stir(&machine, std::slice::from_ref(&narrow), 12, 2048);
            let most = bound(cpus, max);
            let stock = stock_of(&narrow);
            println!("{cpus} CPUs, limit {max}: {stock} bytes");
            assert!(stock <= most, "{stock}");
            let cached = narrow.read(Freshness::Cached).unwrap().usage();
            assert!(cached.error() <= most, "the caps");
        }
    }
}

#[test]
fn a_thousand_groups_keep_the_bound_each_and_all_within_the_limit() {
    for cpus in [8, 72, 384, 1024] {
        let (simulator, machine, memory) = calm(cpus, 5);
        let max = 1 << 30;
        let tenant = memory.root().child("tenant", Limits::max(max)).unwrap();
        let child = |number: usize| tenant.child(number.to_string(), Limits::none()).unwrap();
        let groups: Vec<_> = (0..1000).map(child).collect();
        stir(&machine, &groups, 20_000 / cpus, 4096);
        let each = bound(cpus, max);
        let stocks: Vec<u64> = groups.iter().map(stock_of).collect();
        assert!(stocks.iter().all(|stock| *stock <= each));
        let sum: u64 = stocks.iter().sum();
        assert_eq!(stock_of(&tenant), sum);
        println!("{cpus} CPUs: {sum} bytes of stock in 1,000 groups");
        assert!(sum > 0 && tenant.reserved() <= max);
        machine.sleep_until(machine.now_ns() + 3_000_000_000);
        memory.tick();
        let kept = stock_of(&tenant);
        assert!(kept <= max / 4, "upkeep leaves a quarter: {kept}");
        stir(&machine, &groups, 20_000 / cpus, 4096);
        // From one CPU, all of it: a charge of the whole limit fits.
        let counts = cost_on(&simulator, cpus as u32 - 1, || {
            drop(groups[7].try_charge(max).expect("only stock is there"));
        });
        assert!(counts.fences > 0);
        assert_eq!(stock_of(&tenant), 0);
    }
}

/// Batches on all CPUs, with 5 % of the limit left: none is refused that fits, and CPUs hold little beside the room.
#[test]
fn a_tenant_near_its_limit() {
    for cpus in [2, 384] {
        let (_simulator, machine, memory) = calm(cpus, 7);
        let max = 16 << 30;
        let tenant = memory.root().child("tenant", Limits::max(max)).unwrap();
        let kept = tenant.try_charge(max / 100 * 95).unwrap();
        let room = max - kept.bytes();
        // Each task holds four requests at once, and all of these fit.
        let most = room / (4 * 2 * cpus as u64);
        let groups = ["0", "1"].map(|name| tenant.child(name, Limits::none()).unwrap());
        for largest in [4096, 64 << 10, 1 << 20, 16 << 20] {
            let before = tenant.events();
            let largest = most.min(largest);
            stir(&machine, &groups, 40, largest);
            let events = tenant.events();
            let (stock, drained) = (
                stock_of(&tenant),
                events.drained_bytes - before.drained_bytes,
            );
            println!(
                "{cpus} CPUs, {room} bytes left, requests of {largest} at most: {stock} stranded, {drained} drained"
            );
            assert_eq!(events.refused, 0);
            assert!(stock <= room / 4, "{stock}");
        }
    }
}

#[test]
fn one_cpu_takes_back_the_stock_of_all_others() {
    for cpus in [8, 72, 384, 1024] {
        let (simulator, machine, memory) = calm(cpus, 6);
        let tenant = memory.root().child("tenant", Limits::none()).unwrap();
        let groups = ["0", "1", "2"].map(|name| tenant.child(name, Limits::none()).unwrap());
        stir(&machine, &groups, 6, 4096);
        let keep = groups[1].try_charge(12_345).unwrap();
        assert!(stock_of(&tenant) > 0);
        cost_on(&simulator, 0, || tenant.set_max(0));
        assert_eq!(tenant.reserved(), 12_345);
        let cached = tenant.read(Freshness::Cached).unwrap().usage();
        assert_eq!(
            (cached.lo, cached.hi),
            (12_345, 12_345),
            "no stock, so no doubt"
        );
        drop(keep);
    }
}

const PLAIN: &[Statistic] = &[Statistic::counter("rows")];
const ROWS: Counter = Counter::from_name(PLAIN, "rows");

/// Simulated shards are made when they are first touched, as on the host. The counts show that to make a group, to read it
/// and to flush above it takes as many steps on 1,024 CPUs as on 8, and that idle groups add none to a flush. (Without eager
/// statistics: a reading's own part of those is what the children have not, which is a look at each.)
#[test]
fn idle_groups_cost_nothing_by_cpu() {
    let steps = |cpus: usize| {
        let simulator = Simulator::new(settings(cpus, 7));
        let plain = builder().statistics(PLAIN);
        let memory = plain.build_on(simulator.machine()).unwrap();
        assert_eq!(memory.bytes_per_group_and_cpu(), 64, "five words");
        let tenant = memory.root().child("tenant", Limits::none()).unwrap();
        let busy = tenant.child("busy", Limits::none()).unwrap();
        let steps_of = |work: &(dyn Fn() + Sync)| {
            let counts = cost_on(&simulator, 3, || {
                busy.add(ROWS, 1_u64);
                work();
            });
            counts.events
        };
        let flush = || steps_of(&|| tenant.flush().map(drop).unwrap());
        let read = || steps_of(&|| tenant.read(Freshness::Exact).map(drop).unwrap());
        flush();
        // The second one makes a roster, and those that follow use it.
        for _ in 0..2 {
            read();
        }
        let before = (flush(), read());
        let mut idle = Vec::new();
        let made = cost_on(&simulator, 3, || {
            let child = |number: usize| tenant.child(number.to_string(), Limits::none()).unwrap();
            idle.extend((0..200).map(child));
        });
        flush();
        assert_eq!((flush(), read()), before, "idle groups are in no flush");
        let read = cost_on(&simulator, 3, || {
            idle.iter()
                .for_each(|group| assert_eq!(group.reserved(), 0));
            idle[0].read(Freshness::Exact).unwrap();
        });
        (before, made.events, read.events)
    };
    let few = steps(8);
    println!("flush, 200 groups made, read: {few:?} steps");
    assert_eq!(few, steps(72));
    assert_eq!(few, steps(384));
    assert_eq!(few, steps(1024));
}
