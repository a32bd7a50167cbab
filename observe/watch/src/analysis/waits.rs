//! Waits for spin locks, and the addresses that are zones' locks.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Event, Kind};
use crate::seen::{LockKind, Wait};

/// Waits of all tasks.
#[derive(Debug, Default)]
pub struct Waits {
    /// Waits that have not ended, innermost last: an interrupt may wait while its task does.
    open: BTreeMap<u32, Vec<Wait>>,
    zone_locks: BTreeSet<u64>,
    /// Addresses of locks of which a stack was taken.
    named: BTreeSet<u64>,
    /// Time at which a CPU got the lock of a zone that says so itself.
    done: Vec<Wait>,
    left_out: u64,
}

/// Waits that a CPU can be in at once: a task, a softirq, an interrupt, an NMI.
const NESTED: usize = 4;

impl Waits {
    /// Whether a stack has shown that this is a zone's lock.
    pub fn is_zone_lock(&self, address: u64) -> bool {
        self.zone_locks.contains(&address)
    }

    pub fn take(&mut self, event: &Event) {
        match event.kind {
            Kind::ContentionBegin { lock_addr } => {
                let open = self.open.entry(event.cpu).or_default();
                if open.len() == NESTED {
                    open.remove(0);
                }
                open.push(Wait {
                    cpu: event.cpu,
                    pid: event.pid,
                    lock: LockKind::Other,
                    address: lock_addr,
                    start_ns: event.time_ns,
                    end_ns: 0,
                });
            }
            Kind::Stack { names_zone_lock } => {
                let open = self.open.entry(event.cpu).or_default();
                if let Some(wait) = open.last_mut() {
                    // The waiter took its stack before it began to wait, which takes longer than most waits.
                    wait.start_ns = event.time_ns;
                    self.named.insert(wait.address);
                    if names_zone_lock {
                        self.zone_locks.insert(wait.address);
                    }
                }
            }
            Kind::ContentionEnd { lock_addr } => {
                let open = self.open.entry(event.cpu).or_default();
                let Some(place) = open.iter().rposition(|wait| wait.address == lock_addr) else {
                    return;
                };
                let wait = Wait {
                    end_ns: event.time_ns,
                    ..open[place]
                };
                open.truncate(place);
                self.add(wait);
            }
            Kind::ZoneLocked {
                wait_ns: Some(wait_ns),
                ..
            } if wait_ns > 0 => self.add(Wait {
                cpu: event.cpu,
                pid: event.pid,
                lock: LockKind::Zone,
                address: 0,
                start_ns: event.time_ns.saturating_sub(wait_ns),
                end_ns: event.time_ns,
            }),
            _ => {}
        }
    }

    /// Events of this CPU are missing.
    pub fn lost(&mut self, cpu: u32) {
        self.open.remove(&cpu);
    }

    fn add(&mut self, wait: Wait) {
        if !super::list::add(&mut self.done, wait) {
            self.left_out += 1;
        }
    }

    /// All waits, those for zones' locks with their kind, and the number of those whose lock no stack named.
    pub fn finish(mut self) -> (Vec<Wait>, usize, u64) {
        for wait in &mut self.done {
            if self.zone_locks.contains(&wait.address) {
                wait.lock = LockKind::Zone;
            }
        }
        self.done.sort_by_key(|wait| (wait.start_ns, wait.cpu));
        let others = self.done.iter().filter(|wait| wait.lock == LockKind::Other);
        let unnamed = others.filter(|wait| !self.named.contains(&wait.address));
        let unnamed = unnamed.count();
        (self.done, unnamed, self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_names_all_waits_for_its_lock() {
        let mut waits = Waits::default();
        let begin = |lock_addr| Kind::ContentionBegin { lock_addr };
        let end = |lock_addr| Kind::ContentionEnd { lock_addr };
        let stack = |names_zone_lock| Kind::Stack { names_zone_lock };
        for (time_ns, cpu, kind) in [
            (10, 0, begin(1)),
            (15, 0, end(1)),
            (20, 1, begin(2)),
            (22, 1, stack(false)),
            (30, 0, begin(1)),
            (34, 0, stack(true)),
            // An interrupt waits meanwhile.
            (35, 0, begin(3)),
            (36, 0, end(3)),
            (39, 0, end(1)),
            (40, 1, end(2)),
            (50, 1, end(4)),
        ] {
            waits.take(&Event {
                time_ns,
                cpu,
                pid: 1,
                kind,
            });
        }
        let (seen, unnamed, _) = waits.finish();
        // The interrupt's.
        assert_eq!(unnamed, 1);
        let seen: Vec<_> = seen
            .iter()
            .map(|it| (it.address, it.lock, it.end_ns - it.start_ns))
            .collect();
        use LockKind::{Other, Zone};
        assert_eq!(
            seen,
            [(1, Zone, 5), (2, Other, 18), (1, Zone, 5), (3, Other, 1)]
        );
    }
}
