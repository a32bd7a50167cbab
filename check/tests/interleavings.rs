//! Two or three tasks and few steps: faults that readers found, and that need no more than that to show.

use bursar::{Group, Limits, Memory};
use bursar_rig::Tasks;
use bursar_sim::{Explorer, SectionKind, Sim, Topology};

/// Many times the schedules in which each was found.
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

/// A group of its own memory, without stock if `stock_max` is 0.
fn group(machine: &Sim, limits: Limits, stock_max: Option<u64>) -> Group<Sim> {
    let builder = Memory::builder().shards_per_slice(1);
    let builder = match stock_max {
        Some(bytes) => builder.stock_max(bytes),
        None => builder,
    };
    let memory = builder.build_on(machine.clone()).expect("a small memory");
    memory.root().child("group", limits).expect("a name")
}

#[test]
fn no_charge_succeeds_after_a_removal_beside_another() {
    holds(|machine, _| {
        let group = group(machine, Limits::none(), None);
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
        let group = group(machine, Limits::max(100), Some(0));
        drop(group.charge(200));
        let _held = group.try_charge(60).expect("it fits");
        let charge = || drop(group.try_charge(30));
        let look = || (0..3).for_each(|_| assert!(!group.is_over_max()));
        machine.run(vec![Box::new(charge), Box::new(charge), Box::new(look)]);
    });
}
