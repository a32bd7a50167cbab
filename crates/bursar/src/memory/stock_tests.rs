//! Tests of how much stock CPUs hold.

use bursar_machine::host::{allowed_cpus, pin_to};
use bursar_rig::random::Random;

use super::Memory;
use crate::charge::Charge;
use crate::group::Group;
use crate::limit::Limits;

const MIB: u64 = 1 << 20;

/// Bytes that CPUs may hold as stock for a group and all below it.
fn caps(group: &Group) -> u64 {
    group.core().counters.counter(group.index()).stock_max()
}

fn room(group: &Group) -> u64 {
    group.limits().max.saturating_sub(group.reserved())
}

/// Whatever is charged, returned and limited, on whatever CPU: below each limit the CPUs may hold no more than a quarter of the most room
/// that there was since they held none.
#[test]
fn stock_is_within_a_quarter_of_the_room_that_there_was() {
    let cpus = allowed_cpus();
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let max = MIB << random.below(12);
        let memory = Memory::builder().max(max).build().unwrap();
        let tenant = memory.root().child("tenant", Limits::max(max / 2)).unwrap();
        let of_tenant = (0..4).map(|at| tenant.child(format!("{at}"), Limits::none()).unwrap());
        let groups: Vec<Group> = of_tenant.chain([memory.root()]).collect();
        let limited = [memory.root(), tenant];
        let mut most = [0; 2];
        let mut held: Vec<Charge> = Vec::new();
        for step in 0..400 {
            if random.below(20) == 0 {
                pin_to(cpus[random.below(cpus.len() as u64) as usize]).unwrap();
            }
            let before = [0, 1].map(|at| room(&limited[at]));
            match random.below(10) {
                0..5 => {
                    let group = &groups[random.below(5) as usize];
                    let most = 1 << random.below(26);
                    let bytes = 1 + random.below(most);
                    held.extend(group.try_charge(bytes));
                }
                5..9 if !held.is_empty() => {
                    let at = random.below(held.len() as u64) as usize;
                    drop(held.swap_remove(at));
                }
                9 if random.below(10) == 0 => memory.tick(),
                _ => {}
            }
            for (at, group) in limited.iter().enumerate() {
                let caps = caps(group);
                // A raise looks at the room before or after its own charge or return, and returns leave more.
                most[at] = if caps == 0 { 0 } else { most[at] };
                most[at] = most[at].max(before[at]).max(room(group));
                assert!(
                    caps <= most[at] / 4,
                    "seed {seed}, step {step}: {caps} in {group:?}, room {}",
                    most[at]
                );
            }
        }
        drop(held);
        limited[1].set_max(0);
        memory.root().set_max(0);
        assert_eq!(memory.reserved(), 0, "lost stock");
    }
}

/// A CPU keeps what a batch returned, so the next one changes no counter that others see.
#[test]
fn batches_stay_on_their_cpu() {
    pin_to(allowed_cpus()[0]).unwrap();
    let memory = Memory::builder().max(64 << 30).build().unwrap();
    let query = memory.root().child("query", Limits::none()).unwrap();
    for bytes in [MIB, 16 * MIB, 64 * MIB] {
        drop(query.try_charge(bytes).unwrap());
        let reserved = memory.reserved();
        assert!(reserved >= bytes, "{reserved}");
        for _ in 0..10 {
            let charge = query.try_charge(bytes).unwrap();
            assert_eq!(memory.reserved(), reserved);
            drop(charge);
            assert_eq!(memory.reserved(), reserved);
        }
    }
    // More than any stock.
    let reserved = memory.reserved();
    let charge = query.try_charge(65 * MIB).unwrap();
    assert!(memory.reserved() > reserved);
    drop(charge);
}

/// Many groups have one large request each, and none again.
#[test]
fn two_ticks_take_large_stock_back_that_nobody_uses() {
    let flush_period = std::time::Duration::ZERO;
    let memory = Memory::builder()
        .flush_period(flush_period)
        .build()
        .unwrap();
    let tenant = memory.root().child("tenant", Limits::max(1 << 50)).unwrap();
    let groups: Vec<Group> = (0..10_000)
        .map(|at| tenant.child(format!("{at}"), Limits::none()).unwrap())
        .collect();
    groups
        .iter()
        .for_each(|group| drop(group.try_charge(4 * MIB).unwrap()));
    assert!(memory.reserved() >= 10_000 * 4 * MIB);
    memory.tick();
    memory.tick();
    assert_eq!((memory.reserved(), caps(&tenant)), (0, 0));
}

/// In a memory that nobody ticks, a charge that misses the stock has it taken back.
#[test]
fn a_charge_takes_stock_back_that_is_in_its_way() {
    let flush_period = std::time::Duration::ZERO;
    let memory = Memory::builder()
        .flush_period(flush_period)
        .max(1 << 30)
        .build()
        .unwrap();
    let [idle, busy] =
        ["idle", "busy"].map(|name| memory.root().child(name, Limits::none()).unwrap());
    drop(idle.try_charge(4 * MIB).unwrap());
    assert!(idle.reserved() > 0);
    // Nearly all, and then requests that the room has no stock for.
    let mut held = vec![busy.try_charge(900 * MIB).unwrap()];
    held.extend((0..20).map(|_| busy.try_charge(4 * MIB).unwrap()));
    assert_eq!(idle.reserved(), 0);
}

#[test]
fn a_limit_below_what_is_held_as_stock() {
    let memory = Memory::builder().max(1 << 30).build().unwrap();
    let group = memory.root().child("group", Limits::max(1 << 29)).unwrap();
    let kept = group.try_charge(MIB).unwrap();
    drop(group.try_charge(4 * MIB).unwrap());
    assert!(group.reserved() >= 5 * MIB);
    group.set_max(2 * MIB);
    assert_eq!(group.reserved(), MIB);
    assert!(group.try_charge(MIB + 1).is_err() && group.try_charge(1 << 62).is_err());
    assert!(group.try_charge(MIB).is_ok() && group.try_charge(0).is_ok());
    drop(kept);
}
