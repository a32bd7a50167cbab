//! The words of a lock's holder under loom, and what waiters are for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bursar_machine::{AtomicWord, MemoryOrder};

use super::super::refusing::Refusing;
use super::super::{HoldBounds, PageOptions, fixture};
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

#[test]
fn a_thread_gives_way_between_its_holds_if_others_wait() {
    let (machine, counts) = Refusing::new(1);
    let hold = HoldBounds {
        blocks: 10,
        ns: u64::MAX,
    };
    let options = PageOptions {
        hold,
        ..fixture::options()
    };
    let zones = fixture::zones(&machine, options);
    let zone = zones.zone(0);
    let pauses_with = |waiting| {
        let mut blocks = fixture::pages(zone, 30);
        let lock = zone.buddy_lock();
        lock.waiting.store(waiting, MemoryOrder::Relaxed);
        let held = zone.buddy(Work::Report);
        assert_eq!(lock.holder().map(|(_, waiting)| waiting), Some(waiting));
        drop(held);
        let before = counts.pauses.load(Ordering::Relaxed);
        zone.give(&mut blocks, Work::Free);
        counts.pauses.load(Ordering::Relaxed) - before
    };
    assert_eq!(pauses_with(0), 0);
    assert_eq!(pauses_with(1), 2, "three holds");
}
