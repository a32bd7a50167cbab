//! Timers of both kinds, deferrable ones, and work that is bound to a CPU.

use std::sync::Mutex;

use bursar_machine::{Lock, Machine, Shard};
use bursar_rig::Tasks;
use bursar_rig::timer::{Timer, TimerKind, Timers, WorkQueue};
use bursar_sim::{Settings, Sim, Simulator, Topology};

type Bound<'a> = (Option<u32>, Box<dyn FnOnce() + Send + 'a>);

fn simulator(cpus: usize, hz: u32) -> Simulator {
    Simulator::new(Settings::new(Topology::new(cpus, 1, hz), 1))
}

/// Lateness of a sleep of `ahead_ns` that begins a moment after a tick.
fn timer(kind: TimerKind, deadline_ns: u64) -> Timer {
    Timer { kind, deadline_ns }
}

fn lateness_ns(hz: u32, kind: TimerKind, ahead_ns: u64) -> u64 {
    let simulator = simulator(1, hz);
    let machine = simulator.machine();
    let mut late_ns = 0;
    let task: Bound = (
        Some(0),
        Box::new(|| {
            let deadline_ns = machine.now_ns() + ahead_ns;
            machine.sleep_on_timer(timer(kind, deadline_ns));
            late_ns = machine.now_ns() - deadline_ns;
        }),
    );
    machine.run_bound(vec![task]);
    late_ns
}

#[test]
fn exact_timers_are_exact_and_wheel_timers_are_not() {
    let second_ns = 1_000_000_000;
    assert!(lateness_ns(1000, TimerKind::Exact, second_ns) < 20_000);
    // At 1,000 Hz a second ahead is in the level with a granularity of 64 ticks.
    let wheel_ms = lateness_ns(1000, TimerKind::Wheel, second_ns) / 1_000_000;
    assert!((22..=24).contains(&wheel_ms), "{wheel_ms}");
    // At 250 Hz in the one with 8 ticks of 4 ms: 256 ticks instead of 250 (and a bit).
    let wheel_ms = lateness_ns(250, TimerKind::Wheel, second_ns) / 1_000_000;
    assert!((20..=24).contains(&wheel_ms), "{wheel_ms}");
    let near_ms = lateness_ns(1000, TimerKind::Wheel, 10_000_000) / 1_000_000;
    assert!(near_ms <= 2, "{near_ms}");
}

#[test]
fn a_deferrable_timer_waits_until_its_idle_cpu_wakes() {
    let simulator = simulator(2, 1000);
    let machine = simulator.machine();
    let woke_ms = Mutex::new(Vec::new());
    let note = |who: u32| {
        let now_ms = machine.now_ns() / 1_000_000;
        woke_ms.lock().unwrap().push((who, now_ms));
    };
    let deferrable = |cpu: u32| -> Bound {
        (
            Some(cpu),
            Box::new({
                let (machine, note) = (&machine, &note);
                move || {
                    machine.sleep_on_timer(timer(TimerKind::Deferrable, 5_000_000));
                    note(cpu);
                }
            }),
        )
    };
    // CPU 0 is woken after 50 ms by an exact timer; CPU 1 is busy all the time.
    let waker: Bound = (
        Some(0),
        Box::new(|| {
            machine.sleep_on_timer(timer(TimerKind::Exact, 50_000_000));
            machine.compute(1_000_000);
        }),
    );
    let busy: Bound = (Some(1), Box::new(|| machine.compute(20_000_000)));
    machine.run_bound(vec![deferrable(0), deferrable(1), waker, busy]);
    let woke_ms = woke_ms.into_inner().unwrap();
    let of = |cpu: u32| woke_ms.iter().find(|(who, _)| *who == cpu).unwrap().1;
    assert!((50..55).contains(&of(0)), "{woke_ms:?}");
    assert!((5..12).contains(&of(1)), "{woke_ms:?}");
}

#[test]
fn deferred_work_runs_on_its_cpu_in_order_of_its_timers() {
    let simulator = simulator(4, 1000);
    let machine = simulator.machine();
    let done = Mutex::new(Vec::new());
    let queue = machine.work_queue();
    let work = |meant: Shard, delay_ms: u64| {
        let on = machine.current_shard();
        done.lock().unwrap().push((on, meant, delay_ms));
    };
    let mut tasks = queue.workers(&work);
    tasks.push((
        None,
        Box::new(|| {
            for cpu in 0..4_u32 {
                for delay_ms in [30, 10, 0] {
                    let deadline_ns = machine.now_ns() + delay_ms * 1_000_000;
                    queue.queue_on(Shard(cpu), timer(TimerKind::Wheel, deadline_ns), delay_ms);
                }
            }
            machine.sleep_until(machine.now_ns() + 100_000_000);
            queue.stop();
        }),
    ));
    machine.run_bound(tasks);
    let done = done.into_inner().unwrap();
    assert_eq!(done.len(), 12);
    assert!(done.iter().all(|(on, meant, _)| on == meant), "{done:?}");
    for cpu in 0..4 {
        let own = done.iter().filter(|(on, ..)| *on == Shard(cpu));
        let delays: Vec<_> = own.map(|(.., delay)| *delay).collect();
        assert_eq!(delays, [0, 10, 30]);
    }
}

#[test]
fn work_that_is_queued_while_its_worker_wakes_is_done_once() {
    let simulator = simulator(2, 1000);
    let machine = simulator.machine();
    let done = Mutex::new(Vec::new());
    let queue = machine.work_queue();
    let work = |_: Shard, item: u64| done.lock().unwrap().push(item);
    let mut tasks = queue.workers(&work);
    tasks.push((
        Some(0),
        Box::new(|| {
            queue.queue_on(Shard(1), timer(TimerKind::Exact, 50_000), 1);
            // The timer has expired, and CPU 1 is about to run its worker.
            machine.sleep_on_timer(timer(TimerKind::Exact, 45_000));
            while machine.now_ns() < 53_000 {
                machine.compute(100);
            }
            queue.queue_on(Shard(1), timer(TimerKind::Exact, 0), 2);
            machine.sleep_on_timer(timer(TimerKind::Exact, 1_000_000));
            queue.stop();
        }),
    ));
    machine.run_bound(tasks);
    assert_eq!(done.into_inner().unwrap(), [2, 1]);
}

#[test]
fn deferrable_work_neither_wakes_its_cpu_nor_delays_other_work() {
    let simulator = simulator(2, 1000);
    let machine = simulator.machine();
    let done_ms = Mutex::new(Vec::new());
    let note = |_: Shard, _: u64| done_ms.lock().unwrap().push(machine.now_ns() / 1_000_000);
    let queue = machine.work_queue();
    let mut tasks = queue.workers(&note);
    tasks.push((
        Some(0),
        Box::new(|| {
            machine.sleep_on_timer(timer(TimerKind::Exact, 1_000_000));
            queue.queue_on(Shard(1), timer(TimerKind::Deferrable, 5_000_000), 0);
            queue.queue_on(Shard(1), timer(TimerKind::Exact, 20_000_000), 0);
            machine.sleep_on_timer(timer(TimerKind::Exact, 100_000_000));
            queue.stop();
        }),
    ));
    machine.run_bound(tasks);
    assert_eq!(done_ms.into_inner().unwrap(), [20, 20]);
}

#[test]
fn who_waits_for_a_cpu_knows_for_how_long() {
    let simulator = simulator(1, 1000);
    let machine = simulator.machine();
    let waited_ns = Mutex::new(Vec::new());
    let work = || {
        machine.compute(20_000_000);
        waited_ns.lock().unwrap().push(machine.run_queue_ns());
    };
    machine.run(vec![Box::new(work), Box::new(work)]);
    let waited_ns = waited_ns.into_inner().unwrap();
    // Two that take turns on one CPU: each waits for about as long as the other computes.
    for waited_ns in &waited_ns {
        assert!((15_000_000..22_000_000).contains(waited_ns), "{waited_ns}");
    }
    assert_eq!(waited_ns.len(), 2);
}

#[test]
fn who_waits_for_a_lock_knows_for_how_long() {
    type Spin = <Sim as Machine>::Spin<()>;
    type Sleeping = <Sim as Machine>::Mutex<()>;
    let simulator = simulator(2, 1000);
    let machine = simulator.machine();
    let (spin, sleeping) = (Spin::new(()), Sleeping::new(()));
    let waits = Mutex::new(Vec::new());
    let hold = || {
        let before = machine.lock_waits();
        {
            let _held = spin.lock();
            machine.compute(1_000_000);
        }
        machine.compute(5_000_000);
        {
            let _held = sleeping.lock();
            machine.compute(2_000_000);
        }
        let waited = machine.lock_waits().since(before);
        waits
            .lock()
            .unwrap()
            .push((waited.spin_ns, waited.sleep_ns));
    };
    machine.run(vec![Box::new(hold), Box::new(hold)]);
    // One holds the first lock while the other waits; then they are as far apart, and the second is held for as long again.
    let waits = waits.into_inner().unwrap();
    assert_eq!(waits[0], (0, 0));
    let (spin_ns, sleep_ns) = waits[1];
    assert!((1_000_000..1_010_000).contains(&spin_ns), "{spin_ns}");
    assert!((990_000..1_050_000).contains(&sleep_ns), "{sleep_ns}");
}
