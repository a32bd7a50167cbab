//! Tasks that free many pages: because they exit, because a long list is at its end, because lists are emptied.

use bursar_machine::timer::Timers;

use super::scene::{Log, Scene};
use crate::page_subject::Lists;

/// All exit at this moment after the start.
const STORM_NS: u64 = 1_000_000;

/// Unmaps what it has, all at once with others, and is gone.
pub(super) fn exit<M: Timers, S: Lists<M>>(scene: &Scene<'_, M, S>, index: u64, log: &mut Log) {
    let machine = scene.machine;
    let pages = scene.take_mapped(index);
    log.done = pages.len() as f64;
    machine.sleep_until(scene.start_ns + STORM_NS);
    let began_ns = machine.now_ns();
    scene.unmap(pages);
    log.frees_ns.push(machine.now_ns() - began_ns);
    scene.finish_one();
}

/// Empties the lists of all CPUs.
pub(super) fn drain<M: Timers, S: Lists<M>>(scene: &Scene<'_, M, S>, log: &mut Log) {
    let machine = scene.machine;
    machine.sleep_until(scene.start_ns + STORM_NS);
    let began_ns = machine.now_ns();
    scene.subject.drain_all();
    log.frees_ns.push(machine.now_ns() - began_ns);
    scene.finish_one();
}

/// Takes pages for a long list and frees them all at once, again and again.
pub(super) fn free_again_and_again<M: Timers, S: Lists<M>>(scene: &Scene<'_, M, S>, log: &mut Log) {
    let machine = scene.machine;
    while !scene.is_over(machine.now_ns()) {
        let mut pages = Vec::new();
        scene.map(scene.parameters.list_pages, &mut pages);
        log.done += pages.len() as f64;
        let began_ns = machine.now_ns();
        scene.subject.free_many(pages);
        log.frees_ns.push(machine.now_ns() - began_ns);
    }
}
