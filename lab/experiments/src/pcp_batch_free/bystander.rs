//! Bystanders: tasks that take or free a few pages now and then, on CPUs that are otherwise idle. Their waits are the
//! damage that tasks do which free many pages.
//!
//! One of a pair takes pages and the other frees them, as in any flow from one CPU to another. A CPU that did both
//! would soon find all it needs on its own lists, and would never wait.

use bursar_rig::timer::Timers;

use super::scene::{Log, Scene};
use crate::page_allocators::Lists;

const ROLE: u64 = 1;

pub(super) fn stand_by<M: Timers, S: Lists<M>>(scene: &Scene<'_, M, S>, index: u64, log: &mut Log) {
    let Scene {
        machine, subject, ..
    } = scene;
    let count = scene.parameters.bystander_pages as usize;
    let think_ns = scene.parameters.think_us * 1_000;
    let mut random = scene.random(ROLE, index);
    let (pair, takes) = (index / 2, index.is_multiple_of(2));
    loop {
        let now_ns = machine.now_ns();
        if scene.is_over(now_ns) {
            return;
        }
        machine.sleep_until(now_ns + think_ns / 2 + random.below(think_ns.max(1)));
        let gone = if takes {
            Vec::new()
        } else {
            scene.collect(pair, count)
        };
        if !takes && gone.is_empty() {
            continue;
        }
        let before = machine.lock_waits();
        let began_ns = machine.now_ns();
        let mut taken = Vec::with_capacity(count);
        if takes {
            subject.alloc(count, &mut taken);
            log.bystander_pages += taken.len() as u64;
        } else {
            log.bystander_pages += gone.len() as u64;
            gone.into_iter().for_each(|page| subject.free(page));
        }
        log.operations_ns.push(machine.now_ns() - began_ns);
        let waits = subject.waits(machine.lock_waits().since(before));
        if takes {
            log.alloc_waits.push(waits);
            scene.post(pair, taken);
        } else {
            log.free_waits.push(waits);
        }
    }
}
