//! Calls of the crate `bursar-arbiter`.

use std::task::Poll;

use bursar_arbiter::{Arbiter, Ask, Policy};

use crate::allocations::{Case, Fault, Outcome, case, outcome};
use crate::library::{MIB, World, poll, with_world};

#[rustfmt::skip]
pub const CASES: &[Case] = &[
    case("Arbiter::new", |fault| with_world(fault, |fault, world| {
        fault.during(|| Arbiter::new(&world.memory, Policy::default()));
        Outcome::Done
    })),
    case("Arbiter::try_admit", |fault| with_arbiter(fault, |fault, world, arbiter| {
        let asked = ask(world, "asks", 4);
        let grant = fault.during(|| arbiter.try_admit(asked));
        outcome(&grant)
    })),
    case("Arbiter::try_admit that is refused", |fault| with_arbiter(fault, |fault, world, arbiter| {
        let asked = ask(world, "asks", 9);
        let grant = fault.during(|| arbiter.try_admit(asked));
        assert!(grant.is_err());
        Outcome::Error
    })),
    case("Arbiter::admit that waits", |fault| with_arbiter(fault, |fault, world, arbiter| {
        let first = arbiter.try_admit(ask(world, "first", 6)).unwrap();
        let mut waits = arbiter.admit(ask(world, "waits", 6));
        assert!(fault.during(|| poll(&mut waits)).is_pending());
        drop(first);
        assert!(matches!(poll(&mut waits), Poll::Ready(Ok(_))));
        Outcome::Done
    })),
    case("Grant::drop", |fault| with_arbiter(fault, |fault, world, arbiter| {
        let grant = arbiter.try_admit(ask(world, "grant", 6)).unwrap();
        fault.during(|| drop(grant));
        Outcome::Done
    })),
    case("Grant::try_charge", |fault| with_arbiter(fault, |fault, world, arbiter| {
        let grant = arbiter.try_admit(ask(world, "grant", 6)).unwrap();
        let charge = fault.during(|| grant.try_charge(5 * MIB));
        outcome(&charge)
    })),
    case("Grant::resize", |fault| with_arbiter(fault, |fault, world, arbiter| {
        let grant = arbiter.try_admit(ask(world, "grant", 4)).unwrap();
        let resized = fault.during(|| grant.resize(6 * MIB));
        outcome(&resized)
    })),
    case("Grant::grow", |fault| with_arbiter(fault, |fault, world, arbiter| {
        let grant = arbiter.try_admit(ask(world, "grant", 4)).unwrap();
        let mut grow = grant.grow(6 * MIB);
        match fault.during(|| poll(&mut grow)) {
            Poll::Ready(result) => outcome(&result),
            Poll::Pending => panic!("there is room"),
        }
    })),
    case("Grant::grow that waits", |fault| with_arbiter(fault, |fault, world, arbiter| {
        let other = arbiter.try_admit(ask(world, "other", 4)).unwrap();
        let held = other.try_charge(4 * MIB).unwrap();
        let grant = arbiter.try_admit(ask(world, "grant", 4)).unwrap();
        let mut grow = grant.grow(6 * MIB);
        let polled = fault.during(|| poll(&mut grow));
        drop((held, other));
        arbiter.tick();
        match polled {
            Poll::Ready(result) => outcome(&result),
            Poll::Pending => {
                assert!(matches!(poll(&mut grow), Poll::Ready(Ok(_))));
                Outcome::Done
            }
        }
    })),
    case("Arbiter::tick", |fault| with_arbiter(fault, |fault, world, arbiter| {
        let _grant = arbiter.try_admit(ask(world, "grant", 4)).unwrap();
        fault.during(|| arbiter.tick());
        Outcome::Done
    })),
    case("Arbiter::admissions", |fault| with_arbiter(fault, |fault, world, arbiter| {
        let _grant = arbiter.try_admit(ask(world, "grant", 4)).unwrap();
        fault.during(|| arbiter.admissions());
        Outcome::Done
    })),
    case("Arbiter::counts", |fault| with_arbiter(fault, |fault, _, arbiter| {
        fault.during(|| arbiter.counts());
        Outcome::Done
    })),
];

fn ask(world: &World, name: &str, mib: u64) -> Ask {
    let ask = Ask::new(&world.tenant, name);
    ask.least(mib * MIB, 0).wanted(mib * MIB)
}

/// Runs a call in a world with an arbiter, and asks once more without a fault.
fn with_arbiter(
    fault: &mut Fault,
    call: impl Fn(&mut Fault, &World, &Arbiter) -> Outcome,
) -> Outcome {
    with_world(fault, |fault, world| {
        let arbiter = Arbiter::new(&world.memory, Policy::default());
        let outcome = call(fault, world, &arbiter);
        arbiter.tick();
        let all = arbiter.try_admit(ask(world, "all", 8));
        drop(all.expect("nothing is promised any more"));
        outcome
    })
}
