//! A process that forks while threads reclaim, wait and are told of pressure: in the child no task waits for those
//! threads.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Waker};

use crate::common::fork::in_child;
use crate::common::world::Stop;
use crate::common::{Short, memory};
use bursar::{ChargeAsync, Freshness, Level};

const MAX: u64 = 1 << 20;

fn poll(future: ChargeAsync) -> Poll<bool> {
    let mut future = pin!(future);
    let polled = future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    polled.map(|charged| charged.is_ok())
}

#[test]
fn nobody_waits_for_threads_that_are_gone() {
    let _alone = crate::common::fork::alone();
    let memory = memory();
    let group = memory.make_max("g", MAX);
    let parent = std::process::id();
    // Met when a thread is inside its callback, and again when it may leave.
    let (inside, leave) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(3)));
    let blocks = {
        let (inside, leave) = (inside.clone(), leave.clone());
        move || {
            if std::process::id() == parent {
                inside.wait();
                leave.wait();
            }
        }
    };
    let asked = Arc::new(AtomicUsize::new(0));
    let reclaims = group.add_reclaimer(0, {
        let (asked, blocks) = (asked.clone(), blocks.clone());
        move |_| {
            asked.fetch_add(1, Ordering::SeqCst);
            blocks();
            0
        }
    });
    let told = Arc::new(Mutex::new(Level::None));
    let is_blocking = Arc::new(AtomicBool::new(true));
    let watched = memory.make_max("w", MAX);
    let watches = watched.on_pressure({
        let (told, is_blocking) = (told.clone(), is_blocking.clone());
        move |pressure| {
            *told.lock().unwrap() = pressure.level;
            if is_blocking.load(Ordering::SeqCst) {
                blocks();
            }
        }
    });
    let mut all = Some(group.try_charge(MAX).unwrap());
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| group.try_charge(1).is_err());
        let charged = scope.spawn(|| watched.try_charge(MAX).unwrap());
        inside.wait();
        // In the queue, and never polled again in the child.
        let mut first = Box::pin(group.charge_async(10));
        let mut context = Context::from_waker(Waker::noop());
        // Its poll asks the reclaimer, which waits for nobody in the child, and here for us: so it is polled there only.
        in_child(|| {
            assert_eq!(asked.load(Ordering::SeqCst), 1);
            assert!(first.as_mut().poll(&mut context).is_pending());
            assert_eq!(
                asked.load(Ordering::SeqCst),
                2,
                "the task that reclaimed is gone"
            );
            assert_eq!(group.pressure().stall.some.avg10, 0.0);
            in_child(|| {
                memory.tick();
                // Without being polled again it is in nobody's way, and leaves in peace.
                drop(all.take());
                assert_eq!(poll(group.charge_async(MAX)), Poll::Ready(true));
                drop(first);
                assert_eq!(poll(group.charge_async(MAX)), Poll::Ready(true));
                // The charge of the thread that is gone stays, and so does the level; here it changes.
                assert_eq!(*told.lock().unwrap(), Level::Critical);
                watched.set_max(100 * MAX);
                assert_eq!(*told.lock().unwrap(), Level::None, "somebody tells");
            });
        });
        is_blocking.store(false, Ordering::SeqCst);
        leave.wait();
        assert!(refused.join().unwrap());
        drop(charged.join().unwrap());
    });
    assert_eq!(*told.lock().unwrap(), Level::None);
    drop((reclaims, watches));
}

/// A charge waits at a limit above its group, which has no state of its own.
#[test]
fn a_child_forgets_that_charges_wait() {
    let _alone = crate::common::fork::alone();
    let memory = memory();
    let tenant = memory.make_max("tenant", MAX);
    let held = tenant.try_charge(MAX).unwrap();
    let group = tenant.make("query");
    let mut waits = Box::pin(group.charge_async(MAX));
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    in_child(|| {
        drop(waits);
        group.close().unwrap();
        drop(group);
        memory.tick();
        // The record is another's. With debug assertions, its birth looks.
        drop(tenant.make("next").try_charge(1));
    });
    drop(held);
}

/// Threads look whether a group is emptied, for which they take a lock of its numbers.
#[test]
fn a_child_finds_no_lock_of_a_look_at_an_ended_group() {
    let _alone = crate::common::fork::alone();
    let memory = memory();
    let group = memory.make("g");
    drop(group.try_charge(MAX).unwrap());
    group.remove().unwrap();
    let is_emptied = || {
        let emptied = pin!(group.emptied());
        let mut context = Context::from_waker(Waker::noop());
        assert!(emptied.poll(&mut context).is_ready());
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    is_emptied();
                }
            });
        }
        let _stop = Stop(&stop);
        for _ in 0..100 {
            in_child(|| {
                memory.tick();
                group.read(Freshness::Exact).unwrap();
                is_emptied();
            });
        }
    });
}

/// The first that the child does is to wait: it does not wait behind a thread that is gone.
#[test]
fn a_child_that_waits_first() {
    let _alone = crate::common::fork::alone();
    let group = memory().make_max("g", MAX);
    let mut all = Some(group.try_charge(MAX).unwrap());
    let (waits, leave) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut future = Box::pin(group.charge_async(500));
            let polled = future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
            waits.wait();
            leave.wait();
        });
        waits.wait();
        in_child(|| {
            drop(all.take());
            assert_eq!(poll(group.charge_async(500)), Poll::Ready(true));
        });
        leave.wait();
    });
}
