//! Requests to fold the statistics of a cgroup, each with its waits for the lock and its holds.
//!
//! Recent kernels take the lock once for each CPU; older ones once, and release it where others wait. The events name the CPU
//! whose updates are folded, so a smaller number begins another flush.

use std::collections::BTreeMap;

use crate::event::{Event, Kind};
use crate::seen::Flush;

/// A flush whose task has done nothing for this long has ended.
const IDLE_NS: u64 = 2_000_000_000;
/// Number of open flushes from which on ended ones are looked for.
const OPEN: usize = 256;

#[derive(Debug)]
struct Open {
    flush: Flush,
    /// CPU that was folded last.
    folded: Option<i32>,
    waiting_since: Option<u64>,
    held_since: Option<u64>,
}

/// Flushes of all tasks.
#[derive(Debug, Default)]
pub struct Flushes {
    open: BTreeMap<i32, Open>,
    done: Vec<Flush>,
    left_out: u64,
}

impl Flushes {
    pub fn take(&mut self, event: &Event) {
        let now = event.time_ns;
        match event.kind {
            Kind::MemcgFlush {
                id,
                stats_updates,
                force,
                needs_flush,
            } => {
                let open = self.begin(event, id);
                open.flush.skipped = Some(!force && !needs_flush);
                open.flush.forced = Some(force);
                open.flush.pending = Some(stats_updates);
            }
            Kind::RstatContended { id, cpu } => self.of(event, id, cpu).waiting_since = Some(now),
            Kind::RstatLocked { id, cpu, .. } => {
                let open = self.of(event, id, cpu);
                if let Some(since) = open.waiting_since.take() {
                    open.flush.wait_ns += now.saturating_sub(since);
                }
                open.held_since = Some(now);
            }
            Kind::RstatUnlock { cpu, .. } => {
                if let Some(open) = self.open.get_mut(&event.pid)
                    && let Some(since) = open.held_since.take()
                {
                    let held = now.saturating_sub(since);
                    open.flush.held_ns += held;
                    open.flush.held_ns_max = open.flush.held_ns_max.max(Some(held));
                    open.flush.holds += 1;
                    open.flush.end_ns = now;
                    open.folded = Some(cpu);
                }
            }
            _ => {}
        }
    }

    /// The flush that this task is in, or a new one.
    fn of(&mut self, event: &Event, id: u64, cpu: i32) -> &mut Open {
        let goes_on = self.open.get(&event.pid).is_some_and(|open| {
            let is_next = open
                .folded
                .is_none_or(|folded| cpu > folded || cpu == folded && cpu > 0);
            let is_same =
                open.waiting_since.is_some() || is_next && open.flush.skipped != Some(true);
            open.flush.cgroup == id && is_same
        });
        match goes_on {
            true => self
                .open
                .entry(event.pid)
                .or_insert_with(|| opened(event, id)),
            false => self.begin(event, id),
        }
    }

    /// Events are missing. Waits and holds may have ended meanwhile, also those of tasks that went to another CPU.
    pub fn lost(&mut self) {
        for open in self.open.values_mut() {
            open.waiting_since = None;
            open.held_since = None;
        }
    }

    /// Tasks of the flushes that are open.
    pub fn pids(&self) -> impl Iterator<Item = i32> {
        self.open.keys().copied()
    }

    fn begin(&mut self, event: &Event, id: u64) -> &mut Open {
        if self.open.len() >= OPEN {
            self.close_before(event.time_ns.saturating_sub(IDLE_NS));
        }
        if let Some(open) = self.open.remove(&event.pid) {
            self.close(open);
        }
        self.open
            .entry(event.pid)
            .or_insert_with(|| opened(event, id))
    }

    fn close(&mut self, open: Open) {
        if !super::list::add(&mut self.done, open.flush) {
            self.left_out += 1;
        }
    }

    fn close_before(&mut self, time_ns: u64) {
        let ended = |open: &Open| open.flush.end_ns < time_ns && open.waiting_since.is_none();
        let ended: Vec<_> = self
            .open
            .iter()
            .filter(|(_, open)| ended(open))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in ended {
            if let Some(open) = self.open.remove(&pid) {
                self.close(open);
            }
        }
    }

    pub fn finish(mut self) -> (Vec<Flush>, u64) {
        for open in std::mem::take(&mut self.open).into_values() {
            self.close(open);
        }
        self.done.sort_by_key(|flush| (flush.start_ns, flush.cpu));
        (self.done, self.left_out)
    }
}

fn opened(event: &Event, id: u64) -> Open {
    Open {
        flush: Flush {
            cgroup: id,
            cpu: event.cpu,
            pid: event.pid,
            start_ns: event.time_ns,
            end_ns: event.time_ns,
            ..Flush::default()
        },
        folded: None,
        waiting_since: None,
        held_since: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flushes(kinds: &[(u64, i32, Kind)]) -> Vec<Flush> {
        let mut flushes = Flushes::default();
        for &(time_ns, pid, kind) in kinds {
            flushes.take(&Event {
                time_ns,
                cpu: 0,
                pid,
                kind,
            });
        }
        flushes.finish().0
    }

    fn request(force: bool, needs_flush: bool) -> Kind {
        Kind::MemcgFlush {
            id: 9,
            stats_updates: 130,
            force,
            needs_flush,
        }
    }

    fn locked(cpu: i32) -> Kind {
        Kind::RstatLocked {
            id: 9,
            cpu,
            contended: None,
        }
    }

    fn unlock(cpu: i32) -> Kind {
        Kind::RstatUnlock { id: 9, cpu }
    }

    #[test]
    fn a_flush_has_the_holds_of_all_cpus() {
        let seen = flushes(&[
            (10, 5, request(true, false)),
            (11, 5, locked(0)),
            // Another task waits and gets the lock between.
            (12, 6, Kind::RstatContended { id: 9, cpu: 0 }),
            (20, 5, unlock(0)),
            (21, 6, locked(0)),
            (25, 6, unlock(0)),
            (30, 5, locked(1)),
            (45, 5, unlock(1)),
            // A second flush without a request, as of cpu.stat.
            (60, 5, locked(0)),
            (61, 5, unlock(0)),
        ]);
        assert_eq!(seen.len(), 3);
        let [first, waited, second] = [seen[0], seen[1], seen[2]];
        assert_eq!(
            (first.holds, first.held_ns, first.held_ns_max),
            (2, 24, Some(15))
        );
        assert_eq!((first.forced, first.pending), (Some(true), Some(130)));
        assert_eq!((waited.pid, waited.wait_ns, waited.held_ns), (6, 9, 4));
        assert_eq!((second.holds, second.skipped), (1, None));
    }

    #[test]
    fn a_skipped_request_has_no_hold() {
        let seen = flushes(&[
            (10, 5, request(false, false)),
            (20, 5, locked(0)),
            (30, 5, unlock(0)),
            (40, 5, request(false, true)),
        ]);
        let skipped: Vec<_> = seen.iter().map(|it| (it.skipped, it.holds)).collect();
        assert_eq!(skipped, [(Some(true), 0), (None, 1), (Some(false), 0)]);
    }

    /// A wait for one cgroup's lock, and a hold of another's.
    fn crossed() -> [(u64, i32, Kind); 3] {
        let (id, cpu, contended) = (8, 0, None);
        [
            (10, 5, Kind::RstatContended { id: 9, cpu }),
            (30, 5, Kind::RstatLocked { id, cpu, contended }),
            (35, 5, Kind::RstatUnlock { id, cpu }),
        ]
    }

    #[test]
    fn a_wait_for_the_lock_of_another_cgroup_is_another_flush() {
        let times = flushes(&crossed());
        let times = times.iter().map(|it| (it.cgroup, it.wait_ns, it.held_ns));
        assert_eq!(times.collect::<Vec<_>>(), [(9, 0, 0), (8, 0, 5)]);
    }

    #[test]
    fn a_loss_makes_no_times() {
        let mut seen = Flushes::default();
        for (time_ns, pid, kind) in crossed() {
            seen.take(&Event {
                time_ns,
                cpu: 0,
                pid,
                kind,
            });
            seen.lost();
        }
        let times = seen.finish().0;
        let times = times.iter().map(|it| (it.cgroup, it.time_ns()));
        assert_eq!(times.collect::<Vec<_>>(), [(9, 0), (8, 0)]);
    }
}
