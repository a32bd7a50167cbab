//! Waiting for a limit and watching pressure under loom: no task sleeps when its memory has come, and none misses the
//! last change.
//!
//! As in `protocols.rs`; see there and `machine/mod.rs`.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crate::machine::{Kind, LoomMachine, run_on, spawn_on};
use bursar::{ChargeAsync, ChargeError, Level, Limits, Memory};

type Group = bursar::Group<LoomMachine>;
type Charge = bursar::Charge<LoomMachine>;

const MAX: u64 = 1000;

/// Two CPUs, and a group with a limit.
fn limited(kind: Kind) -> (Memory<LoomMachine>, Group) {
    let memory = Memory::builder()
        .build_on(LoomMachine::new(kind, 2, &[0, 1]))
        .unwrap();
    let group = memory.root().child("g", Limits::max(MAX)).unwrap();
    (memory, group)
}

/// A future, and whether it was woken since it was last polled. Std's flag: what it orders is not what is looked for.
struct Waiting {
    future: ChargeAsync<LoomMachine>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Waiting {
    fn new(group: &Group, bytes: u64) -> Self {
        Self {
            future: group.charge_async(bytes),
            woken: Arc::default(),
        }
    }

    fn poll_anyhow(&mut self) -> Poll<Result<Charge, ChargeError>> {
        self.woken.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(self.woken.clone());
        Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker))
    }

    fn poll(&mut self) -> Option<Charge> {
        match self.poll_anyhow() {
            Poll::Ready(charged) => Some(charged.expect("it fits the limit")),
            Poll::Pending => None,
        }
    }

    /// Whether waiting is in vain.
    fn poll_refused(&mut self) -> bool {
        match self.poll_anyhow() {
            Poll::Ready(charged) => {
                assert!(matches!(charged, Err(ChargeError::Removed { .. })));
                true
            }
            Poll::Pending => false,
        }
    }

    /// After all that it waited for has happened.
    fn finish(&mut self) -> Charge {
        assert!(self.woken.0.load(Ordering::SeqCst), "a lost wake-up");
        self.poll().expect("the memory is there")
    }
}

// Whether the return comes before or after the waiter has queued, it gets the memory.
model!(a_waiter_against_a_return, 2, |kind| {
    let (_memory, group) = limited(kind);
    let all = group.try_charge(MAX).unwrap();
    let returner = spawn_on(0, move || drop(all));
    run_on(1);
    let mut waiting = Waiting::new(&group, 600);
    let charge = waiting.poll();
    returner.join().unwrap();
    let charge = charge.unwrap_or_else(|| waiting.finish());
    assert!(group.reserved() >= charge.bytes());
});

// The same with a return that would fit the CPU's stock.
model!(a_waiter_against_a_return_into_stock, 2, |kind| {
    let (_memory, group) = limited(kind);
    let most = group.try_charge(900).unwrap();
    run_on(0);
    let small = group.try_charge(10).unwrap();
    let returner = spawn_on(0, move || drop(small));
    run_on(1);
    let mut waiting = Waiting::new(&group, 100);
    let charge = waiting.poll();
    returner.join().unwrap();
    let charge = charge.unwrap_or_else(|| waiting.finish());
    assert_eq!(group.reserved(), 1000);
    drop((charge, most));
});

model!(a_waiter_against_a_raised_limit, 2, |kind| {
    let (_memory, group) = limited(kind);
    let all = group.try_charge(MAX).unwrap();
    let raiser = spawn_on(0, {
        let group = group.clone();
        move || group.set_max(2 * MAX)
    });
    run_on(1);
    let mut waiting = Waiting::new(&group, 600);
    let charge = waiting.poll();
    raiser.join().unwrap();
    drop((charge.unwrap_or_else(|| waiting.finish()), all));
});

// The first in the queue goes away while memory comes back: the second gets its turn.
model!(a_waiter_against_one_who_gives_up, 2, |kind| {
    let (_memory, group) = limited(kind);
    let most = group.try_charge(700).unwrap();
    let rest = group.try_charge(300).unwrap();
    // Not enough for the first even when the rest is back.
    let mut first = Waiting::new(&group, 800);
    assert!(first.poll().is_none());
    let mut second = Waiting::new(&group, 300);
    assert!(second.poll().is_none());
    let leaver = spawn_on(0, move || drop(first));
    run_on(1);
    drop(rest);
    leaver.join().unwrap();
    drop((second.finish(), most));
});

// A task that waits to charge a group learns of the group's removal.
model!(a_waiter_against_removal, 2, |kind| {
    let (_memory, group) = limited(kind);
    let all = group.try_charge(MAX).unwrap();
    let remover = spawn_on(0, {
        let group = group.clone();
        move || group.remove().unwrap()
    });
    run_on(1);
    let mut waiting = Waiting::new(&group, 600);
    let refused = waiting.poll_refused();
    remover.join().unwrap();
    if !refused {
        assert!(waiting.woken.0.load(Ordering::SeqCst), "a lost wake-up");
        assert!(waiting.poll_refused());
    }
    drop(all);
});

// The last level that a watcher was told is the present one.
model!(a_watcher_against_a_charge, 2, |kind| {
    let (_memory, group) = limited(kind);
    let told = Arc::new(Mutex::new(Level::None));
    let watching = group.on_pressure({
        let told = told.clone();
        move |pressure| *told.lock().unwrap() = pressure.level
    });
    let most = group.try_charge(960).unwrap();
    assert_eq!(*told.lock().unwrap(), Level::Critical);
    let charger = spawn_on(0, {
        let group = group.clone();
        move || group.try_charge(20).ok()
    });
    run_on(1);
    drop(most);
    let charge = charger.join().unwrap();
    assert_eq!(*told.lock().unwrap(), group.pressure().level);
    assert_eq!(group.pressure().level, Level::None);
    drop((charge, watching));
});
