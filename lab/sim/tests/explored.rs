//! Exploration: the freedom of schedules, and the effects of a task that panics.

use std::cell::{Cell, RefCell};
use std::sync::Mutex;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder, Outcome, Shard, Slot};
use bursar_rig::timer::{BoundTask, Timer, TimerKind, Timers, WorkQueue};
use bursar_rig::{Tasks, Watched};
use bursar_sim::{
    Explorer, Failure, Mode, SectionKind, Settings, Sim, SimMutex, SimWord, Simulator, Strategy,
    Topology,
};

fn explorer() -> Explorer {
    Explorer {
        topology: Topology::new(2, 1, 1000),
        sections: SectionKind::Restartable,
        seed: 1,
    }
}

/// Adds to a counter when it is dropped, which takes a lock.
struct Last<'a>(&'a SimMutex<u64>);

impl Drop for Last<'_> {
    fn drop(&mut self) {
        *self.0.lock() += 1;
    }
}

#[test]
fn a_panic_that_has_to_wait_on_its_way_is_the_failure() {
    let scenario = |machine: &Sim, _| {
        let lock = SimMutex::new(0);
        let word = SimWord::new(0);
        machine.run(vec![
            Box::new(|| {
                let _last = Last(&lock);
                assert_eq!(word.load(MemoryOrder::Full), 0, "seen");
            }),
            Box::new(|| {
                let _guard = lock.lock();
                word.store(1, MemoryOrder::Full);
                word.store(0, MemoryOrder::Full);
            }),
        ]);
    };
    let found = explorer()
        .explore(&scenario, 0, 1_000, |_| ())
        .found
        .unwrap();
    assert!(matches!(&found.failure, Failure::Panic(text) if text.contains("seen")));
    assert!(!std::thread::panicking());
    let again = explorer().replay(&scenario, found.schedule).unwrap_err();
    assert_eq!(
        (again.failure, again.choices),
        (found.failure, found.choices)
    );
}

#[test]
fn the_check_does_not_look_at_what_a_panic_has_half_undone() {
    /// Leaves something undone, and waits for a lock before it is done.
    struct Undoes<'a> {
        word: &'a SimWord,
        _last: Last<'a>,
    }
    impl Drop for Undoes<'_> {
        fn drop(&mut self) {
            self.word.store(1, MemoryOrder::Full);
        }
    }
    let scenario = |machine: &Sim, _| {
        let lock = SimMutex::new(0);
        let [word, undone] = [0, 0].map(SimWord::new);
        let check = || assert_eq!(undone.load(MemoryOrder::Relaxed), 0, "half undone");
        machine.run_watched(
            Box::new(check),
            vec![
                Box::new(|| {
                    let undoes = Undoes {
                        word: &undone,
                        _last: Last(&lock),
                    };
                    assert_eq!(word.load(MemoryOrder::Full), 0, "seen");
                    std::mem::forget(undoes);
                }),
                Box::new(|| {
                    let _guard = lock.lock();
                    word.store(1, MemoryOrder::Full);
                    word.store(0, MemoryOrder::Full);
                }),
            ],
        );
    };
    let found = explorer().explore(&scenario, 0, 1_000, |_| ()).found;
    let failure = found.expect("the word is seen").failure;
    assert!(
        matches!(&failure, Failure::Panic(text) if text.contains("seen")),
        "{failure}"
    );
}

#[test]
fn work_that_never_began_is_not_dropped_after_a_failure() {
    let scenario = |machine: &Sim, _| {
        let (lock, word) = (SimMutex::new(0), SimWord::new(0));
        let last = Last(&lock);
        let check = || assert_eq!(word.load(MemoryOrder::Relaxed), 0, "broken");
        machine.run_watched(
            Box::new(check),
            vec![
                Box::new(|| {
                    let _guard = lock.lock();
                    word.store(1, MemoryOrder::Full);
                    word.load(MemoryOrder::Full);
                }),
                // Its drop would wait for the lock of the first one, which was given up.
                Box::new(move || drop(last)),
            ],
        );
    };
    let found = explorer().explore(&scenario, 0, 10, |_| ()).found;
    let failure = found.expect("each schedule breaks it").failure;
    assert!(matches!(failure, Failure::Check(_)), "{failure}");
}

/// Scenarios choose their work by the number. If the first one has little, the others still have changes in all parts.
#[test]
fn changes_of_priority_are_spread_over_long_schedules_after_a_short_first_one() {
    let first = Cell::new(None);
    let scenario = |machine: &Sim, variety: u64| {
        first.set(first.get().or(Some(variety)));
        let steps = if first.get() == Some(variety) { 1 } else { 300 };
        let late = SimWord::new(0);
        let done = SimWord::new(0);
        machine.run(vec![
            Box::new(|| {
                for step in 0..steps {
                    late.store(u64::from(step > 100), MemoryOrder::Full);
                }
                done.store(1, MemoryOrder::Full);
            }),
            Box::new(|| {
                let is_late = late.load(MemoryOrder::Full) == 1;
                let is_over = done.load(MemoryOrder::Full) == 1;
                assert!(!is_late || is_over, "in between");
            }),
        ]);
    };
    let _ = explorer().replay(&scenario, "1:0".parse().unwrap());
    let of_pct = |number: &u64| !number.is_multiple_of(4);
    let hits = (1..200).filter(of_pct).filter(|number| {
        let schedule = format!("1:{number}").parse().unwrap();
        explorer().replay(&scenario, schedule).is_err()
    });
    // Two depths of five have no change that matters here; random walks are left out.
    let hits = hits.count();
    assert!(hits > 10, "{hits} of 150");
}

#[test]
fn a_panic_that_waits_for_ever_is_the_failure_and_later_schedules_are_still_explored() {
    let stuck = |machine: &Sim, _| {
        let lock = SimMutex::new(0);
        machine.run(vec![
            Box::new(|| {
                let _last = Last(&lock);
                // Given back after `_last` has asked for it.
                std::mem::forget(lock.lock());
                panic!("stuck");
            }),
            Box::new(|| ()),
        ]);
    };
    let found = explorer().explore(&stuck, 0, 10, |_| ()).found.unwrap();
    assert_eq!(found.failure, Failure::Panic("stuck".to_owned()));
    // A lost update, which only shows if tasks still take turns.
    let racy = |machine: &Sim, _| {
        let word = SimWord::new(0);
        let add = || word.store(word.load(MemoryOrder::Full) + 1, MemoryOrder::Full);
        machine.run(vec![Box::new(add), Box::new(add)]);
        assert_eq!(word.load(MemoryOrder::Relaxed), 2);
    };
    assert!(explorer().explore(&racy, 0, 1_000, |_| ()).found.is_some());
}

fn explored(strategy: Strategy, cpus: usize, seed: u64) -> Simulator {
    let mut settings = Settings::new(Topology::new(cpus, 1, 1000), seed);
    settings.mode = Mode::Explored(strategy);
    Simulator::new(settings)
}

#[test]
fn bound_tasks_stay_where_they_are() {
    let simulator = explored(Strategy::RandomWalk, 3, 1);
    let machine = simulator.machine();
    let word = SimWord::new(0);
    let stays = |cpu: u32| -> BoundTask<'_> {
        let (machine, word) = (&machine, &word);
        let body = move || {
            for _ in 0..500 {
                word.fetch_add(1, MemoryOrder::Full);
                assert_eq!(machine.current_shard(), Shard(cpu));
            }
        };
        (Some(cpu), Box::new(body))
    };
    machine.run_bound((0..3).map(stays).collect());
    assert_eq!(simulator.counts().migrations, 0);
}

#[test]
fn deferred_work_is_done_in_every_schedule() {
    for seed in 0..50 {
        let simulator = explored(Strategy::RandomWalk, 2, seed);
        let machine = simulator.machine();
        let done = SimWord::new(0);
        let queue = machine.work_queue();
        let work = |_: Shard, _: u64| {
            done.fetch_add(1, MemoryOrder::Full);
        };
        let mut tasks = queue.workers(&work);
        tasks.push((
            None,
            Box::new(|| {
                let deadline_ns = 1_000_000;
                for (cpu, kind) in [(0, TimerKind::Exact), (1, TimerKind::Deferrable)] {
                    queue.queue_on(Shard(cpu), Timer { kind, deadline_ns }, 0);
                }
                machine.sleep_on_timer(Timer {
                    kind: TimerKind::Wheel,
                    deadline_ns: 10_000_000,
                });
                let mut round = 0;
                while done.load(MemoryOrder::Full) < 2 {
                    machine.relax(round);
                    round += 1;
                }
                queue.stop();
            }),
        ));
        machine.run_bound(tasks);
        assert_eq!(done.load(MemoryOrder::Relaxed), 2);
    }
}

#[test]
fn the_books_are_checked_after_the_last_step_and_in_virtual_time() {
    let timed = || Simulator::new(Settings::new(Topology::new(2, 1, 1000), 1));
    for simulator in [
        (|| explored(Strategy::RandomWalk, 2, 1)) as fn() -> Simulator,
        timed,
    ] {
        let simulator = simulator();
        let machine = simulator.machine();
        let word = SimWord::new(0);
        let seen = RefCell::new(Vec::new());
        let check = || seen.borrow_mut().push(word.load(MemoryOrder::Relaxed));
        let add = || {
            word.fetch_add(1, MemoryOrder::Full);
        };
        machine.run_watched(Box::new(check), vec![Box::new(add), Box::new(add)]);
        let seen = seen.into_inner();
        assert!(seen.is_sorted() && seen.contains(&1), "{seen:?}");
        assert_eq!(seen.last(), Some(&2));
    }
}

#[test]
fn a_check_may_not_take_the_simulator_away() {
    let simulator = explored(Strategy::RandomWalk, 2, 1);
    let machine = simulator.machine();
    let mut own = Some(simulator);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let tasks: Vec<Box<dyn FnOnce() + Send>> = vec![Box::new(|| ())];
        machine.run_watched(Box::new(move || drop(own.take())), tasks);
    }));
    assert!(result.is_err());
}

/// Whether three tasks with the steps `aA`, `bB` and `c` go in the order `abcBA`.
fn goes_on_in_order(seed: u64) -> bool {
    let strategy = Strategy::Pct {
        depth: 3,
        steps: 10,
    };
    let simulator = explored(strategy, 1, seed);
    let machine = simulator.machine();
    let word = SimWord::new(0);
    let log = Mutex::new(String::new());
    let step = |letter: char| {
        word.fetch_add(1, MemoryOrder::Full);
        log.lock().unwrap().push(letter);
    };
    let two = |letters: &'static str| {
        let step = &step;
        move || letters.chars().for_each(step)
    };
    machine.run(vec![
        Box::new(two("aA")),
        Box::new(two("bB")),
        Box::new(two("c")),
    ]);
    log.into_inner().unwrap() == "abcBA"
}

#[test]
fn pct_finds_orders_in_which_the_last_that_gave_way_goes_on_first() {
    // Priorities a, b, c; a gives way after its first step, and b after its; then c ends, and b goes on before a.
    let found = (0..20_000).filter(|&seed| goes_on_in_order(seed)).count();
    // One of six orders of priorities, and two steps of ten: 1 in 600, which is 33.
    assert!(found >= 20, "{found}");
}

#[test]
fn a_section_never_commits_from_another_cpu() {
    let simulator = Simulator::new(Settings::new(Topology::new(2, 1, 1000), 1));
    let machine = simulator.machine();
    let slot = machine.slots(8).unwrap().remove(0);
    for cpu in 0..3 {
        slot.word(Shard(cpu), bursar_machine::STATE)
            .store(bursar_machine::State::PUBLISHED, MemoryOrder::Full);
    }
    let body = || {
        for _ in 0..20 {
            // Longer than a slice, without a visible operation.
            (0..150_000).for_each(|_| _ = machine.now_ns());
            let (_, shard, _) = slot.add_fetch(bursar_machine::FIRST_STATISTIC, 1);
            assert_eq!(shard, machine.current_shard());
            (0..150_000).for_each(|_| _ = machine.now_ns());
            let shard = machine.current_shard();
            let outcome = slot.adjust(shard, 0, 1);
            assert_eq!(outcome == Outcome::Moved, shard != machine.current_shard());
        }
    };
    machine.run(
        (0..5)
            .map(|_| Box::new(body) as Box<dyn FnOnce() + Send>)
            .collect(),
    );
    assert!(simulator.counts().migrations > 0);
}

#[test]
fn words_and_locks_of_an_earlier_simulator_leave_a_later_one_alone() {
    let old = {
        let simulator = explored(Strategy::RandomWalk, 1, 1);
        let slot = simulator.machine().slots(8).unwrap();
        slot[0].word(Shard(0), 0).store(0, MemoryOrder::Full);
        (SimWord::new(0), SimMutex::new(0_u64), slot)
    };
    let simulator = Simulator::new(Settings::new(Topology::new(2, 1, 1000), 1));
    let machine = simulator.machine();
    let first = SimMutex::new(0_u64);
    drop(old);
    let second = SimMutex::new(0_u64);
    let body = || {
        let mut one = first.lock();
        *one += 1;
        *second.lock() += 1;
    };
    machine.run(vec![Box::new(body), Box::new(body)]);
    assert_eq!((*first.lock(), *second.lock()), (2, 2));
}
