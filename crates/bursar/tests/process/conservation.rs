//! Every update is counted once. The threads end, move between CPUs, and are interrupted by signals whose handlers add
//! and charge as well. Groups come and go.
//!
//! Under a sanitizer, set `BURSAR_BACKEND=sharded`: sections are invisible to it.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::common::{BALANCE, BATCHED, EAGER, ROWS, Random, Short, hop, memory, seed};
use bursar::{Freshness, Group, Level};

/// Notes of the threads on their updates, to compare with.
#[derive(Default)]
struct Truth {
    rows: AtomicU64,
    balance: AtomicI64,
}

fn work(groups: &[Group], truth: &Truth, seed: u64, steps: usize) {
    let mut random = Random(seed);
    let mut held = Vec::new();
    for step in 0..steps {
        if step % 64 == 0 {
            hop(&mut random);
        }
        let group = &groups[random.below(groups.len())];
        match random.below(8) {
            0..3 => {
                group.add(ROWS, 1);
                truth.rows.fetch_add(1, Ordering::Relaxed);
            }
            3 | 4 => {
                let delta = random.below(200) as i64 - 100;
                group.add(BALANCE, delta);
                group.add(BATCHED, delta);
                group.add(EAGER, delta);
                truth.balance.fetch_add(delta, Ordering::Relaxed);
            }
            5 | 6 => held.extend(group.try_charge(random.below(9000) as u64).ok()),
            _ => {
                let at = random.below(held.len().max(1));
                if at < held.len() {
                    drop(held.swap_remove(at));
                }
            }
        }
    }
}

#[test]
fn threads_that_move_and_end_lose_nothing() {
    let _alone = crate::common::fork::alone();
    let seed = seed();
    let memory = memory();
    let tenant = memory.make_max("tenant", 4 << 20);
    let groups: Vec<Group> = (0..6)
        .map(|index| tenant.make(format!("q{index}")))
        .collect();
    let truth = Truth::default();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A reader and limits that change keep flushes and drains in the way of the updates.
        scope.spawn(|| {
            let mut random = Random(seed);
            while !stop.load(Ordering::Relaxed) {
                let reading = tenant.exact();
                assert!(reading.usage().value <= 4 << 20);
                tenant.set_max((1 + random.below(4) as u64) << 20);
                groups[random.below(6)].exact();
            }
        });
        for generation in 0..20 {
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (groups, truth) = (&groups, &truth);
                    scope.spawn(move || work(groups, truth, seed ^ generation << 8 ^ thread, 1000));
                }
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
    let reading = memory.exact();
    let balance = truth.balance.into_inner();
    assert_eq!(reading.get(ROWS).value as u64, truth.rows.into_inner());
    assert_eq!(reading.get(BALANCE).value, balance);
    assert_eq!(reading.get(BATCHED).value, balance);
    assert_eq!(reading.get(EAGER).value, balance);
    assert_eq!(reading.usage().value, 0);
    // Children and own make the parent, exactly.
    let tenant_rows = tenant.exact();
    let parts: i64 = groups
        .iter()
        .map(|group| group.read(Freshness::Cached).unwrap().get(ROWS).value)
        .sum();
    assert_eq!(parts + tenant_rows.own(ROWS), tenant_rows.get(ROWS).value);
    // All that is still reserved is stock, and it can be had.
    tenant.set_max(0);
    assert_eq!(tenant.reserved(), 0);
}

/// Group of the signal handler.
static INTERRUPTED: OnceLock<Group> = OnceLock::new();
static HANDLED: AtomicU64 = AtomicU64::new(0);
static CHARGED: AtomicU64 = AtomicU64::new(0);

fn on_signal() {
    let Some(group) = INTERRUPTED.get() else {
        return;
    };
    group.add(ROWS, 1);
    group.add(BATCHED, 3);
    // Small enough to fit beside the one that waits.
    if let Ok(charge) = group.engine().try_charge_nowait(1000) {
        CHARGED.fetch_add(1, Ordering::Relaxed);
        charge.release_nowait();
    }
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

#[cfg(unix)]
#[test]
fn signal_handlers_may_add_and_charge() {
    let _alone = crate::common::fork::alone();
    const STEPS: u64 = 60_000;
    let memory = memory();
    let tenant = memory.make_max("tenant", 1 << 20);
    let query = tenant.make("query");
    INTERRUPTED.set(query.clone()).unwrap();
    crate::common::signals::on(libc::SIGURG, on_signal);
    let done = AtomicBool::new(false);
    // Other threads notice the returns of handlers: one watches, and one waits.
    let (level, told) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
    let last = level.clone();
    let _watcher = tenant.on_pressure(move |pressure| {
        last.store(pressure.level as u64, Ordering::Relaxed);
    });
    let served = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            while !done.load(Ordering::Acquire) || served.load(Ordering::Relaxed) < 50 {
                let charge = crate::common::block_on(query.charge_async((1 << 20) - 3000)).unwrap();
                told.fetch_max(level.load(Ordering::Relaxed), Ordering::Relaxed);
                served.fetch_add(1, Ordering::Relaxed);
                // In the way of the others for a moment.
                std::thread::yield_now();
                drop(charge);
                std::thread::yield_now();
            }
        });
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (send, receive) = std::sync::mpsc::channel();
                let (query, done) = (&query, &done);
                scope.spawn(move || {
                    send.send(crate::common::signals::this_thread()).unwrap();
                    for _ in 0..STEPS {
                        query.add(ROWS, 1);
                        query.add(BATCHED, -1);
                        drop(query.try_charge(5000));
                    }
                    // A signal needs a thread to go to until the senders have stopped.
                    while !done.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                });
                receive.recv().unwrap()
            })
            .collect();
        let mut sent = 0;
        while HANDLED.load(Ordering::Relaxed) < 2000 || query.rows() < 2 * STEPS as i64 {
            for worker in &workers {
                crate::common::signals::send(worker, libc::SIGURG);
                sent += 1;
            }
            memory.tick();
        }
        assert!(sent >= 2000);
        done.store(true, Ordering::Release);
        while !waiter.is_finished() {
            memory.tick();
            std::thread::yield_now();
        }
    });
    assert_eq!(told.into_inner(), Level::Critical as u64);
    memory.tick();
    let now = tenant.pressure().level;
    assert_eq!(level.load(Ordering::Relaxed), now as u64);
    assert!(CHARGED.load(Ordering::Relaxed) > 0);
    let handled = HANDLED.load(Ordering::Relaxed) as i64;
    let reading = tenant.exact();
    assert_eq!(reading.get(ROWS).value, 2 * STEPS as i64 + handled);
    assert_eq!(reading.get(BATCHED).value, 3 * handled - 2 * STEPS as i64);
    assert_eq!(reading.usage().value, 0);
}
