//! Scheduling: nothing happens before its cause, and no CPU idles while a task waits that it could run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::{AtomicWord, Event, Lock, Machine, MemoryOrder, Shard};
use bursar_rig::Tasks;
use bursar_rig::timer::{BoundTask, Timer, TimerKind, Timers, WorkQueue};
use bursar_sim::{
    Chance, Failure, LockKind, PreemptionKind, Settings, Sim, SimEvent, SimMutex, SimSpin, SimWord,
    Simulator, Stall, Topology,
};

type Body<'a> = Box<dyn FnOnce() + Send + 'a>;

fn settings(cpus: usize) -> Settings {
    Settings::new(Topology::new(cpus, 1, 1000), 1)
}

/// A task that runs on one CPU alone.
fn on<'a>(cpu: u32, body: impl FnOnce() + Send + 'a) -> BoundTask<'a> {
    (Some(cpu), Box::new(body))
}

fn timer(kind: TimerKind, deadline_ns: u64) -> Timer {
    Timer { kind, deadline_ns }
}

fn kernel(cpus: usize) -> Settings {
    let mut settings = settings(cpus);
    settings.topology.preemption = PreemptionKind::Kernel;
    settings
}

#[test]
fn a_task_that_is_queued_behind_a_spinner_runs_after_it_was_woken() {
    let simulator = Simulator::new(settings(2));
    let machine = simulator.machine();
    let (lock, event) = (SimSpin::new(0), SimEvent::new());
    let (set_ns, woken_ns) = (AtomicU64::new(0), AtomicU64::new(0));
    let tasks: Vec<BoundTask<'_>> = vec![
        on(1, || {
            event.wait();
            woken_ns.store(machine.now_ns(), Ordering::Relaxed);
        }),
        on(0, || {
            let _guard = lock.lock();
            machine.compute(1_000_000);
            set_ns.store(machine.now_ns(), Ordering::Relaxed);
            event.set();
            machine.compute(3_000_000);
        }),
        on(1, || {
            machine.compute(100);
            // Spins from here on, for longer than is usual before it yields; only then is there somebody to yield to.
            drop(lock.lock());
        }),
    ];
    machine.run_bound(tasks);
    assert!(set_ns.into_inner() < woken_ns.into_inner());
}

#[test]
fn a_bound_task_and_another_do_not_share_a_cpu_while_one_is_idle() {
    let simulator = Simulator::new(settings(2));
    let machine = simulator.machine();
    machine.run_bound(vec![
        on(1, || machine.compute(20_000_000)),
        (None, Box::new(|| machine.compute(20_000_000))),
    ]);
    assert!(machine.now_ns() < 21_000_000, "{}", machine.now_ns());
}

#[test]
fn a_task_that_must_make_room_goes_to_an_idle_cpu() {
    let simulator = Simulator::new(settings(2));
    let machine = simulator.machine();
    machine.run_bound(vec![
        (None, Box::new(|| machine.compute(20_000_000))),
        on(0, || {
            // Sleeps first, so that the other is on CPU 0 when it wakes, or comes there.
            machine.sleep_on_timer(timer(TimerKind::Exact, 1_000_000));
            machine.compute(20_000_000);
        }),
        on(1, || machine.compute(2_000_000)),
    ]);
    assert!(machine.now_ns() < 26_000_000, "{}", machine.now_ns());
}

#[test]
fn a_lock_that_was_tried_and_given_back_does_not_keep_its_task_on_the_cpu() {
    let simulator = Simulator::new(kernel(1));
    let machine = simulator.machine();
    let lock = SimSpin::new(0);
    let second_ns = AtomicU64::new(0);
    machine.run(vec![
        Box::new(|| {
            drop(lock.try_lock());
            machine.compute(30_000_000);
        }),
        Box::new(|| second_ns.store(machine.now_ns(), Ordering::Relaxed)),
    ]);
    assert!(second_ns.into_inner() < 5_000_000);
}

#[test]
fn all_kinds_of_spin_locks_count_who_waited_and_differ_in_cost() {
    let contend = |lock: LockKind| {
        let mut settings = settings(64);
        settings.topology.lock = lock;
        let simulator = Simulator::new(settings);
        let machine = simulator.machine();
        let lock = SimSpin::new(0_u64);
        let body = || (0..100).for_each(|_| *lock.lock() += 1);
        machine.run((0..64).map(|_| Box::new(body) as Body<'_>).collect());
        assert_eq!(*lock.lock(), 6_400);
        (lock.waits(), machine.now_ns())
    };
    let (queued, queued_ns) = contend(LockKind::Queued);
    let (ticket, ticket_ns) = contend(LockKind::Ticket);
    let (unfair, unfair_ns) = contend(LockKind::Unfair);
    assert!(queued > 6_000 && ticket > 6_000, "{queued} {ticket}");
    assert!((60..queued).contains(&unfair), "{unfair}");
    assert!(
        ticket_ns > 10 * queued_ns && unfair_ns < queued_ns,
        "{ticket_ns} {queued_ns} {unfair_ns}"
    );
}

#[test]
fn an_unfair_lock_goes_to_whoever_is_on_a_cpu() {
    let mut settings = settings(3);
    settings.topology.lock = LockKind::Unfair;
    let simulator = Simulator::new(settings);
    let machine = simulator.machine();
    let lock = SimSpin::new(());
    let got_ns = Mutex::new([0; 2]);
    let waiter = |number: usize| {
        let (machine, lock, got_ns) = (&machine, &lock, &got_ns);
        move || {
            machine.compute(10_000);
            drop(lock.lock());
            got_ns.lock().unwrap()[number] = machine.now_ns();
        }
    };
    machine.run_bound(vec![
        on(0, || {
            let _guard = lock.lock();
            machine.compute(1_000_000);
        }),
        // Yields its CPU to one that keeps it for a slice.
        on(1, waiter(0)),
        on(1, || machine.compute(50_000_000)),
        on(2, waiter(1)),
    ]);
    let [preempted_ns, running_ns] = got_ns.into_inner().unwrap();
    assert!(
        running_ns < 1_100_000 && preempted_ns > 2_000_000,
        "{running_ns} {preempted_ns}"
    );
}

#[test]
fn who_spins_for_a_sleeping_lock_stops_when_its_owner_does_not_run() {
    let simulator = Simulator::new(kernel(2));
    let machine = simulator.machine();
    let lock = SimMutex::new(());
    machine.run_bound(vec![
        on(0, || {
            let _guard = lock.lock();
            machine.compute(10_000);
            machine.sleep_on_timer(timer(TimerKind::Exact, 2_000_000));
        }),
        on(1, || {
            machine.compute(5_000);
            drop(lock.lock());
        }),
    ]);
    // It slept, and was woken.
    assert_eq!(simulator.counts().wakes, 2);
}

#[test]
fn a_timer_takes_time_from_a_busy_cpu() {
    let simulator = Simulator::new(settings(1));
    let machine = simulator.machine();
    let took_ns = AtomicU64::new(0);
    machine.run(vec![
        Box::new(|| machine.sleep_on_timer(timer(TimerKind::Exact, 1_500_000))),
        Box::new(|| {
            let begin_ns = machine.now_ns();
            machine.compute(2_000_000);
            took_ns.store(machine.now_ns() - begin_ns, Ordering::Relaxed);
        }),
    ]);
    let took_ns = took_ns.into_inner();
    assert!((2_002_000..2_003_000).contains(&took_ns), "{took_ns}");
}

#[test]
fn a_stall_of_an_idle_cpu_is_over_when_it_is_over() {
    let woken_ns = |stall_ns: u64| {
        let mut settings = settings(1);
        settings.faults.stalls.push(Stall {
            cpu: 0,
            at_ns: stall_ns,
            for_ns: 3_000_000,
        });
        let simulator = Simulator::new(settings);
        let machine = simulator.machine();
        let woken_ns = AtomicU64::new(0);
        machine.run(vec![Box::new(|| {
            machine.sleep_on_timer(timer(TimerKind::Exact, 100_000_000));
            machine.compute(1);
            woken_ns.store(machine.now_ns(), Ordering::Relaxed);
        })]);
        woken_ns.into_inner()
    };
    assert!(woken_ns(1_000) < 100_010_000);
    let late_ns = woken_ns(99_000_000);
    assert!((102_000_000..102_010_000).contains(&late_ns), "{late_ns}");
}

#[test]
fn a_sleep_beyond_the_end_of_time_never_ends() {
    let simulator = Simulator::new(settings(2));
    let result = simulator.try_run(|machine| {
        machine.run(vec![
            Box::new(|| machine.sleep_until(u64::MAX)),
            Box::new(|| machine.sleep_on_timer(timer(TimerKind::Wheel, 1 << 49))),
            Box::new(|| machine.compute(1_000_000)),
        ]);
    });
    let waiting = [0, 1].into();
    assert_eq!(result, Err(Failure::Deadlock { waiting }));
}

/// Time at which a task runs that sleeps until 2.5 ms, beside `wakers` that need all CPUs, but the last one from 3 ms on.
fn when_it_runs_beside(wakers: fn(&Sim, &SimEvent, u32)) -> u64 {
    let mut settings = settings(4);
    settings.costs.set("wake_ns", 1_000_000).unwrap();
    let simulator = Simulator::new(settings);
    let machine = simulator.machine();
    let (event, ran_ns) = (SimEvent::new(), AtomicU64::new(0));
    let mut tasks: Vec<BoundTask<'_>> = Vec::new();
    for cpu in 0..4 {
        let (machine, event) = (&machine, &event);
        let body = move || {
            wakers(machine, event, cpu);
            machine.compute(100_000_000);
        };
        tasks.push(on(cpu, body));
    }
    tasks.push((
        None,
        Box::new(|| {
            machine.sleep_on_timer(timer(TimerKind::Exact, 2_500_000));
            machine.compute(1);
            ran_ns.store(machine.now_ns(), Ordering::Relaxed);
        }),
    ));
    machine.run_bound(tasks);
    ran_ns.into_inner()
}

/// Otherwise the CPUs of all but the first stand still until their tasks are woken.
#[test]
fn tasks_are_woken_one_after_the_other() {
    let by_event = when_it_runs_beside(|machine, event, cpu| match cpu {
        0 => {
            machine.compute(10_000);
            event.set();
        }
        _ => event.wait(),
    });
    let by_fence = when_it_runs_beside(|machine, _, _| machine.fence());
    for ran_ns in [by_event, by_fence] {
        assert!((2_500_000..2_600_000).contains(&ran_ns), "{ran_ns}");
    }
}

/// The one that wakes them keeps its CPU until then, though its slice is over.
#[test]
fn who_wakes_several_tasks_is_not_preempted_in_between() {
    let mut settings = settings(3);
    settings.costs.set("wake_ns", 1_000_000).unwrap();
    settings.costs.set("slice_ns", 100_000).unwrap();
    let simulator = Simulator::new(settings);
    let machine = simulator.machine();
    let (event, woken_ns) = (SimEvent::new(), AtomicU64::new(0));
    let wait = || {
        event.wait();
        woken_ns.fetch_max(machine.now_ns(), Ordering::Relaxed);
    };
    machine.run_bound(vec![
        on(1, wait),
        on(2, wait),
        on(0, || {
            machine.compute(10_000);
            event.set();
        }),
        on(0, || machine.compute(50_000_000)),
    ]);
    let woken_ns = woken_ns.into_inner();
    assert!((2_000_000..2_100_000).contains(&woken_ns), "{woken_ns}");
}

/// It computes in a way that no other task can see, so on the host it ends at once.
#[test]
fn the_cpu_of_a_task_is_free_when_the_task_has_ended() {
    let simulator = Simulator::new(settings(2));
    let machine = simulator.machine();
    let began_ns = AtomicU64::new(0);
    machine.run_bound(vec![
        on(0, || machine.touch_frames(100_000)),
        on(1, || machine.compute(500_000)),
        (
            None,
            Box::new(|| began_ns.store(machine.now_ns(), Ordering::Relaxed)),
        ),
    ]);
    assert!(began_ns.into_inner() < 600_000);
}

/// A timer wakes the worker first, and its work waits for something else when the one that queued an item comes to wake it.
#[test]
fn a_worker_is_woken_from_its_wait_for_work_alone() {
    let mut settings = settings(3);
    settings.costs.set("wake_ns", 1_000_000).unwrap();
    let simulator = Simulator::new(settings);
    let machine = simulator.machine();
    let (queue, event, served) = (machine.work_queue(), SimEvent::new(), AtomicU64::new(0));
    let work = |_: Shard, item: u64| {
        if item == 0 {
            event.wait();
        }
        served.fetch_add(1, Ordering::Relaxed);
    };
    let mut tasks = queue.workers(&work);
    tasks.push(on(0, || {
        machine.compute(100_000);
        queue.queue_on(Shard(1), timer(TimerKind::Exact, 500_000), 0);
        queue.queue_on(Shard(1), timer(TimerKind::Exact, 0), 1);
        machine.compute(3_000_000);
        event.set();
        machine.compute(3_000_000);
        queue.stop();
    }));
    machine.run_bound(tasks);
    assert_eq!(served.into_inner(), 2);
    // By the timer, by the event, and all three workers by `stop`.
    assert_eq!(simulator.counts().wakes, 5);
}

#[test]
fn a_lock_that_is_handed_over_moves_its_line() {
    for (kind, transfers) in [
        (LockKind::Queued, 3),
        (LockKind::Ticket, 4),
        (LockKind::Unfair, 5),
    ] {
        let mut settings = kernel(3);
        settings.topology.lock = kind;
        let simulator = Simulator::new(settings);
        let machine = simulator.machine();
        let lock = SimSpin::new(());
        // Each takes it once: CPU 0 first and last, and the others wait for it.
        let take = |after_ns, hold_ns| {
            machine.compute(after_ns);
            let _guard = lock.lock();
            machine.compute(hold_ns);
        };
        machine.run_bound(vec![
            on(0, || {
                take(0, 50_000);
                take(50_000, 0);
            }),
            on(1, || take(10_000, 0)),
            on(2, || take(20_000, 0)),
        ]);
        // The second waiter for a ticket reads the line again when the first is served. A waiter for an unfair lock
        // reads its line, and then takes it.
        assert_eq!(simulator.counts().transfers, transfers, "{kind:?}");
    }
}

/// The holder does nothing that another could see. So on the host it goes on, and releases the lock before the other comes.
#[test]
fn who_comes_before_a_release_waits_as_its_lock_does() {
    let simulator = Simulator::new(settings(2));
    let machine = simulator.machine();
    let lock = SimMutex::new(());
    machine.run_bound(vec![
        on(0, || {
            let _guard = lock.lock();
            machine.touch_frames(100_000);
        }),
        on(1, || {
            machine.compute(1_000);
            drop(lock.lock());
        }),
    ]);
    // It spun in vain, slept, and was woken.
    assert_eq!(simulator.counts().wakes, 1);
}

/// Two sleepers find the lock taken again when they wake. Then both get it, in the order in which they tried again,
/// before anyone who is quicker.
#[test]
fn all_that_were_woken_in_vain_are_served_next() {
    let mut settings = settings(3);
    settings.costs.set("idle_exit_ns", 100_000).unwrap();
    let simulator = Simulator::new(settings);
    let machine = simulator.machine();
    let lock = SimMutex::new(Vec::new());
    let take = |task: u32, hold_ns| {
        lock.lock().push(task);
        machine.compute(hold_ns);
    };
    machine.run_bound(vec![
        on(0, || {
            for hold_ns in [1_000_000, 0, 1_000_000, 0] {
                let mut guard = lock.lock();
                guard.push(0);
                machine.compute(hold_ns);
            }
        }),
        on(1, || {
            machine.compute(10_000);
            take(1, 0);
            take(1, 0);
        }),
        on(2, || {
            machine.compute(20_000);
            take(2, 0);
        }),
    ]);
    let order = lock.lock().clone();
    assert_eq!(order[..5], [0, 0, 0, 1, 2], "{order:?}");
}

/// All that the scheduler knows, under all faults; returns the event hash.
fn everything(mut settings: Settings, run_ahead: bool) -> u64 {
    settings.run_ahead = run_ahead;
    let chance = |one_in, for_ns| Chance { one_in, for_ns };
    settings.faults.lock_stall = chance(40, 20_000);
    settings.faults.late_timer = chance(3, 100_000);
    settings.faults.section_preemption = chance(10, 5_000);
    settings.faults.stalls = (0..4)
        .map(|at| Stall {
            cpu: 0,
            at_ns: 50_000 * at,
            for_ns: 30_000,
        })
        .collect();
    let cpus = settings.topology.cpus;
    let simulator = Simulator::new(settings);
    let machine = simulator.machine();
    let spins = [SimSpin::new(0_u64), SimSpin::new(0)];
    let mutex = SimMutex::new(0_u64);
    let word = SimWord::new(0);
    let queue = machine.work_queue();
    let work = |_: Shard, _: u64| machine.compute(1_000);
    let left = SimWord::new(2 * cpus as u64);
    let mut tasks = queue.workers(&work);
    for number in 0..2 * cpus {
        let (machine, spins, mutex, word) = (&machine, &spins, &mutex, &word);
        let (queue, left) = (&queue, &left);
        let body = move || {
            for round in 0..30 {
                *spins[(number + round) % 2].lock() += 1;
                if let Some(mut value) = spins[number % 2].try_lock() {
                    *value += 1;
                    machine.compute(300);
                }
                if round % 7 == number % 7 {
                    let mut value = mutex.lock();
                    *value += 1;
                    word.fetch_add(1, MemoryOrder::Full);
                    machine.compute(3_000);
                    if round % 2 == 0 {
                        machine.sleep_on_timer(timer(TimerKind::Exact, machine.now_ns() + 5_000));
                    }
                }
                if round % 10 == 3 {
                    machine.fence();
                    let kind = [TimerKind::Wheel, TimerKind::Deferrable][number % 2];
                    let soon_ns = machine.now_ns() + 1_000_000;
                    let cpu = (number + round) % cpus;
                    queue.queue_on(Shard(cpu as u32), timer(kind, soon_ns), 0);
                }
                machine.compute(40 * number as u64);
            }
            if left.fetch_add(u64::MAX, MemoryOrder::Full) == 1 {
                queue.stop();
            }
        };
        tasks.push((None, Box::new(body)));
    }
    machine.run_bound(tasks);
    simulator.event_hash()
}

#[test]
fn run_ahead_changes_nothing_whatever_happens() {
    for cpus in [1, 2, 5, 16] {
        for lock in [LockKind::Queued, LockKind::Ticket, LockKind::Unfair] {
            for preemption in [PreemptionKind::User, PreemptionKind::Kernel] {
                let mut settings = settings(cpus);
                settings.topology.lock = lock;
                settings.topology.preemption = preemption;
                settings.costs.set("slice_ns", 40_000).unwrap();
                let with = everything(settings.clone(), true);
                let without = everything(settings.clone(), false);
                assert_eq!(with, without, "{}", settings.topology);
            }
        }
    }
}
