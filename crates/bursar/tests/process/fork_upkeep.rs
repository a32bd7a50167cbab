//! A process that forks while a thread does upkeep: the child does it again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::fork::in_child;
use bursar::housekeeping::{Options, Upkeep, Upkeeper};
use bursar::{Host, Machine};
use bursar_machine::Shard;

/// Upkeep that waits until it may end.
#[derive(Default)]
struct Waiting {
    begun: AtomicU64,
    may_end: AtomicBool,
}

impl Upkeep for Waiting {
    fn needs(&self, shard: Shard) -> bool {
        shard == Shard(0)
    }

    fn run(&self, _: Shard) -> bool {
        self.begun.fetch_add(1, Ordering::Relaxed);
        while !self.may_end.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        false
    }
}

#[test]
fn upkeep_that_was_under_way_is_done_in_the_child() {
    let _alone = crate::common::fork::alone();
    let machine = Host::start().expect("a host");
    let options = Options::every(Duration::from_millis(1));
    let upkeeper = Upkeeper::new(&machine, Waiting::default(), options).expect("sense");
    let upkeep = upkeeper.upkeep();
    let threads = upkeeper.start(1).expect("a thread");
    while upkeep.begun.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    in_child(|| {
        assert_eq!(upkeep.begun.load(Ordering::Relaxed), 1);
        upkeep.may_end.store(true, Ordering::Relaxed);
        while upkeep.begun.load(Ordering::Relaxed) == 1 {
            machine.sleep_until(upkeeper.tick());
        }
        // Threads of its own.
        let before = upkeep.begun.load(Ordering::Relaxed);
        let threads = upkeeper.start(1).expect("a thread");
        while upkeep.begun.load(Ordering::Relaxed) == before {
            std::thread::yield_now();
        }
        drop(threads);
    });
    assert_eq!(
        upkeep.begun.load(Ordering::Relaxed),
        1,
        "the parent's is its own"
    );
    upkeep.may_end.store(true, Ordering::Relaxed);
    drop(threads);
}
