//! Walking and waiting: readers of the same scope and of scopes that overlap, more than there are CPUs.
//!
//! Readers of one scope share a walk that begins after they came. Readers of other scopes walk over the same groups at the same
//! time. Every waiting reader must be woken, and must read the updates that were there when it came.

use bursar_rig::Watched;

use super::books::{Books, run};
use crate::random::Random;

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    // The root over two groups with a child each: 0 > {1 > 3, 2 > 4}. Walks of scopes with children are shared.
    let books = Books::read_with_some_policy(machine, seed, &[0, 0, 1, 2]);
    let books = &books;
    let read = move |mut random: Random| {
        for _ in 0..1 + random.below(2) {
            if random.below(3) == 0 {
                books.add(3 + random.below(2) as usize);
            }
            // Mostly of one scope, so that readers wait for each other.
            books.read(random.below(4).saturating_sub(1) as usize);
        }
    };
    let update = move |mut random: Random| {
        for _ in 0..2 {
            books.add(3 + random.below(2) as usize);
        }
        if random.below(2) == 0 {
            books.memory.tick();
        }
    };
    run(machine, seed, || (), tasks![read, read, read, read, update]);
    books.check_rows();
}
