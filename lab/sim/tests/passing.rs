//! Waiting charges in virtual time: the time after which room is kept for one that others pass.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bursar::{Charge, Group, Limits, Memory};
use bursar_machine::Machine;
use bursar_rig::Tasks;
use bursar_sim::{Settings, Sim, Simulator, Topology};

const UNIT: u64 = 1 << 20;
const TIME: Duration = Duration::from_secs(10);

fn is_served(wait: impl Future<Output = Result<Charge<Sim>, bursar::ChargeError>>) -> bool {
    let polled = pin!(wait).poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Ok(_)))
}

/// The time counts from its first poll, and whatever becomes free meanwhile is kept from then on.
fn is_passed_after(group: &Group<Sim>, machine: &Sim, ns: u64) -> bool {
    let held = group.try_charge(4 * UNIT).unwrap();
    let mut large = group.charge_async(8 * UNIT);
    assert!(!is_served(&mut large));
    machine.sleep_until(machine.now_ns() + ns);
    let is_passed = is_served(group.charge_async(UNIT));
    drop(held);
    assert!(is_served(&mut large));
    is_passed
}

#[test]
fn a_charge_that_has_waited_long_enough_is_not_passed() {
    let simulator = Simulator::new(Settings::new(Topology::new(2, 1, 1000), 1));
    let machine = simulator.machine();
    let memory = Memory::<bursar_machine::Host>::builder()
        .passing(u32::MAX, TIME)
        .build_on(machine.clone())
        .unwrap();
    let group = memory
        .root()
        .child("group", Limits::max(10 * UNIT))
        .unwrap();
    let time_ns = TIME.as_nanos() as u64;
    machine.run(vec![Box::new(|| {
        assert!(is_passed_after(&group, &machine, time_ns / 10 * 9));
        assert!(!is_passed_after(&group, &machine, time_ns));
    })]);
}
