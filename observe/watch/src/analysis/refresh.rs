//! Calls of `refresh_cpu_vm_stats()` itself, where the kernel permits probes.

use std::collections::BTreeMap;

use crate::event::{Event, Kind};
use crate::seen::{Refresh, RefreshCaller};

/// Calls of all CPUs.
#[derive(Debug, Default)]
pub struct Refreshes {
    /// Task and start of the call that runs on a CPU.
    running: BTreeMap<u32, (i32, u64)>,
    done: Vec<Refresh>,
    left_out: u64,
}

impl Refreshes {
    /// `is_upkeep`: the task of this event runs `vmstat_update`.
    pub fn take(&mut self, event: &Event, is_upkeep: bool) {
        match event.kind {
            Kind::RefreshBegin => {
                self.running.insert(event.cpu, (event.pid, event.time_ns));
            }
            Kind::RefreshEnd => {
                // The function may wait for a lock, and another task may then call it on this CPU.
                let Some((_, start_ns)) =
                    (self.running.remove(&event.cpu)).filter(|(pid, _)| *pid == event.pid)
                else {
                    return;
                };
                let caller = match event.pid {
                    _ if is_upkeep => RefreshCaller::Periodic,
                    0 => RefreshCaller::IdleEntry,
                    _ => RefreshCaller::Other,
                };
                let refresh = Refresh {
                    cpu: event.cpu,
                    caller,
                    start_ns,
                    end_ns: event.time_ns,
                };
                self.left_out += u64::from(!super::list::add(&mut self.done, refresh));
            }
            _ => {}
        }
    }

    /// Events of this CPU are missing.
    pub fn lost(&mut self, cpu: u32) {
        self.running.remove(&cpu);
    }

    pub fn finish(mut self) -> (Vec<Refresh>, u64) {
        self.done
            .sort_by_key(|refresh| (refresh.start_ns, refresh.cpu));
        (self.done, self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Analysis;
    use crate::seen::{Machine, Seen};

    #[test]
    fn periodic_and_idle_calls_are_told_apart() {
        use Kind::{Lost, RefreshBegin, RefreshEnd, WorkEnd, WorkStart};
        let work = 0x1000;
        let events = [
            (10, 7, WorkStart { work }),
            (11, 7, RefreshBegin),
            (15, 7, RefreshEnd),
            (16, 7, WorkEnd { work }),
            (20, 0, RefreshBegin),
            (22, 0, RefreshEnd),
            // As of a read of `stat_refresh`.
            (30, 7, RefreshBegin),
            (33, 7, RefreshEnd),
            (40, 0, RefreshBegin),
            (41, 0, Lost),
            (42, 0, RefreshEnd),
        ];
        let mut analysis = Analysis::new(&Machine::default());
        for (time_ns, pid, kind) in events {
            analysis.take(&Event {
                time_ns,
                cpu: 1,
                pid,
                kind,
            });
        }
        let mut seen = Seen::default();
        analysis.finish(&mut seen);
        let found: Vec<_> = (seen.refreshes.iter())
            .map(|it| (it.caller, it.end_ns - it.start_ns))
            .collect();
        use RefreshCaller::{IdleEntry, Other, Periodic};
        assert_eq!(found, [(Periodic, 4), (IdleEntry, 2), (Other, 3)]);
    }
}
