//! Tasks that free many pages: they exit, free a long list, or empty all lists.

use bursar_rig::timer::Timers;

use super::scene::{Log, Scene};
use crate::page_allocators::Lists;

/// Time after the start at which all exit.
const STORM_NS: u64 = 1_000_000;
/// Interval at which one of a pair checks whether the other is ready.
const WAIT_NS: u64 = 10_000;

/// Unmaps the task's memory, at the same time as the others, and ends.
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

/// Runs one of a pair: one takes pages for a long list, as the pages of a file are taken; the other frees them all in
/// one call, again and again. On one CPU that did both, the lists would grow until they hold it all.
pub(super) fn free_again_and_again<M: Timers, S: Lists<M>>(
    scene: &Scene<'_, M, S>,
    index: u64,
    log: &mut Log,
) {
    let machine = scene.machine;
    let count = scene.parameters.list_pages as usize;
    let pair = scene.parameters.bystanders / 2 + index / 2;
    while !scene.is_over(machine.now_ns()) {
        let is_posted = scene.posted(pair) >= count;
        if index.is_multiple_of(2) && !is_posted {
            let mut pages = Vec::with_capacity(count);
            scene.subject.alloc(count, &mut pages);
            scene.post(pair, pages);
        } else if !index.is_multiple_of(2) && is_posted {
            let pages = scene.collect(pair, count);
            log.done += pages.len() as f64;
            let began_ns = machine.now_ns();
            scene.subject.free_many(pages);
            log.frees_ns.push(machine.now_ns() - began_ns);
        } else {
            machine.sleep_until(machine.now_ns() + WAIT_NS);
        }
    }
}
