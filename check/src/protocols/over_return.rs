//! A tenant returns more than it charged, while its own charges are under way: it loses its own bytes, and no sibling loses any.

use bursar::{Limits, Memory};
use bursar_rig::Watched;

use super::books::run;
use crate::random::Random;

const MAX: u64 = 1000;
/// Bytes that the sibling holds all the time.
const HELD: u64 = MAX * 6 / 10;

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let memory = Memory::builder().build_on(machine.clone());
    let memory = &memory.expect("a small memory");
    let parent = &memory.root();
    let parent = &parent.child("parent", Limits::max(MAX)).expect("a name");
    let child = |name| parent.child(name, Limits::none()).expect("a name");
    let (sibling, buggy) = (child("sibling"), &child("buggy"));
    let held = sibling.try_charge(HELD).expect("there is room");
    let some = |random: &mut Random| 1 + random.below(MAX / 2);
    // Some fit, and some are refused by the parent.
    let charge = move |mut random: Random| {
        for _ in 0..2 {
            drop(buggy.try_charge(some(&mut random)));
        }
    };
    let return_too_much = move |mut random: Random| {
        let lent = buggy.try_charge(some(&mut random));
        let lent = lent.map_or(0, |charge| charge.forget());
        // Builds with debug assertions panic at the bug itself.
        let too_much = !cfg!(debug_assertions);
        let bytes = lent + u64::from(too_much) * some(&mut random);
        if bytes > 0 {
            buggy.engine().uncharge(bytes);
        }
    };
    run(
        machine,
        seed,
        || {
            let reserved = parent.reserved();
            assert!(
                reserved >= HELD,
                "{HELD} bytes held, {reserved} reserved: a sibling's bug took the rest"
            );
        },
        tasks![charge, charge, return_too_much],
    );
    drop(held);
}
