//! Waits for spin locks, and the addresses that are zones' locks.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Event, Kind};
use crate::seen::{ITEMS, LockKind, Wait};

/// Waits of all tasks.
#[derive(Debug, Default)]
pub struct Waits {
    /// Waits that have not ended, innermost last: an interrupt may wait while its task does.
    open: BTreeMap<u32, Vec<Wait>>,
    zone_locks: BTreeSet<u64>,
    /// Addresses of locks of which a stack was taken.
    named: BTreeSet<u64>,
    /// Waits that ended, for zones' locks and for others. Together they have a bound.
    of_zones: Vec<Wait>,
    done: Vec<Wait>,
    left_out: u64,
}

/// The waits, once all events were taken.
pub struct Found {
    pub waits: Vec<Wait>,
    /// Waits whose lock no stack named, and their time.
    pub unnamed: usize,
    pub unnamed_ns: u64,
    pub left_out: u64,
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

    /// Adds a wait. Where the lists are full, one for a zone's lock takes the place of another.
    fn add(&mut self, wait: Wait) {
        let is_of_zone = wait.lock == LockKind::Zone || self.is_zone_lock(wait.address);
        if self.of_zones.len() + self.done.len() >= ITEMS {
            self.left_out += 1;
            if !is_of_zone || self.done.pop().is_none() {
                return;
            }
        }
        match is_of_zone {
            true => self.of_zones.push(wait),
            false => self.done.push(wait),
        }
    }

    /// All waits, those for zones' locks with their kind.
    pub fn finish(mut self) -> Found {
        let mut waits = self.of_zones;
        waits.append(&mut self.done);
        let (mut unnamed, mut unnamed_ns) = (0, 0_u64);
        for wait in &mut waits {
            if self.zone_locks.contains(&wait.address) {
                wait.lock = LockKind::Zone;
            } else if wait.lock == LockKind::Other && !self.named.contains(&wait.address) {
                unnamed += 1;
                unnamed_ns = unnamed_ns.saturating_add(wait.end_ns.saturating_sub(wait.start_ns));
            }
        }
        waits.sort_by_key(|wait| (wait.start_ns, wait.cpu));
        Found {
            waits,
            unnamed,
            unnamed_ns,
            left_out: self.left_out,
        }
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
        let found = waits.finish();
        // The interrupt's.
        assert_eq!((found.unnamed, found.unnamed_ns), (1, 1));
        let seen: Vec<_> = found
            .waits
            .iter()
            .map(|it| (it.address, it.lock, it.end_ns - it.start_ns))
            .collect();
        use LockKind::{Other, Zone};
        assert_eq!(
            seen,
            [(1, Zone, 5), (2, Other, 18), (1, Zone, 5), (3, Other, 1)]
        );
    }

    #[test]
    fn a_full_list_leaves_room_for_waits_for_zones() {
        let mut waits = Waits::default();
        let mut wait = |address, count| {
            for time_ns in 0..count {
                let at = |kind| Event {
                    time_ns,
                    cpu: 0,
                    pid: 1,
                    kind,
                };
                waits.take(&at(Kind::ContentionBegin { lock_addr: address }));
                let names_zone_lock = address == 1;
                waits.take(&at(Kind::Stack { names_zone_lock }));
                waits.take(&at(Kind::ContentionEnd { lock_addr: address }));
            }
        };
        wait(2, ITEMS as u64);
        wait(1, 5);
        wait(2, 3);
        let found = waits.finish();
        let of_zones = found.waits.iter().filter(|it| it.lock == LockKind::Zone);
        assert_eq!(of_zones.count(), 5);
        assert_eq!((found.waits.len(), found.left_out), (ITEMS, 8));
    }
}
