//! A tenant returns more than it charged, while charges and returns of its own, of a group below it and of a sibling are under way. It
//! loses its own bytes, no sibling loses any, and what is live stays within the limit.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar::{Charge, Freshness, Group, Limits, Memory};
use bursar_machine::Machine;
use bursar_rig::Watched;

use super::books::run;
use crate::random::Random;

const MAX: u64 = 1000;
/// Bytes that the sibling holds all the time.
const HELD: u64 = MAX * 6 / 10;
/// More bytes than the tenant ever has.
const FAR_TOO_MUCH: u64 = 1 << 40;

/// A lower bound on the bytes of a group and all below it, where each return takes what there is, and no more. Not the machine's words:
/// recording costs no step.
#[derive(Default)]
struct Least {
    bytes: AtomicU64,
    /// Returns that have begun, and those that have ended.
    begun: AtomicU64,
    ended: AtomicU64,
}

// Relaxed throughout: one thread of the host runs all tasks.
impl Least {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts only bytes that were charged between two returns. Of others, a return that was under way may have taken some.
    fn charge<M: Machine>(&self, group: &Group<M>, bytes: u64) -> Option<Charge<M>> {
        let ended = self.ended.load(Ordering::Relaxed);
        let charge = group.try_charge(bytes).ok()?;
        if self.begun.load(Ordering::Relaxed) == ended {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Some(charge)
    }

    /// Returns a charge, and notifies others or leaves that to them.
    fn uncharge<M: Machine>(&self, charge: Charge<M>, random: &mut Random) {
        self.give_back(charge.bytes(), || match random.below(2) {
            0 => drop(charge),
            _ => charge.release_nowait(),
        });
    }

    fn give_back(&self, bytes: u64, work: impl FnOnce()) {
        let left = self.bytes().saturating_sub(bytes);
        self.bytes.store(left, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        work();
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

fn some(random: &mut Random) -> u64 {
    // Some are paid from stock, some fit, and some are refused by the parent.
    match random.below(2) {
        0 => 1 + random.below(MAX / 20),
        _ => 1 + random.below(MAX / 2),
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    // Builds with debug assertions panic at the bug itself.
    match Random::fork(seed, u64::MAX).below(4) {
        0 if !cfg!(debug_assertions) => put_off(machine, seed),
        _ => everything(machine, seed),
    }
}

/// Makes two returns at once of which the group has nothing. The one that does not wait is put off, while the other takes what was put off.
fn put_off<M: Watched>(machine: &M, seed: u64) {
    // Beyond all stock.
    const BYTES: u64 = 1 << 20;
    let memory = Memory::builder().build_on(machine.clone());
    let memory = &memory.expect("a small memory");
    let group = &memory
        .root()
        .child("buggy", Limits::none())
        .expect("a name");
    let charge = group.try_charge(BYTES).expect("there is room");
    let return_too_much = || group.engine().uncharge(BYTES);
    return_too_much();
    let again = |_: Random| return_too_much();
    let release = |_: Random| charge.release_nowait();
    run(machine, seed, || (), tasks![again, release]);
    memory.tick();
    let over_returned = group.events().over_returned_bytes;
    assert_eq!((group.reserved(), over_returned), (0, 2 * BYTES));
}

fn everything<M: Watched>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    // A smaller number may hide behind other bytes, and behind stock.
    let is_far_too_much = random.below(2) == 0;
    let memory = Memory::builder()
        .shards_per_slice(1)
        .build_on(machine.clone());
    let memory = &memory.expect("a small memory");
    let parent = &memory.root();
    let parent = &parent.child("parent", Limits::max(MAX)).expect("a name");
    let child = |name| parent.child(name, Limits::none()).expect("a name");
    let (sibling, buggy) = (&child("sibling"), &child("buggy"));
    let below = &buggy.child("below", Limits::none()).expect("a name");
    let held = sibling.try_charge(HELD).expect("there is room");
    let (of_sibling, of_buggy) = (&Least::default(), &Least::default());
    let too_much = &AtomicU64::new(0);
    let work = move |mut random: Random, least: &Least, groups: [&Group<M>; 2]| {
        let mut holding = Vec::new();
        for _ in 0..3 {
            let group = groups[random.below(2) as usize];
            holding.extend(least.charge(group, some(&mut random)));
            if random.below(2) == 0
                && let Some(charge) = holding.pop()
            {
                least.uncharge(charge, &mut random);
            }
        }
        for charge in holding {
            least.uncharge(charge, &mut random);
        }
    };
    let charge = move |random: Random| work(random, of_buggy, [buggy, below]);
    let charge_beside = move |random: Random| work(random, of_sibling, [sibling, sibling]);
    let return_too_much = move |mut random: Random| {
        let lent = of_buggy.charge(buggy, some(&mut random));
        let lent = lent.map_or(0, |charge| charge.forget());
        // As above.
        let more = match (cfg!(debug_assertions), is_far_too_much) {
            (true, _) => 0,
            (false, true) => FAR_TOO_MUCH,
            (false, false) => some(&mut random),
        };
        too_much.fetch_add(more, Ordering::Relaxed);
        let bytes = lent + more;
        of_buggy.give_back(bytes, || buggy.engine().uncharge(bytes));
    };
    run(
        machine,
        seed,
        || {
            let reserved = parent.reserved();
            let others = HELD + of_sibling.bytes();
            assert!(
                others <= reserved,
                "{others} bytes held, {reserved} reserved: a sibling's bug took the rest"
            );
            let live = others + of_buggy.bytes();
            assert!(
                !is_far_too_much || live <= MAX,
                "{live} bytes live, above the limit of {MAX}"
            );
        },
        tasks![charge, charge, charge_beside, return_too_much],
    );
    memory.tick();
    memory.root().set_max(MAX * 2);
    let usage = |group: &Group<M>| {
        group
            .read(Freshness::Exact)
            .expect("as above")
            .usage()
            .value
    };
    for (group, bytes) in [(below, 0), (buggy, 0), (sibling, HELD), (parent, HELD)] {
        assert_eq!(
            group.reserved(),
            bytes,
            "reserved for {group:?} {is_far_too_much}"
        );
        assert_eq!(usage(group), bytes as i64, "usage of {group:?}");
    }
    // Without stock the usage of a group is what is reserved, so the range of a number that is up to date is that number.
    let one = below.try_charge(1).expect("there is room");
    parent.set_max(MAX - 1);
    for (group, bytes) in [(below, 1), (buggy, 1), (sibling, HELD), (parent, HELD + 1)] {
        assert_eq!(usage(group), bytes as i64, "usage of {group:?}");
        let cached = group.read(Freshness::Cached).expect("cached").usage();
        let range = (cached.lo, cached.hi);
        assert_eq!(range, (bytes as i64, bytes as i64), "{group:?}'s counter");
    }
    drop(one);
    let noted = parent.events().over_returned_bytes;
    assert_eq!(noted, too_much.load(Ordering::Relaxed), "noted bytes");
    drop(held);
}
