//! Two or three tasks and few steps: faults that readers found, and that need no more than that to show.

use bursar::{Builder, Group, Limits, Memory};
use bursar_rig::Tasks;
use bursar_sim::{Explorer, SectionKind, Sim, Topology};

/// More than three times as many as the fault took that took most.
const SCHEDULES: u64 = 5_000;

fn holds(scenario: impl Fn(&Sim, u64)) {
    for sections in [SectionKind::Restartable, SectionKind::Atomic] {
        let explorer = Explorer {
            topology: Topology::new(2, 1, 1000),
            sections,
            seed: 1,
        };
        let explored = explorer.explore(&scenario, 0, SCHEDULES, |_| ());
        assert_eq!(explored.found, None, "{sections:?}");
    }
}

/// A group of its own memory.
fn group(machine: &Sim, builder: Builder, limits: Limits) -> Group<Sim> {
    let memory = builder.build_on(machine.clone()).expect("a small memory");
    memory.root().child("group", limits).expect("a name")
}

#[test]
fn no_charge_succeeds_after_a_removal_beside_another() {
    holds(|machine, _| {
        let group = group(machine, Memory::builder(), Limits::none());
        // Leaves stock.
        drop(group.try_charge(100).expect("there is no limit"));
        let remove = || {
            group.remove().expect("it has no children");
            assert!(group.try_charge(10).is_err(), "charged after the end");
        };
        machine.run(vec![Box::new(remove), Box::new(remove)]);
    });
}

#[test]
fn claims_that_do_not_fit_are_not_over_the_limit_even_if_it_was_exceeded_once() {
    holds(|machine, _| {
        let group = group(machine, Memory::builder().stock_max(0), Limits::max(100));
        drop(group.charge(200));
        let _held = group.try_charge(60).expect("it fits");
        let charge = || drop(group.try_charge(30));
        let look = || (0..3).for_each(|_| assert!(!group.is_over_max()));
        machine.run(vec![Box::new(charge), Box::new(charge), Box::new(look)]);
    });
}
