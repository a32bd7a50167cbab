//! The words of a lock's holder under loom.

use std::sync::Arc;

use super::{Holder, HolderWords, Work};

#[path = "../../../tests/loom/machine/word.rs"]
mod word;

fn hold(task: u64, work: Work, since_ns: u64) -> Holder {
    Holder {
        task,
        cpu: 0,
        work,
        since_ns,
    }
}

/// Looks once while one hold follows another. One thread has both; what a lock does is argued.
fn explore(first: Holder, second: Holder) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(move || {
        let words = Arc::new(HolderWords::<word::LoomWord>::new());
        let holders = {
            let words = words.clone();
            word::spawn(move || {
                words.enter(first);
                words.leave();
                words.enter(second);
            })
        };
        let seen = words.look();
        assert!(
            seen.is_none_or(|holder| holder == first || holder == second),
            "{seen:?}"
        );
        holders.join().unwrap();
        assert_eq!(words.look(), Some(second));
    });
}

#[test]
fn a_look_does_not_mix_two_holders() {
    explore(hold(1, Work::Alloc, 10), hold(2, Work::Alloc, 20));
}

#[test]
fn a_look_does_not_mix_two_holders_of_one_moment() {
    explore(hold(1, Work::Alloc, 10), hold(2, Work::Free, 10));
}

#[test]
fn a_look_does_not_mix_two_holds_of_one_task() {
    explore(hold(1, Work::Alloc, 10), hold(1, Work::Free, 20));
}
