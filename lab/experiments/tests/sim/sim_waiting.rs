//! Charges that wait on simulated machines: all are served, in the order of their tickets, whatever strikes.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bursar::{Charge, ChargeAsync, ChargeError, Freshness, Limits};
use bursar_machine::{Event, Lock, Machine};
use bursar_rig::Tasks;
use bursar_rig::random::Random;
use bursar_sim::{Sim, SimEvent, SimMutex, Simulator};

use crate::common::{Body, Struck, US, builder, settings};

const SHARE: u64 = 64 << 10;

/// A small executor: a task that sleeps on an event of the machine until it is woken.
struct Signal(Mutex<Arc<SimEvent>>);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        // Not under the host's lock: others run while the event happens.
        let event = self.0.lock().expect("no panic").clone();
        event.set();
    }
}

impl Signal {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Arc::new(SimEvent::new()))))
    }

    /// Polls; what wakes the task from now on is the returned event.
    fn poll(
        self: &Arc<Self>,
        future: &mut ChargeAsync<Sim>,
    ) -> (Arc<SimEvent>, Poll<Result<Charge<Sim>, ChargeError>>) {
        let event = Arc::new(SimEvent::new());
        *self.0.lock().expect("no panic") = event.clone();
        let waker = Waker::from(self.clone());
        let polled = Pin::new(future).poll(&mut Context::from_waker(&waker));
        (event, polled)
    }

    fn wait_for(
        self: &Arc<Self>,
        future: &mut ChargeAsync<Sim>,
    ) -> Result<Charge<Sim>, ChargeError> {
        loop {
            let (event, polled) = self.poll(future);
            match polled {
                Poll::Ready(charged) => return charged,
                Poll::Pending => event.wait(),
            }
        }
    }
}

fn simulator(cpus: usize, struck: Struck, mortal: u32) -> Simulator {
    let mut settings = settings(cpus, cpus as u64);
    settings.faults = struck.faults(cpus, mortal);
    Simulator::new(settings)
}

/// Each wants more than half of the limit, so nobody is served before the one before has returned its charge.
fn in_order(cpus: usize, struck: Struck) {
    let simulator = simulator(cpus, struck, 0);
    let machine = simulator.machine();
    let strict = builder().passing(0, Duration::MAX);
    let memory = strict.build_on(machine.clone()).unwrap();
    let tenant = memory.root().child("tenant", Limits::max(SHARE)).unwrap();
    let queries = ["0", "1", "2"].map(|name| tenant.child(name, Limits::none()).unwrap());
    let first = SimMutex::new(tenant.try_charge(SHARE).ok());
    // Tasks in the order of their first polls, and in the order in which they were served. The gate makes the first
    // polls one after the other, so that the order of tickets is known.
    let gate = SimMutex::new(Vec::new());
    let served = Mutex::new(Vec::new());
    let task = |number: usize| -> Body<'_> {
        let (queries, gate, served, first) = (&queries, &gate, &served, &first);
        let machine = &machine;
        Box::new(move || {
            let mut random = Random::fork(31, number as u64);
            let slept_ns = random.below(100 * US);
            machine.sleep_until(machine.now_ns() + slept_ns);
            let bytes = SHARE / 2 + 1 + random.below(SHARE / 2);
            let mut future = queries[number % 3].charge_async(bytes);
            let signal = Signal::new();
            let has_all = {
                let mut order = gate.lock();
                order.push(number);
                let (_, polled) = signal.poll(&mut future);
                assert!(polled.is_pending(), "all of it is held");
                order.len() == cpus
            };
            if has_all {
                drop(first.lock().take());
            }
            let charge = signal.wait_for(&mut future).expect("it fits alone");
            served.lock().unwrap().push(number);
            machine.compute(2 * US);
            drop(charge);
        })
    };
    machine.run((0..cpus).map(task).collect());
    assert_eq!(served.into_inner().unwrap(), *gate.lock());
    assert_eq!(tenant.read(Freshness::Exact).unwrap().usage().value, 0);
}

#[test]
fn waiters_are_served_in_the_order_of_their_tickets() {
    for cpus in [8, 72, 384] {
        for struck in Struck::EACH {
            println!("{cpus} CPUs, {struck:?}");
            in_order(cpus, struck);
        }
    }
}

/// Waiters of all sizes at two limits, some of which give up or are killed, beside tasks that do not wait and a limit
/// that moves. Each waiter is served in the end, or the machine finds that a task waits without end.
fn in_turmoil(cpus: usize, struck: Struck) {
    let tasks = cpus.clamp(16, 384) as u32;
    let simulator = simulator(cpus, struck, tasks / 2);
    let machine = simulator.machine();
    let memory = builder().build_on(machine.clone()).unwrap();
    let most = (cpus as u64 / 4).max(4) * SHARE;
    let company = memory.root().child("company", Limits::max(most)).unwrap();
    let tenant = company.child("tenant", Limits::max(most)).unwrap();
    let queries = ["0", "1"].map(|name| tenant.child(name, Limits::none()).unwrap());
    let (served, given_up) = (AtomicU64::new(0), AtomicU64::new(0));
    let task = |number: u32| -> Body<'_> {
        let (queries, machine, served, given_up) = (&queries, &machine, &served, &given_up);
        Box::new(move || {
            let mut random = Random::fork(32, u64::from(number));
            for _ in 0..6 {
                let query = &queries[random.below(2) as usize];
                let bytes = 1 + random.below(2 * SHARE);
                if random.happens(4) {
                    let charge = query.try_charge(bytes);
                    machine.compute(US);
                    drop(charge);
                    continue;
                }
                let mut future = query.charge_async(bytes);
                let signal = Signal::new();
                if random.happens(3) {
                    let _ = signal.poll(&mut future).1;
                    // Killed here, perhaps, with its place in the queue, and the charge if it was served.
                    machine.sleep_until(machine.now_ns() + 20 * US);
                    given_up.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                let charge = signal
                    .wait_for(&mut future)
                    .expect("smaller than the limits");
                served.fetch_add(1, Ordering::Relaxed);
                machine.sleep_until(machine.now_ns() + 10 * US);
                drop(charge);
            }
        })
    };
    let mut bodies: Vec<_> = (0..tasks).map(task).collect();
    bodies.push(Box::new(|| {
        let mut random = Random::fork(33, 0);
        for _ in 0..20 {
            // Never below the largest charge, which would be refused.
            let max = 2 * SHARE + random.below(most - 2 * SHARE);
            tenant.set_max(max);
            machine.sleep_until(machine.now_ns() + 20 * US);
        }
        tenant.set_max(most);
    }));
    machine.run(bodies);
    assert!(served.into_inner() > u64::from(tasks) && given_up.into_inner() > 0);
    assert!(company.peak() <= most);
    assert_eq!(company.read(Freshness::Exact).unwrap().usage().value, 0);
    // Nobody is in the queues: stock is held again.
    drop(queries[0].try_charge(100).unwrap());
    assert!(company.reserved() > 0);
    company.set_max(0);
    assert_eq!(company.reserved(), 0);
}

#[test]
fn nobody_waits_for_ever() {
    for cpus in [8, 72, 384] {
        for struck in Struck::EACH {
            println!("{cpus} CPUs, {struck:?}");
            in_turmoil(cpus, struck);
        }
    }
}

#[test]
fn who_waits_in_vain_is_told() {
    let simulator = simulator(8, Struck::Not, 0);
    let machine = simulator.machine();
    let memory = builder().build_on(machine.clone()).unwrap();
    let tenant = memory.root().child("tenant", Limits::max(SHARE)).unwrap();
    let query = tenant.child("query", Limits::none()).unwrap();
    let kept = tenant.try_charge(SHARE).unwrap();
    let waiting = |bytes: u64| -> Body<'_> {
        let query = &query;
        Box::new(move || {
            let mut future = query.charge_async(bytes);
            assert!(Signal::new().wait_for(&mut future).is_err());
        })
    };
    let mut bodies = vec![
        waiting(SHARE),
        waiting(SHARE / 2),
        waiting(2 * SHARE),
        waiting(1),
    ];
    bodies.push(Box::new(|| {
        machine.sleep_until(machine.now_ns() + 100 * US);
        // The first two are larger than this, the last is not.
        tenant.set_max(SHARE / 4);
        machine.sleep_until(machine.now_ns() + 100 * US);
        query.remove().unwrap();
    }));
    machine.run(bodies);
    drop(kept);
}

/// Nothing is returned here: only the leaving of the first tells the second, which fits, that its turn has come.
#[test]
fn who_gives_up_makes_way() {
    let simulator = simulator(8, Struck::Not, 0);
    let machine = simulator.machine();
    let strict = builder().passing(0, Duration::MAX);
    let memory = strict.build_on(machine.clone()).unwrap();
    let tenant = memory.root().child("tenant", Limits::max(SHARE)).unwrap();
    let kept = tenant.try_charge(SHARE / 2).unwrap();
    let served = AtomicU64::new(0);
    machine.run(vec![
        Box::new(|| {
            let mut future = tenant.charge_async(SHARE);
            assert!(Signal::new().poll(&mut future).1.is_pending());
            machine.sleep_until(machine.now_ns() + 300 * US);
            assert_eq!(served.load(Ordering::Relaxed), 0, "not past the first");
            drop(future);
        }),
        Box::new(|| {
            machine.sleep_until(machine.now_ns() + 100 * US);
            let mut future = tenant.charge_async(SHARE / 4);
            let charge = Signal::new().wait_for(&mut future).expect("it fits");
            served.fetch_add(1, Ordering::Relaxed);
            drop(charge);
        }),
    ]);
    assert_eq!(served.into_inner(), 1);
    drop(kept);
}
