//! Stacks of blocks on simulated machines: in virtual time, with faults, and in every order.

#[path = "../../../crates/machine/tests/stacks/battery.rs"]
mod battery;
#[path = "../../../crates/machine/tests/stacks/fire.rs"]
mod fire;

use bursar_machine::Machine;
use bursar_machine::pages::{BlockStacks, Bounds};
use bursar_rig::Tasks;
use bursar_rig::timer::Timers;
use bursar_sim::{
    Chance, Explorer, Faults, SectionKind, Settings, Sim, Simulator, Stall, Topology,
};
use fire::{Fire, burn};

const KINDS: [SectionKind; 2] = [SectionKind::Restartable, SectionKind::Atomic];

fn stay(_: u64) {}

fn settings(cpus: usize, sections: SectionKind, seed: u64) -> Settings {
    let mut settings = Settings::new(Topology::new(cpus, cpus.div_ceil(192), 1000), seed);
    settings.sections = sections;
    settings
}

#[test]
fn one_task() {
    for kind in KINDS {
        let simulator = Simulator::new(settings(2, kind, 1));
        battery::all(&simulator.machine(), &|| ());
    }
}

/// Returns the event hash.
fn burn_timed(cpus: usize, kind: SectionKind, seed: u64, faults: Faults) -> u64 {
    let mut settings = settings(cpus, kind, seed);
    settings.faults = faults;
    let simulator = Simulator::new(settings);
    let workers = (cpus + cpus / 2).max(3);
    let fire = Fire {
        workers,
        operations: (40_000 / workers as u64).max(100),
        freezes: 50,
        blocks: workers * 12,
        seed,
        pause_ns: 5_000,
        hop: stay,
    };
    burn(&simulator.machine(), &fire);
    simulator.event_hash()
}

#[test]
fn nothing_is_lost_at_any_size() {
    for cpus in [1, 2, 8, 72] {
        for kind in KINDS {
            burn_timed(cpus, kind, cpus as u64, Faults::default());
        }
    }
}

#[test]
fn nothing_is_lost_when_sections_are_preempted_and_cpus_stand_still() {
    for seed in 0..10 {
        let stalls = (0..20).map(|at| Stall {
            cpu: at % 4,
            at_ns: 10_000 * u64::from(at + 1),
            for_ns: 200_000,
        });
        let faults = Faults {
            stalls: stalls.collect(),
            section_preemption: Chance {
                one_in: 5,
                for_ns: 20_000,
            },
            ..Faults::default()
        };
        for kind in KINDS {
            burn_timed(4, kind, seed, faults.clone());
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for kind in KINDS {
        let hash = |seed| burn_timed(8, kind, seed, Faults::default());
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }
}

fn explorer(sections: SectionKind) -> Explorer {
    Explorer {
        topology: Topology::new(2, 1, 1000),
        sections,
        seed: 1,
    }
}

#[test]
fn nothing_is_lost_in_any_order() {
    let scenario = |machine: &Sim, seed| {
        let fire = Fire {
            workers: 3,
            operations: 6,
            freezes: 2,
            blocks: 9,
            seed,
            pause_ns: 0,
            hop: stay,
        };
        burn(machine, &fire);
    };
    for kind in KINDS {
        let explored = explorer(kind).explore(&scenario, 0, 40_000, |_| ());
        assert_eq!(explored.found, None, "{kind:?}");
    }
}

/// Without sections, who finds the lock taken finds the list full or empty; with sections nobody does.
#[test]
fn a_lock_that_is_taken_refuses() {
    for kind in KINDS {
        let refused = explorer(kind).count(
            &|machine: &Sim, _| {
                let stacks = machine.stacks(&[8]).unwrap();
                battery::set_bounds(machine, &stacks, 0, Bounds::up_to(8));
                let is_refused = std::sync::atomic::AtomicBool::new(false);
                let tasks = battery::pages(machine, 3).into_iter().map(|block| {
                    let (stacks, is_refused) = (&stacks, &is_refused);
                    Box::new(move || {
                        if stacks.push(0, block).is_err() {
                            is_refused.store(true, std::sync::atomic::Ordering::Relaxed);
                        }
                    }) as Box<dyn FnOnce() + Send + '_>
                });
                machine.run(tasks.collect());
                is_refused.into_inner()
            },
            0,
            500,
        );
        assert_eq!(refused.failed, 0);
        assert_eq!(refused.happened > 0, kind == SectionKind::Atomic);
    }
}

#[test]
fn a_push_and_a_pop_of_ones_own_are_cheap_and_a_freezer_fetches_the_lines() {
    let simulator = Simulator::new(settings(2, SectionKind::Restartable, 1));
    let machine = simulator.machine();
    let stacks = machine.stacks(&[64]).unwrap();
    battery::set_bounds(&machine, &stacks, 0, Bounds::up_to(64));
    let mut blocks = battery::pages(&machine, 64);
    machine.run(vec![Box::new(|| {
        assert_eq!(stacks.push_many(0, &mut blocks), 64);
        let block = stacks.pop(0).unwrap();
        let before_ns = machine.now_ns();
        stacks.push(0, block).unwrap();
        let pair_ns = machine.now_ns() - before_ns;
        // One reading of the clock, a section, two lines.
        assert!((23..30).contains(&pair_ns), "{pair_ns}");
    })]);
    let transfers = simulator.counts().transfers;
    let take = || {
        let mut taken = Vec::new();
        let from = bursar_machine::Shard(0);
        battery::freeze(&machine, &stacks, 0);
        assert_eq!(stacks.take_oldest(from, 0, 64, &mut taken), 64);
    };
    machine.run_bound(vec![(Some(1), Box::new(take))]);
    // Eight lines of entries, and the header's.
    assert_eq!(simulator.counts().transfers - transfers, 9);
}
