//! Charges above `high` on simulated machines: they sleep in virtual time as long as the kernel's formula says, which counts
//! as throttled and as stall, and averages of stall fade with virtual time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bursar::{Group, HighPolicy, Level, Limits};
use bursar_machine::Machine;
use bursar_rig::Tasks;
use bursar_sim::{Chance, Sim, Simulator};

use crate::common::{Body, MS, US, builder, calm, settings};

const MIB: u64 = 1 << 20;
/// The charge that waits as long as the formula says: 64 pages.
const BATCH: u64 = 256 << 10;

/// The kernel's formula by another way than the library's: 64 s times the square of the overage and the part of a batch,
/// at most 2 s, and nothing up to 10 ms.
fn formula_ns(usage: u64, high: u64, bytes: u64) -> f64 {
    let overage = (usage - high) as f64 / high as f64;
    let wait_ns = 64e9 * overage * overage * bytes as f64 / BATCH as f64;
    if wait_ns <= 1e7 {
        0.0
    } else {
        wait_ns.min(2e9)
    }
}

/// Charges `bytes` above a `high` so that the usage is then `usage`; returns the virtual time that it took.
fn throttled_ns(group: &Group<Sim>, machine: &Sim, high: u64, usage: u64, bytes: u64) -> u64 {
    group.set_high(u64::MAX);
    let below = group.try_charge(usage - bytes).unwrap();
    group.set_high(high);
    let took_ns = AtomicU64::new(0);
    machine.run(vec![Box::new(|| {
        let begun_ns = machine.now_ns();
        drop(group.try_charge(bytes).unwrap());
        took_ns.store(machine.now_ns() - begun_ns, Ordering::Relaxed);
    })]);
    drop(below);
    took_ns.into_inner()
}

#[test]
fn a_charge_above_high_sleeps_as_long_as_the_formula_says() {
    let settings = settings(72, 1);
    let costs = settings.costs;
    let simulator = Simulator::new(settings);
    let machine = simulator.machine();
    let memory = builder().build_on(machine.clone()).unwrap();
    let tenant = memory.root().child("tenant", Limits::none()).unwrap();
    let query = tenant.child("query", Limits::none()).unwrap();
    // Of one size of stock or more, so that nothing is reserved ahead and the charge alone pays.
    for (percent, bytes) in [
        (101, 2 * BATCH),
        (102, BATCH),
        (105, BATCH),
        (110, 2 * BATCH),
        (117, BATCH),
        (150, BATCH),
        (200, BATCH),
        (200, 9 * BATCH),
    ] {
        let (high, usage) = (100 * MIB, percent * MIB);
        let before = query.own_events().throttled;
        let stalled = |group: &Group<Sim>| group.pressure().stall.some.total;
        let stalled_before = [&query, &tenant].map(stalled);
        let took_ns = throttled_ns(&query, &machine, high, usage, bytes);
        let slept_ns = (query.own_events().throttled - before).as_nanos() as u64;
        let formula_ns = formula_ns(usage, high, bytes) as u64;
        // A thread's sleep is late by the machine's timer slack and the way into and out of the kernel; the overage is
        // dropped below 2^-20, of 1 % less than one part in 5,000 of its square.
        let late_ns = costs.timer_slack_ns
            + costs.syscall_ns
            + costs.idle_exit_ns
            + costs.timer_interrupt_ns
            + costs.switch_ns
            + costs.wake_ns
            + 2 * costs.clock_ns;
        let least_ns = formula_ns - formula_ns / 5000;
        println!("{percent} %, {bytes} bytes: {formula_ns} ns by the formula, slept {slept_ns}");
        assert!((least_ns + costs.timer_slack_ns..=formula_ns + late_ns).contains(&slept_ns));
        // All that the charge took beside the sleep is computing.
        assert!(
            (slept_ns..slept_ns + 20 * US).contains(&took_ns),
            "{took_ns}"
        );
        // It is a stall of the group and of all above.
        for (group, before) in [&query, &tenant].into_iter().zip(stalled_before) {
            let stalled_ns = (stalled(group) - before).as_nanos() as u64;
            assert!(
                (slept_ns..slept_ns + 20 * US).contains(&stalled_ns),
                "{stalled_ns}"
            );
        }
    }
    let events = query.own_events();
    assert_eq!((events.high, events.refused), (8, 0));
    // At 100 % above, the longest: 2 s.
    assert_eq!(formula_ns(200 * MIB, 100 * MIB, BATCH), 2e9);
}

#[test]
fn little_above_high_costs_no_sleep_and_an_owing_memory_never_sleeps() {
    let (_simulator, machine, memory) = calm(8, 1);
    let query = memory.root().child("query", Limits::none()).unwrap();
    let took_ns = throttled_ns(&query, &machine, 100 * MIB, 101 * MIB, BATCH);
    assert!(took_ns < 20 * US, "6.4 ms are not worth it: {took_ns}");
    assert_eq!(query.own_events().throttled, Duration::ZERO);

    let owing = builder().high_policy(HighPolicy::Owe);
    let memory = owing.build_on(machine.clone()).unwrap();
    let query = memory.root().child("query", Limits::none()).unwrap();
    let took_ns = throttled_ns(&query, &machine, 100 * MIB, 200 * MIB, BATCH);
    assert!(took_ns < 20 * US, "{took_ns}");
    let debt = query.take_debt();
    assert_eq!(
        (debt.bytes, debt.delay),
        (BATCH, Duration::ZERO),
        "it was returned by now"
    );
}

/// All CPUs above one `high`: each sleeps for itself, at once, so the group is slowed and the machine is not; late timers
/// only make them later.
#[test]
fn all_that_charge_above_high_sleep_at_the_same_time() {
    for cpus in [8, 384] {
        let mut settings = settings(cpus, 9);
        settings.faults.late_timer = Chance {
            one_in: 3,
            for_ns: 5 * MS,
        };
        let simulator = Simulator::new(settings);
        let machine = simulator.machine();
        let memory = builder().build_on(machine.clone()).unwrap();
        let tenant = memory
            .root()
            .child("tenant", Limits::none().high(cpus as u64 * BATCH))
            .unwrap();
        let kept = tenant.try_charge(cpus as u64 * BATCH).unwrap();
        let begun_ns = machine.now_ns();
        let task = || -> Body<'_> {
            Box::new(|| {
                let charge = tenant.try_charge(BATCH).unwrap();
                machine.sleep_until(machine.now_ns() + 3_000 * MS);
                drop(charge);
            })
        };
        machine.run((0..cpus).map(|_| task()).collect());
        // From the one that came first to the one that made it 200 %: none waits longer than 2 s and being late.
        let took_ns = machine.now_ns() - begun_ns;
        assert!((5_000 * MS..5_020 * MS).contains(&took_ns), "{took_ns}");
        let throttled = tenant.own_events().throttled.as_millis() as u64;
        assert!(throttled > cpus as u64 * 1_000 && throttled < cpus as u64 * 2_010);
        // Together they stalled for as long as the longest: stall is time in which any did.
        let total = tenant.pressure().stall.some.total.as_millis();
        assert!((2_000..2_020).contains(&total), "{total}");
        drop(kept);
    }
}

#[test]
fn stall_averages_fade_with_virtual_time_and_tick_tells() {
    let (_simulator, machine, memory) = calm(8, 1);
    let tenant = memory
        .root()
        .child("tenant", Limits::none().high(MIB))
        .unwrap();
    let levels = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = levels.clone();
    let sleep = |ns: u64| machine.sleep_until(machine.now_ns() + ns);
    let kept = tenant.try_charge(MIB).unwrap();
    let _watch = tenant.on_pressure(move |pressure| told.lock().unwrap().push(pressure.by_stall));
    // Ten seconds of nothing but stall.
    machine.run(vec![Box::new(|| {
        for _ in 0..5 {
            drop(tenant.try_charge(MIB).unwrap());
        }
    })]);
    let stall = tenant.pressure().stall;
    assert_eq!(stall.some.total.as_secs(), 10);
    let expected = 1.0 - (-1.0_f64).exp();
    assert!((stall.some.avg10 - expected).abs() < 0.01, "{stall:?}");
    assert_eq!(tenant.pressure().by_stall, Level::Critical);
    // Nothing happens but time: after so many whole periods of 2 s the average is what is left of it.
    drop(kept);
    let mut last = Level::Critical;
    for period in 1..=20 {
        sleep(2_000 * MS);
        memory.tick();
        let now = tenant.pressure();
        let left = stall.some.avg10 * (-0.2 * f64::from(period)).exp();
        assert!(
            (now.stall.some.avg10 - left).abs() < 0.01,
            "{period}: {now:?}"
        );
        assert!(now.by_stall <= last);
        last = now.by_stall;
        assert_eq!(now.stall.some.total, stall.some.total);
    }
    assert_eq!(last, Level::None);
    let levels = levels.lock().unwrap();
    assert!(
        levels.contains(&Level::High) && levels.ends_with(&[Level::None]),
        "{levels:?}"
    );
}
