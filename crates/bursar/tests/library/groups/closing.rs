//! Closing a subtree: what it refuses and wakes, and waiting for the last byte.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use crate::common::world::Stop;
use crate::common::{ROWS, Random, Short, Task, UNIT, crew, memory, seed, units};
use bursar::engine::NowaitError;
use bursar::{ChargeError, CreateError, Emptied, Group, Limits, Memory, RemoveError};

fn emptied(group: &Group) -> Task<Emptied> {
    Task::new(group.emptied())
}

/// Whether another thread makes it so within a bounded number of looks.
fn becomes(mut is_so: impl FnMut() -> bool) -> bool {
    (0..1_000_000).any(|_| {
        std::thread::yield_now();
        is_so()
    })
}

/// Whether a task is woken and ready within a bounded number of looks.
fn ends(mut task: Task<Emptied>) -> bool {
    task.poll().is_ready() || becomes(|| task.wakes() > 0 && task.poll().is_ready())
}

fn assert_closed(group: &Group) {
    assert!(group.is_removed(), "{group}");
    let refused = group.try_charge(1);
    assert!(matches!(refused, Err(ChargeError::Removed { .. })));
    assert_eq!(
        group.engine().try_charge_nowait(1).unwrap_err(),
        NowaitError::Removed
    );
    assert!(!group.engine().charge_from_stock(1), "stock is left");
    let refused = group.child("late", Limits::none());
    assert!(matches!(refused, Err(CreateError::ParentRemoved { .. })));
    assert!(group.children().is_empty());
}

#[test]
fn a_whole_subtree_is_closed_in_one_call() {
    let memory = memory();
    let root = memory.root();
    assert_eq!(root.close(), Err(RemoveError::Root));
    let tenant = root.make_max("tenant", units(8));
    let queries = ["a", "b"].map(|name| tenant.make(name));
    let scan = queries[0].make("scan");
    let other = root.make("other");
    // Leaves stock.
    drop(scan.try_charge(100).unwrap());
    scan.add(ROWS, 3);
    let charge = scan.try_charge(UNIT).unwrap();
    tenant.close().unwrap();
    for group in [&tenant, &queries[0], &queries[1], &scan] {
        assert_closed(group);
    }
    assert_eq!(memory.reserved(), units(1), "stock is left");
    let reading = root.exact();
    assert_eq!((reading.own(ROWS), reading.own_usage()), (3, UNIT as i64));
    assert!(other.try_charge(1).is_ok());
    // The names are free, and closing again does nothing.
    let again = root.make("tenant");
    tenant.close().unwrap();
    scan.close().unwrap();
    assert!(!again.is_removed());
    // An infallible charge still succeeds.
    let late = scan.charge(UNIT);
    assert_eq!(scan.reserved(), units(2));
    drop((late, charge));
    assert_eq!((scan.reserved(), tenant.reserved()), (0, 0));
    drop((tenant, queries, scan));
    memory.tick();
    memory.tick();
    assert_eq!(memory.removed_groups(), 0);
}

#[test]
fn charges_that_wait_are_refused() {
    // At the limit of the group itself, of the group that is closed, and of the root.
    for at in ["query", "tenant", "root"] {
        let memory = memory();
        let root = memory.root();
        let tenant = root.make("tenant");
        let query = tenant.make("query");
        let other = root.make("other");
        let held = query.try_charge(2 * UNIT).unwrap();
        match at {
            "query" => query.set_max(units(2)),
            "tenant" => tenant.set_max(units(2)),
            _ => root.set_max(units(2)),
        }
        // The first at the root's limit stays in the queue, and has all wake-ups for memory.
        let mut others = Task::new(other.charge_async(UNIT));
        assert_eq!(others.poll().is_pending(), at == "root");
        let mut waits = [(); 2].map(|()| Task::new(query.charge_async(UNIT)));
        for task in &mut waits {
            assert!(task.poll().is_pending());
            task.wakes();
        }
        tenant.close().unwrap();
        for task in &mut waits {
            assert!(task.wakes() > 0, "not woken at the limit of the {at}");
            let polled = task.poll();
            assert!(
                matches!(polled, Poll::Ready(Err(ChargeError::Removed { .. }))),
                "{polled:?}"
            );
        }
        if at == "root" {
            assert!(others.poll().is_pending(), "nothing was returned");
            drop(held);
            assert!(others.poll().is_ready());
        }
    }
}

#[test]
fn the_last_byte_ends_the_wait() {
    let tenant = memory().make("tenant");
    let query = tenant.make("query");
    let mut charge = query.try_charge(3 * UNIT).unwrap();
    let small = tenant.try_charge(1).unwrap();
    let empty = tenant.try_charge(0).unwrap();
    let [mut first, mut second, mut below] = [emptied(&tenant), emptied(&tenant), emptied(&query)];
    for task in [&mut first, &mut second, &mut below] {
        assert!(task.poll().is_pending());
    }
    // A group in which nothing is charged ends with its closing.
    let idle = tenant.make("idle");
    let mut at_once = emptied(&idle);
    assert!(at_once.poll().is_pending());
    tenant.close().unwrap();
    assert!(at_once.wakes() > 0 && at_once.poll().is_ready());
    assert!(first.poll().is_pending() && below.poll().is_pending());
    drop(charge.split(UNIT).unwrap());
    assert!(first.poll().is_pending() && below.poll().is_pending());
    below.wakes();
    drop(charge);
    assert!(below.wakes() > 0 && below.poll().is_ready());
    assert!(first.poll().is_pending());
    // One that is dropped is not woken, and does not keep the others from it.
    drop(second);
    first.wakes();
    drop(small);
    assert!(first.wakes() > 0 && first.poll().is_ready());
    assert!(emptied(&tenant).poll().is_ready(), "it stays so");
    assert_eq!(tenant.reserved(), 0);
    drop(empty);
    tenant.emptied().wait();
}

#[test]
fn a_group_that_lives_is_not_at_its_end() {
    let memory = memory();
    assert!(emptied(&memory.root()).poll().is_pending());
    let group = memory.make("group");
    let mut task = emptied(&group);
    assert!(task.poll().is_pending(), "nothing is charged, but it lives");
    drop(group.try_charge(UNIT).unwrap());
    assert!(task.poll().is_pending());
    task.wakes();
    group.remove().unwrap();
    assert!(task.wakes() > 0 && task.poll().is_ready());
    // Not the last handle: the future has one.
    let group = memory.make("group");
    let mut task = emptied(&group);
    drop(group);
    assert!(task.poll().is_pending());
    assert!(memory.find("group").is_some());
    drop(task);
    assert!(memory.find("group").is_none());
}

#[test]
fn moving_the_last_bytes_away_ends_the_wait() {
    let memory = memory();
    let [from, to] = ["from", "to"].map(|name| memory.make(name));
    let mut charge = from.try_charge(UNIT).unwrap();
    let mut task = emptied(&from);
    from.close().unwrap();
    assert!(task.poll().is_pending());
    task.wakes();
    charge.move_to(&to).unwrap();
    assert!(task.wakes() > 0 && task.poll().is_ready());
    assert!(charge.move_to(&from).is_err());
}

/// Threads make groups at all depths and charge there, while two others close all of it, and one waits for the end.
#[test]
fn nothing_gets_in_while_threads_close() {
    const WORKERS: u64 = 3;
    /// Beyond these, names repeat, so that the tree stays small.
    const NAMES: usize = 100;
    let seed = seed();
    let memory = memory();
    let rows = AtomicUsize::new(0);
    for round in 0..30 {
        let tenant = memory.make_max("tenant", units(4));
        let (working, is_closed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let all = Mutex::new(Vec::new());
        let charge = |worker| {
            let mut random = Random(seed ^ (round * WORKERS + worker));
            let (mut groups, mut held) = (vec![tenant.clone()], Vec::new());
            working.fetch_add(1, Ordering::SeqCst);
            loop {
                let was_closed = is_closed.load(Ordering::SeqCst);
                let group = &groups[random.below(groups.len())];
                let name = format!("{worker}-{}", groups.len().min(NAMES));
                let made = group.child(&name, Limits::none());
                let bytes = 1 + random.below(UNIT as usize / 64) as u64;
                let charged = match random.below(4) {
                    0 => group.engine().try_charge_nowait(bytes).ok(),
                    _ => group.try_charge(bytes).ok(),
                };
                group.add(ROWS, 1);
                rows.fetch_add(1, Ordering::SeqCst);
                if was_closed {
                    assert!(charged.is_none(), "a charge to {group}");
                    assert!(made.is_err(), "a child of {group}");
                    return all.lock().unwrap().extend(groups);
                }
                held.extend(charged);
                held.truncate(100);
                assert_ne!(made, Err(CreateError::OutOfMemory));
                groups.extend(made);
            }
        };
        let close = || {
            // Ends the workers also if anything here fails.
            let _stop = Stop(&is_closed);
            while working.load(Ordering::SeqCst) < WORKERS as usize {
                std::thread::yield_now();
            }
            tenant.close().unwrap();
            assert!(tenant.children().is_empty() && tenant.try_charge(1).is_err());
        };
        let work = |thread| match thread {
            0..WORKERS => charge(thread),
            WORKERS => {
                while !is_closed.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                assert!(ends(emptied(&tenant)), "the last byte woke nobody");
            }
            _ => close(),
        };
        crew(WORKERS + 3, work, std::thread::yield_now);
        assert_eq!(tenant.reserved(), 0);
        let groups = all.into_inner().unwrap();
        groups.iter().for_each(assert_closed);
        assert!(
            groups.len() > WORKERS as usize || round > 0,
            "no group was made"
        );
        let reading = memory.exact();
        let rows = rows.load(Ordering::SeqCst) as i64;
        assert_eq!((reading.get(ROWS).value, reading.own(ROWS)), (rows, rows));
        assert_eq!(reading.usage().value, 0);
    }
    assert_eq!(memory.reserved(), 0);
    (0..70).for_each(|_| memory.tick());
    assert_eq!(memory.removed_groups(), 0);
}

#[test]
fn a_memory_may_own_its_ticker() {
    let quick = || Memory::builder().flush_period(std::time::Duration::from_millis(4));
    let memory = quick().ticker(true).build().unwrap();
    let group = memory.make("group");
    let charge = group.engine().charge_nowait(UNIT);
    group.close().unwrap();
    let clone = memory.clone();
    drop(memory);
    // Only a tick tells of this, by a clone's ticker.
    let waits = emptied(&group);
    charge.release_nowait();
    assert!(ends(waits), "no tick");
    // The last handle's drop waits for the thread.
    let ticks = |memory: &Memory| memory.flush_counts().root;
    assert!(becomes(|| ticks(&clone) >= 3));
    let after = group.memory();
    drop(clone);
    let stopped = ticks(&after);
    let other = quick().ticker(true).build().unwrap();
    assert!(becomes(|| ticks(&other) >= 3));
    assert_eq!(ticks(&after), stopped, "a ticker without a memory");
    let host = bursar::Host::start().unwrap();
    let refused = quick().ticker(true).build_on(host).map(|_| ());
    assert_eq!(refused, Err(bursar::MemoryError::NoTicker));
}
