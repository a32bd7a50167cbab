//! Publication against flush: updates of groups at any depth, first ones after a flush and later ones, and exact reads of
//! any scope.

use bursar_machine::Watched;

use super::Protocol;
use super::books::{Books, NO_LIMIT, run};
use crate::random::Random;

pub(super) fn protocol<M: Watched>() -> Protocol<M> {
    Protocol {
        name: "publish-flush",
        summary: "updates of a tree while exact reads flush it: none is missed, none counted twice",
        cpus: 2,
        scenario: wide,
    }
}

/// The same in few steps, for what takes many events in one order.
pub(super) fn one_shard<M: Watched>() -> Protocol<M> {
    Protocol {
        name: "one-shard",
        summary: "two tasks publish the same shard while a third flushes it, again and again",
        cpus: 2,
        scenario: narrow,
    }
}

/// Many ways up: two groups below one, beside a third, of depth 3 with the root.
fn wide<M: Watched>(machine: &M, seed: u64) {
    let below = [(0, NO_LIMIT), (1, NO_LIMIT), (1, NO_LIMIT)];
    let books = Books::new(machine, NO_LIMIT, &below);
    let groups = books.shape.len() as u64;
    let books = &books;
    let update = move |mut random: Random| {
        for _ in 0..1 + random.below(3) {
            // Mostly at the bottom, where the way up is longest.
            let group = match random.below(4) {
                0 => random.below(groups),
                _ => 2 + random.below(2),
            };
            books.add(group as usize);
        }
    };
    let read = move |mut random: Random| {
        for _ in 0..1 + random.below(2) {
            books.read(random.below(groups) as usize);
            if random.below(4) == 0 {
                books.add(2);
            }
        }
    };
    run(
        machine,
        seed,
        || (),
        vec![
            Box::new(update),
            Box::new(update),
            Box::new(read),
            Box::new(read),
        ],
    );
    books.check_rows();
}

/// One way up, and few steps: two that publish the same shard of one group, and one that flushes.
fn narrow<M: Watched>(machine: &M, seed: u64) {
    let books = Books::new(machine, NO_LIMIT, &[(0, NO_LIMIT)]);
    let books = &books;
    let update = move |mut random: Random| {
        for _ in 0..1 + random.below(2) {
            books.add(1);
        }
    };
    let read = move |mut random: Random| {
        for _ in 0..1 + random.below(2) {
            books.read(0);
        }
    };
    // The first and the third begin on the same CPU.
    run(
        machine,
        seed,
        || (),
        vec![Box::new(update), Box::new(read), Box::new(update)],
    );
    books.check_rows();
}
