//! Processes that come and go, as while a machine boots or compiles: each shell runs one after the other. Their sizes
//! were not published, and are drawn evenly by their logarithm; one in `process_doublings` + 1 has the largest size.

use bursar_rig::timer::Timers;

use super::scene::{FAULT_PAGES, Log, Scene};
use crate::page_allocators::{Lists, MIB_PAGES};

const ROLE: u64 = 3;

pub(super) fn run<M: Timers, S: Lists<M>>(scene: &Scene<'_, M, S>, index: u64, log: &mut Log) {
    let own = scene.parameters;
    let machine = scene.machine;
    let mut random = scene.random(ROLE, index);
    let share = own.processes / own.shells + u64::from(index < own.processes % own.shells);
    let largest = own.process_mib * MIB_PAGES;
    // Shells are at different points of different processes when the run begins.
    let fault_ns = own.touch_ns + own.page_compute_ns;
    let began_ns = machine.now_ns() + random.below(FAULT_PAGES as u64 * fault_ns + 1);
    machine.sleep_until(began_ns);
    let waits = machine.lock_waits();
    for nth in 0..share {
        let least = (largest >> own.process_doublings) << random.below(own.process_doublings + 1);
        let mut pages = (least + random.below(least.max(1))).min(largest);
        if nth == 0 {
            pages = random.below(pages) + 1;
        }
        let mut held = Vec::new();
        while (held.len() as u64) < pages && !scene.is_over(machine.now_ns()) {
            let before = held.len();
            scene.map((pages - before as u64).min(FAULT_PAGES as u64), &mut held);
            let came = (held.len() - before) as u64;
            if came == 0 {
                break;
            }
            scene.machine.compute(came * own.page_compute_ns);
            log.user_ns += came * own.page_compute_ns;
            log.done += came as f64;
        }
        machine.compute(own.think_us * 1_000);
        log.user_ns += own.think_us * 1_000;
        let began_ns = machine.now_ns();
        scene.unmap(held);
        log.frees_ns.push(machine.now_ns() - began_ns);
        if scene.is_over(machine.now_ns()) {
            break;
        }
    }
    let off_ns = machine.run_queue_ns() + machine.lock_waits().since(waits).sleep_ns;
    log.cpu_ns = (machine.now_ns() - began_ns).saturating_sub(off_ns);
}
