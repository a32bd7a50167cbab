//! Flushing and waiting: readers of scopes that overlap and that do not, more than there are CPUs.
//!
//! No reader waits for more than two flushes, because only a reader that overlaps no pending turn may begin one;
//! `combine.rs` asserts this in builds with debug assertions. Here every waiting reader must be woken, and must read
//! the updates that were there when it came.

use bursar_machine::Watched;

use super::Protocol;
use super::books::{Books, NO_LIMIT, run};
use crate::random::Random;

pub(super) fn protocol<M: Watched>() -> Protocol<M> {
    Protocol {
        name: "combining",
        summary: "readers of overlapping and disjoint scopes share flushes: fresh, and all are woken",
        cpus: 3,
        scenario,
    }
}

fn scenario<M: Watched>(machine: &M, seed: u64) {
    // The root over two groups with a child each: 0 > {1 > 3, 2 > 4}. Scopes with children need flushes.
    let below = [(0, NO_LIMIT), (0, NO_LIMIT), (1, NO_LIMIT), (2, NO_LIMIT)];
    let books = Books::new(machine, NO_LIMIT, &below);
    let books = &books;
    let read = move |mut random: Random| {
        for _ in 0..1 + random.below(2) {
            if random.below(3) == 0 {
                books.add(3 + random.below(2) as usize);
            }
            books.read(random.below(3) as usize);
        }
    };
    let update = move |mut random: Random| {
        for _ in 0..2 {
            books.add(3 + random.below(2) as usize);
        }
    };
    run(
        machine,
        seed,
        || (),
        vec![
            Box::new(read),
            Box::new(read),
            Box::new(read),
            Box::new(read),
            Box::new(update),
        ],
    );
    books.check_rows();
}
