//! Work that threads do: upkeep, reclaim, the end of a process. Pages that move meanwhile belong to it.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Event, Kind};
use crate::seen::Context;

/// A process that ends gives its pages back within this time (judgement). A number of a thread may be used again later.
const EXIT_NS: u64 = 10_000_000_000;
/// Least number of ended threads before old ones are forgotten.
const EXITS_MIN: usize = 4_096;

/// Work of all threads.
#[derive(Debug, Default)]
pub struct Contexts {
    reclaiming: BTreeSet<i32>,
    /// Threads that end, and since when.
    exiting: BTreeMap<i32, u64>,
    /// Half the number of ended threads at which old ones are forgotten next, so that the search costs each exit a constant.
    exits_kept: usize,
}

impl Contexts {
    pub fn take(&mut self, event: &Event) {
        match event.kind {
            Kind::ReclaimBegin => {
                self.reclaiming.insert(event.pid);
            }
            Kind::ReclaimEnd => {
                self.reclaiming.remove(&event.pid);
            }
            Kind::Exit => {
                self.reclaiming.remove(&event.pid);
                if self.exiting.len() >= EXITS_MIN.max(2 * self.exits_kept) {
                    let is_new = |since: u64| event.time_ns.saturating_sub(since) <= EXIT_NS;
                    self.exiting.retain(|_, since| is_new(*since));
                    self.exits_kept = self.exiting.len();
                }
                self.exiting.insert(event.pid, event.time_ns);
            }
            // The end of a reclaim may be among them.
            Kind::Lost => self.reclaiming.clear(),
            _ => {}
        }
    }

    /// Work of an event's thread, beside upkeep.
    pub fn of(&self, event: &Event) -> Context {
        let since = self.exiting.get(&event.pid);
        if self.reclaiming.contains(&event.pid) {
            Context::DirectReclaim
        } else if since.is_some_and(|since| event.time_ns.saturating_sub(*since) <= EXIT_NS) {
            Context::Exit
        } else {
            Context::Task
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reclaim_lasts_to_its_end_and_an_exit_for_some_time() {
        use Context::{DirectReclaim, Exit, Task};
        let mut contexts = Contexts::default();
        let at = |time_ns, pid, kind| Event {
            time_ns,
            cpu: 0,
            pid,
            kind,
        };
        let page = Kind::PcpuDrain { pfn: 0, order: 0 };
        let late = 40 + EXIT_NS + 1;
        for (time_ns, pid, kind, context) in [
            (10, 1, Kind::ReclaimBegin, DirectReclaim),
            (11, 2, page, Task),
            (12, 1, page, DirectReclaim),
            (20, 1, Kind::ReclaimEnd, Task),
            (40, 1, Kind::Exit, Exit),
            (41, 1, page, Exit),
            (50, 3, Kind::ReclaimBegin, DirectReclaim),
            (60, 0, Kind::Lost, Task),
            (61, 3, page, Task),
            (late, 1, page, Task),
        ] {
            let event = at(time_ns, pid, kind);
            contexts.take(&event);
            assert_eq!(contexts.of(&event), context, "{time_ns}");
        }
    }

    #[test]
    fn threads_that_ended_long_ago_are_forgotten() {
        let mut contexts = Contexts::default();
        let mut exit = |pid, time_ns| {
            contexts.take(&Event {
                time_ns,
                cpu: 0,
                pid,
                kind: Kind::Exit,
            });
            contexts.exiting.len()
        };
        let few = EXITS_MIN as i32;
        let kept = (0..3 * few).map(|pid| exit(pid, 1)).max();
        assert_eq!(kept, Some(3 * EXITS_MIN), "none of these is old");
        let kept = (0..2 * few).map(|pid| exit(4 * few + pid, 2 + EXIT_NS));
        assert!(kept.min() < Some(2 * EXITS_MIN), "all before are old");
    }
}
