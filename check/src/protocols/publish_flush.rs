//! Publication against walks and retiring: updates of groups at any depth, which find their slot published or not, and exact reads
//! of any scope.

use bursar_rig::Watched;

use super::books::{Books, run};
use crate::model::GroupIndex;
use crate::random::Random;

/// Returns the same protocol in few steps, for errors that need many events in one order.
/// Runs many ways up: two groups below one, beside a third, of depth 3 with the root.
pub(super) fn wide<M: Watched>(machine: &M, seed: u64) {
    let books = Books::read_with_some_policy(machine, seed, &[0, 1, 1]);
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
            match random.below(4) {
                0 => books.add(2),
                1 => books.memory.tick(),
                _ => {}
            }
        }
    };
    run(machine, seed, || (), tasks![update, update, read, read]);
    books.check_rows();
}

/// Runs one way up, with few steps.
pub(super) fn narrow<M: Watched>(machine: &M, seed: u64) {
    match Random::fork(seed, 0).below(2) {
        0 => seen_below(machine, seed),
        _ => same_shard(machine, seed),
    }
}

/// Lets two tasks publish the same shard of one group, and two that of another CPU. One of each two reads before, one
/// afterwards.
fn same_shard<M: Watched>(machine: &M, seed: u64) {
    let books = Books::read_with_some_policy(machine, seed, &[0]);
    let books = &books;
    // Twice: without sections a walk may find the first before it is published.
    let update = |_: Random| {
        books.add(1);
        books.add(1);
        books.read(0);
    };
    let read = |_: Random| {
        books.read(0);
        books.add(1);
    };
    // The first and the third begin on the same CPU, and so do the others.
    run(machine, seed, || (), tasks![update, update, read, read]);
    books.check_rows();
}

/// Checks that a reader that finds an update below, which its task has not published all the way up, finds it above too, whatever
/// another reader in the middle does.
fn seen_below<M: Watched>(machine: &M, seed: u64) {
    // Far from the root, so that there is time in between.
    const MIDDLE: GroupIndex = 4;
    const LEAF: GroupIndex = 5;
    let books = Books::read_with_some_policy(machine, seed, &[0, 1, 2, 3, MIDDLE]);
    let books = &books;
    run(
        machine,
        seed,
        || (),
        tasks![
            move |_| books.add(LEAF),
            move |_| drop(books.read(MIDDLE)),
            move |_| {
                books.read(LEAF);
                books.read(0);
            }
        ],
    );
    books.check_rows();
}
