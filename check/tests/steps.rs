//! Steps of an operation that must not depend on how much others wait for.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};

use bursar::{Limits, Memory};
use bursar_rig::Watched;
use bursar_sim::{Settings, Simulator, Topology};

/// Steps of the end of a group, by `remove` and by `close`, while `waiting` charges of another group wait for the root's limit.
fn steps_of_ends(waiting: usize) -> [u64; 2] {
    let simulator = Simulator::new(Settings::new(Topology::new(1, 1, 1000), 1));
    let machine = simulator.machine();
    let memory = Memory::builder().build_on(machine.clone()).expect("memory");
    let steps = AtomicU64::new(0);
    // Relaxed: one thread of the host runs all tasks.
    let taken = || steps.load(Ordering::Relaxed);
    let mut of_ends = [0; 2];
    let task = || {
        let root = memory.root();
        root.set_max(1000);
        let _all = root.try_charge(1000).expect("it fits");
        let child = |name| root.child(name, Limits::none()).expect("a name of its own");
        let [other, removed, closed] = ["other", "removed", "closed"].map(child);
        let mut waits: Vec<_> = (0..waiting)
            .map(|_| Box::pin(other.charge_async(100)))
            .collect();
        for wait in &mut waits {
            let polled = pin!(wait).poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
        }
        let before = taken();
        removed.remove().expect("it has no children");
        let between = taken();
        closed.close().expect("not the root");
        of_ends = [between - before, taken() - between];
    };
    let count = || {
        steps.fetch_add(1, Ordering::Relaxed);
    };
    machine.run_watched(Box::new(count), vec![Box::new(task)]);
    of_ends
}

#[test]
fn the_end_of_a_group_looks_at_no_charge_that_waits_for_others() {
    assert_eq!(steps_of_ends(1), steps_of_ends(50));
}
