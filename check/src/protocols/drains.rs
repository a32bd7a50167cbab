//! Drains of a group, while one of a part of it waits, and while charges below go on. Each ends after a bounded number of slices.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar::{Group, Limits, Memory};
use bursar_rig::Watched;

use super::books::run;
use crate::random::Random;

const MAX: u64 = 1000;
const SMALL: u64 = 20;
/// Stands for no task.
const NOBODY: u64 = u64::MAX;

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let memory = Memory::builder()
        .shards_per_slice(1)
        .build_on(machine.clone())
        .expect("a small memory");
    let tenant = memory.root().child("tenant", Limits::max(MAX));
    let tenant = &tenant.expect("a name");
    match Random::fork(seed, 0).below(2) {
        0 => waited_for(machine, seed, tenant),
        _ => loaded(machine, seed, tenant),
    }
}

/// Counts the slices of a group's own drains that found stock. Called after each step.
fn slices<M: Watched>(group: &Group<M>) -> impl FnMut() -> u64 + use<'_, M> {
    let (mut drained, mut slices) = (0, 0);
    move || {
        let now = group.own_events().drained_bytes;
        slices += u64::from(now != drained);
        drained = now;
        slices
    }
}

/// Drains a group of many parts, while a drain of one part waits: for one slice, and not for all.
fn waited_for<M: Watched>(machine: &M, seed: u64, tenant: &Group<M>) {
    const PARTS: usize = 6;
    let parts: Vec<_> = (0..PARTS)
        .map(|part| {
            let part = tenant.child(format!("part{part}"), Limits::none());
            let part = part.expect("a name of its own");
            // Leaves stock.
            drop(part.try_charge(SMALL).expect("there is room"));
            part
        })
        .collect();
    let part = &parts[PARTS - 1];
    // Not the machine's word: recording costs no step.
    let waiting = &AtomicU64::new(NOBODY);
    let wait = |_: Random| {
        // Relaxed, here and below: one thread of the host runs all tasks.
        waiting.store(machine.task(), Ordering::Relaxed);
        part.set_max(MAX);
    };
    let mut slices = slices(tenant);
    let mut since = None;
    run(
        machine,
        seed,
        || {
            let (slices, last) = (slices(), machine.last_step());
            // The last part: the large drain comes to its stock last.
            if part.reserved() == 0 {
                since = None;
            } else if last.task == waiting.load(Ordering::Relaxed) && last.waits {
                since.get_or_insert(slices);
            }
            let passed = slices - since.unwrap_or(slices);
            assert!(passed <= 1, "{passed} slices while another task waits");
        },
        tasks![|_| tenant.set_max(MAX - 1), wait],
    );
}

/// Drains a group while charges below would leave stock again and again.
fn loaded<M: Watched>(machine: &M, seed: u64, tenant: &Group<M>) {
    let group = &tenant.child("group", Limits::none()).expect("a name");
    drop(group.try_charge(SMALL).expect("there is room"));
    let charge = move |_: Random| {
        for _ in 0..8 {
            drop(group.try_charge(SMALL).expect("there is room"));
        }
    };
    let mut slices = slices(tenant);
    // Stock of each CPU, and what the task was about to leave when the drain began.
    let most = machine.cpus() as u64 + 1;
    run(
        machine,
        seed,
        || {
            let slices = slices();
            assert!(slices <= most, "{slices} slices, and no end");
        },
        tasks![|_| tenant.set_max(MAX - 1), charge],
    );
}
