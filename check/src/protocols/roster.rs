//! Reads by roster against all that a roster must bear: slots that are published or retired, groups that end and are born again,
//! numbers that move up while a roster is made.

use bursar::{Group, Limits};
use bursar_rig::Watched;

use super::books::{Books, NO_LIMIT, run};
use crate::random::Random;

/// The root, a group in the middle, two below it, and one beside it.
const SHAPE: &[usize] = &[0, 1, 1, 0];
const MIDDLE: usize = 1;
const LEAF: usize = 2;

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    match Random::fork(seed, u64::MAX - 1).below(4) {
        0 => split(machine, seed),
        1 => ended(machine, seed),
        2 => retired(machine, seed),
        _ => wide(machine, seed),
    }
}

/// One slot on a roster, with few steps: it is retired while it is read and added to.
pub(super) fn idle<M: Watched>(machine: &M, seed: u64) {
    let books = Books::new(machine, NO_LIMIT, &[(0, NO_LIMIT), (MIDDLE, NO_LIMIT)]);
    let books = &books;
    // The second read finds nothing new, and makes a roster. The pass after it finds the slot changed, and the next finds it idle.
    for _ in 0..2 {
        books.add(LEAF);
        books.read(MIDDLE);
    }
    let read = |mut random: Random| {
        books.read(MIDDLE);
        books.read([MIDDLE, 0][random.below(2) as usize]);
    };
    let read_and_retire = |_: Random| drop(books.read(LEAF));
    run(
        machine,
        seed,
        || (),
        tasks![|_| books.add(LEAF), read, read_and_retire],
    );
    books.check_rows();
}

/// Two slots of one group in use: they are folded while a roster is made of them, one hold of the lock after the other.
fn split<M: Watched>(machine: &M, seed: u64) {
    let books = Books::read_with_some_policy(machine, seed, &SHAPE[..2]);
    let books = &books;
    let update = || -> Box<dyn FnOnce(Random) + Send + '_> { Box::new(|_| books.add(LEAF)) };
    let update_both = || run(machine, seed, || (), vec![update(), update()]);
    update_both();
    // The group of the slots, or the one above.
    let scope = [MIDDLE, LEAF][Random::fork(seed, 0).below(2) as usize];
    books.read(scope);
    // Else the next pass finds them unchanged, and no roster outlives that.
    update_both();
    let read = |count| -> Box<dyn FnOnce(Random) + Send + '_> {
        Box::new(move |_| {
            for _ in 0..count {
                books.read(scope);
            }
        })
    };
    let tasks = vec![read(2), update(), read(1)];
    run(machine, seed, || (), tasks);
    books.check_rows();
}

/// A group in use ends while a roster of its parent is made, and its record is born again beside the parent.
fn ended<M: Watched>(machine: &M, seed: u64) {
    let books = Books::read_with_some_policy(machine, seed, &SHAPE[..2]);
    let books = &books;
    let guest = books.groups[MIDDLE].child("guest", Limits::none());
    let guest = guest.expect("a name of its own");
    let add = || {
        books.add(LEAF);
        books.add_to(&guest, MIDDLE);
    };
    add();
    books.read(MIDDLE);
    // Both slots stay in use, and a walk that begins now finds none that is new.
    add();
    let live_again = |_: Random| {
        drop(guest);
        let again = books.groups[0].child("again", Limits::none());
        books.add_to(&again.expect("a name of its own"), 0);
    };
    let read = |_: Random| {
        books.read(MIDDLE);
        books.read(MIDDLE);
    };
    run(machine, seed, || (), tasks![live_again, read]);
    books.check_rows();
}

/// An idle slot is retired while a roster is made, and is in use again while the roster is read.
fn retired<M: Watched>(machine: &M, seed: u64) {
    let books = Books::read_with_some_policy(machine, seed, &SHAPE[..3]);
    let books = &books;
    let add = |_: Random| books.add(LEAF);
    run(machine, seed, || (), tasks![add]);
    books.add(LEAF + 1);
    books.read(MIDDLE);
    // The other slot stays in use.
    books.add(LEAF + 1);
    let retire_and_add = |_: Random| {
        books.read(LEAF + 1);
        books.add(LEAF);
    };
    let read = |_: Random| {
        books.read(MIDDLE);
        books.read(MIDDLE);
        books.read(0);
    };
    run(machine, seed, || (), tasks![retire_and_add, read]);
    books.check_rows();
}

fn wide<M: Watched>(machine: &M, seed: u64) {
    let books = Books::read_with_some_policy(machine, seed, SHAPE);
    let books = &books;
    let mut random = Random::fork(seed, 0);
    let short_lived = || {
        let made = books.groups[MIDDLE].child("short-lived", Limits::none());
        made.expect("a name of its own")
    };
    let guest = (random.below(2) == 0).then(short_lived);
    // Slots that are in use when the tasks begin. An update between two reads keeps its slot in use, and no
    // slot is new at the second.
    for _ in 0..1 + random.below(3) {
        books.add(LEAF);
        if random.below(2) == 0 {
            books.add(LEAF + 1);
        }
        if let Some(guest) = &guest {
            books.add_to(guest, MIDDLE);
        }
        if random.below(2) == 0 {
            books.read(0);
        }
        books.read(MIDDLE);
    }
    let update = move |mut random: Random| {
        for _ in 0..1 + random.below(2) {
            books.add(LEAF + random.below(2) as usize);
        }
    };
    let read = move |mut random: Random| {
        for _ in 0..1 + random.below(2) {
            // Each is followed by one above, which must find as much.
            for scope in [LEAF, MIDDLE, 0].into_iter().skip(random.below(2) as usize) {
                books.read(scope);
            }
        }
    };
    let change = move |mut random: Random| match random.below(3) {
        0 => books.memory.tick(),
        1 => {
            books.read(0);
            books.memory.tick();
        }
        _ => live_again(books, guest, random),
    };
    run(machine, seed, || (), tasks![update, read, read, change]);
    books.check_rows();
}

/// Ends the guest, and lets its record be born again beside the group in the middle.
fn live_again<M: Watched>(books: &Books<M>, guest: Option<Group<M>>, mut random: Random) {
    const BESIDE: usize = 4;
    // A byte keeps its record for a while.
    let kept = guest.as_ref().map(|guest| guest.try_charge(1));
    drop(guest);
    for _ in 0..random.below(3) {
        books.add(LEAF);
        books.read(MIDDLE);
    }
    drop(kept);
    books.memory.tick();
    let at = [MIDDLE, BESIDE][random.below(2) as usize];
    let again = books.groups[at].child("again", Limits::none());
    books.add_to(&again.expect("a name of its own"), at);
}
