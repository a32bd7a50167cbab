//! A record ends, and is born again elsewhere, while a drain of the group above the old one looks for stock there, and
//! perhaps while its idle slots are retired.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar::{Limits, Memory};
use bursar_machine::Watched;

use super::Protocol;
use super::books::run;
use crate::random::Random;

pub(super) fn protocol<M: Watched>() -> Protocol<M> {
    Protocol {
        name: "rebirth",
        summary: "a record is born again below another group while the old parent is drained: no false refusal there",
        cpus: 2,
        scenario,
    }
}

const MAX: u64 = 1000;
const SMALL: u64 = 50;

fn scenario<M: Watched>(machine: &M, seed: u64) {
    let memory = &Memory::builder()
        .shards_per_slice(1)
        .build_on(machine.clone())
        .expect("a small memory");
    let parent = |name| memory.root().child(name, Limits::max(MAX));
    let (old, new) = (
        parent("old").expect("a name"),
        parent("new").expect("a name"),
    );
    let (old, new) = (&old, &new);
    let held = &AtomicU64::new(0);
    // One of each, so that there are few ways in which they can meet.
    let drain = |_: Random| old.set_max(MAX - 1);
    let retire = |mut random: Random| (0..2 * random.below(2)).for_each(|_| memory.tick());
    let live_again = move |_: Random| {
        // It has stock, so the way to it is marked; it ends, and a byte keeps its record for a while.
        let query = old.child("query", Limits::none()).expect("a name");
        let mut charge = query.try_charge(SMALL).expect("there is room");
        let kept = charge.split(1).expect("it has more");
        drop((charge, query));
        drop(kept);
        let again = new.child("again", Limits::none()).expect("a name");
        let charge = again.try_charge(SMALL);
        // Relaxed, here and below: one thread of the host runs all tasks.
        held.fetch_add(SMALL, Ordering::Relaxed);
        let charge = charge.expect("there is room");
        held.fetch_sub(SMALL, Ordering::Relaxed);
        drop(charge);
    };
    let want_nearly_all = |_: Random| {
        let charge = new.try_charge(MAX - SMALL);
        drop(charge.unwrap_or_else(|refusal| panic!("false refusal: {refusal}")));
    };
    run(
        machine,
        seed,
        || {
            let (held, reserved) = (held.load(Ordering::Relaxed), new.reserved());
            assert!(held <= reserved, "{held} bytes held, {reserved} reserved");
        },
        vec![
            Box::new(drain),
            Box::new(live_again),
            Box::new(want_nearly_all),
            Box::new(retire),
        ],
    );
    for group in [old, new] {
        group.set_max(0);
        assert_eq!(group.reserved(), 0, "bytes that no drain finds");
    }
    memory.tick();
    assert_eq!(memory.removed_groups(), 0, "a record that nothing ends");
}
