//! The last handle of a group is dropped while the group ends, and the records of the group and of its parent become groups again, the other way
//! round. Each record has a lock, and the order of two locks is parent before child.

use bursar::{Limits, Memory};
use bursar_rig::Watched;

use super::books::run;
use crate::random::Random;

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let memory = &Memory::builder()
        .shards_per_slice(1)
        .build_on(machine.clone())
        .expect("a small memory");
    let root = memory.root();
    let above = root.child("above", Limits::none()).expect("a name");
    let below = above.child("below", Limits::none()).expect("a name");
    let forget = move |_: Random| drop(below);
    let reverse = move |_: Random| {
        let Some(below) = above.find("below") else {
            return;
        };
        below.remove().expect("it has no children");
        drop(below);
        // The record that became free last is used first.
        let again = root.child("again", Limits::none()).expect("a name");
        drop(above);
        let deeper = again.child("deeper", Limits::none()).expect("a name");
        drop((deeper, again));
    };
    run(machine, seed, || (), tasks![forget, reverse]);
    memory.tick();
    assert_eq!(memory.root().children().len(), 0, "a name that stays");
    assert_eq!(memory.removed_groups(), 0, "a record that nothing ends");
}
