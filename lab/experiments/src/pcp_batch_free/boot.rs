//! Processes that come and go, as while a machine boots: each shell runs one after the other. Their sizes were not
//! published, and are drawn evenly by their logarithm.

use bursar_rig::timer::Timers;

use super::scene::{Log, Scene};
use crate::page_allocators::{Lists, MIB_PAGES};

const ROLE: u64 = 3;
/// Least size: half a mebibyte, as of a shell script.
const LEAST_PAGES: u64 = MIB_PAGES / 2;

pub(super) fn run<M: Timers, S: Lists<M>>(scene: &Scene<'_, M, S>, index: u64, log: &mut Log) {
    let own = scene.parameters;
    let mut random = scene.random(ROLE, index);
    let doublings = (own.process_mib * 2).ilog2();
    let share = own.processes / own.shells + u64::from(index < own.processes % own.shells);
    for _ in 0..share {
        let least = LEAST_PAGES << random.below(u64::from(doublings) + 1);
        let pages = (least + random.below(least)).min(own.process_mib * MIB_PAGES);
        let mut held = Vec::new();
        scene.map(pages, &mut held);
        scene.machine.compute(own.think_us * 1_000);
        log.done += held.len() as f64;
        let began_ns = scene.machine.now_ns();
        scene.unmap(held);
        log.frees_ns.push(scene.machine.now_ns() - began_ns);
    }
}
