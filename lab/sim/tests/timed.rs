//! Virtual time.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::{AtomicWord, Event, Lock, Machine, MemoryOrder};
use bursar_rig::Tasks;
use bursar_sim::{
    Failure, LockKind, Settings, Sim, SimEvent, SimMutex, SimSpin, SimWord, Simulator, Topology,
};

type Body<'a> = Box<dyn FnOnce() + Send + 'a>;

fn settings(cpus: usize, seed: u64) -> Settings {
    Settings::new(Topology::new(cpus, cpus.div_ceil(192), 1000), seed)
}

fn repeat<'a>(count: usize, body: impl Fn(usize) + Clone + Send + 'a) -> Vec<Body<'a>> {
    (0..count)
        .map(|number| {
            let body = body.clone();
            Box::new(move || body(number)) as Body<'a>
        })
        .collect()
}

/// Virtual nanoseconds that an addition to one shared word takes when all CPUs do nothing else.
fn contended_add_ns(cpus: usize) -> u64 {
    let simulator = Simulator::new(settings(cpus, 1));
    let machine = simulator.machine();
    let word = SimWord::new(0);
    machine.run(repeat(cpus, |_| {
        for _ in 0..100 {
            word.fetch_add(1, MemoryOrder::Full);
        }
    }));
    assert_eq!(word.load(MemoryOrder::Relaxed), 100 * cpus as u64);
    machine.now_ns() / 100
}

#[test]
fn contention_grows_with_the_number_of_cpus() {
    let [few, some, many] = [8, 72, 384].map(contended_add_ns);
    assert!(some > 5 * few && many > 4 * some, "{few} {some} {many}");
}

#[test]
fn words_of_their_own_cost_the_same_on_any_number_of_cpus() {
    let own = |cpus: usize| {
        let simulator = Simulator::new(settings(cpus, 1));
        let machine = simulator.machine();
        machine.run(repeat(cpus, |_| {
            let word = SimWord::new(0);
            for _ in 0..1_000 {
                word.fetch_add(1, MemoryOrder::Full);
            }
        }));
        machine.now_ns()
    };
    let (few, many) = (own(8), own(384));
    assert!(many <= few + few / 10, "{few} {many}");
}

/// Locks of all kinds, words, completions and sleep, with more tasks than CPUs.
fn mixture(settings: Settings) -> (u64, u64) {
    let simulator = Simulator::new(settings);
    let machine = simulator.machine();
    let spin = SimSpin::new(0_u64);
    let mutex = SimMutex::new(0_u64);
    let word = SimWord::new(0);
    let event = SimEvent::new();
    let cpus = machine.cpus();
    machine.run(repeat(3 * cpus, |number| {
        for round in 0..20 {
            *spin.lock() += 1;
            word.fetch_add(1, MemoryOrder::Full);
            {
                let mut value = mutex.lock();
                *value += 1;
                machine.compute(200);
            }
            machine.compute(50 * number as u64);
            if round == 10 {
                if number == 0 {
                    event.set();
                } else {
                    event.wait();
                }
                machine.sleep_until(machine.now_ns() + 100_000);
            }
        }
    }));
    let total = 60 * cpus as u64;
    assert_eq!((*spin.lock(), *mutex.lock()), (total, total));
    (simulator.event_hash(), machine.now_ns())
}

#[test]
fn the_same_seed_gives_the_same_events() {
    for cpus in [1, 2, 7, 64] {
        let first = mixture(settings(cpus, 5));
        assert_eq!(first, mixture(settings(cpus, 5)), "{cpus} CPUs");
        let mut without = settings(cpus, 5);
        without.run_ahead = false;
        assert_eq!(first, mixture(without), "{cpus} CPUs, without run-ahead");
        if cpus > 1 {
            assert_ne!(
                first.0,
                mixture(settings(cpus, 6)).0,
                "{cpus} CPUs, another seed"
            );
        }
    }
}

/// Hash of one run; changes whenever the model or its constants do, and with nothing else: not with the build, not with the
/// machine that this runs on.
const GOLDEN_HASH: u64 = 0x93ba0f1f4933f1d4;

#[test]
fn the_events_are_those_on_file_in_every_build() {
    let (hash, _) = mixture(settings(64, 5));
    assert_eq!(
        hash, GOLDEN_HASH,
        "now {hash:#018x}; put it there if the change is meant"
    );
}

#[test]
fn all_kinds_of_spin_locks_exclude() {
    for lock in [LockKind::Queued, LockKind::Ticket, LockKind::Unfair] {
        let mut settings = settings(16, 3);
        settings.topology.lock = lock;
        mixture(settings);
    }
}

#[test]
fn a_panic_reaches_whoever_started_the_run() {
    let result = std::panic::catch_unwind(|| {
        let simulator = Simulator::new(settings(2, 1));
        simulator
            .machine()
            .run(vec![Box::new(|| panic!("on purpose"))]);
    });
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"on purpose"));
}

#[test]
fn more_tasks_than_cpus_share_them_in_slices() {
    let simulator = Simulator::new(settings(2, 1));
    let machine = simulator.machine();
    let ended = AtomicU64::new(0);
    machine.run(repeat(6, |_| {
        machine.compute(30_000_000);
        ended.fetch_max(machine.now_ns(), Ordering::Relaxed);
    }));
    // Six times 30 ms on two CPUs.
    let ended = ended.into_inner();
    assert!((90_000_000..92_000_000).contains(&ended), "{ended}");
    assert!(simulator.counts().preemptions >= 20);
}

#[test]
fn several_memories_keep_their_own_books() {
    let simulator = Simulator::new(settings(4, 1));
    let machine: Sim = simulator.machine();
    let memory = || {
        bursar::Memory::<bursar_machine::Host>::builder()
            .build_on(machine.clone())
            .unwrap()
    };
    let memories = [memory(), memory()];
    let held = std::sync::Mutex::new(Vec::new());
    machine.run(repeat(8, |number| {
        let charge = memories[number % 2]
            .root()
            .try_charge(100 + number as u64)
            .unwrap();
        held.lock().unwrap().push(charge);
    }));
    let usage = |memory: &bursar::Memory<Sim>| {
        let reading = memory.root().read(bursar::Freshness::Exact).unwrap();
        reading.usage().value
    };
    assert_eq!(memories.each_ref().map(usage), [412, 416]);
    held.into_inner().unwrap().clear();
    assert_eq!(memories.each_ref().map(usage), [0, 0]);
}

#[test]
fn a_lock_that_was_taken_outside_of_tasks_is_waited_for_in_vain() {
    let simulator = Simulator::new(settings(2, 1));
    let result = simulator.try_run(|machine| {
        let mutex = SimMutex::new(());
        let _held = mutex.lock();
        machine.run(vec![Box::new(|| drop(mutex.lock()))]);
    });
    assert!(
        matches!(result, Err(Failure::Deadlock { .. })),
        "{result:?}"
    );
}
