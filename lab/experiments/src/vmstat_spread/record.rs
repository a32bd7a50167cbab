//! Records of a run in progress, in memory that is not the machine's: recording takes no virtual time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bursar_machine::Shard;
use bursar_rig::timer::{Timer, TimerKind, tick_ns, wheel_expiry};

/// Reason why the refresh was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its timer had expired.
    Periodic,
    /// The CPU was awake for another timer, and its time was near.
    Early,
    /// The CPU was about to be idle.
    Idle,
}

/// Caller that queued the upkeep of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queuer {
    Shepherd,
    /// The call before.
    Itself,
}

/// Time at which a CPU's upkeep should begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// Expiry of its timer.
    pub(super) expires_ns: u64,
    pub(super) queuer: Queuer,
}

/// One call of the refresh. The four parts add up to all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) cpu: u32,
    pub(super) cause: Cause,
    pub(super) due: Due,
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    /// Folding, and all that is in no other part.
    pub(super) fold_ns: u64,
    /// Work on page lists, without waiting.
    pub(super) pages_ns: u64,
    /// Waiting for locks of page lists and of the zone.
    pub(super) lock_wait_ns: u64,
    /// Waiting for the CPU.
    pub(super) run_queue_ns: u64,
}

/// Length of a call, and the known lengths of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spans {
    /// From begin to end of the part that is about pages.
    pub(super) pages_ns: u64,
    pub(super) lock_wait_ns: u64,
    pub(super) run_queue_ns: u64,
}

impl Call {
    /// Divides a call's time. A wait for the CPU counts as part of the page work, which is by far the longer part. Time
    /// that two clocks report counts once.
    pub(super) fn new(
        (cpu, cause, due): (u32, Cause, Due),
        (began_ns, ended_ns): (u64, u64),
        spans: Spans,
    ) -> Self {
        let all_ns = ended_ns - began_ns;
        let run_queue_ns = spans.run_queue_ns.min(all_ns);
        let lock_wait_ns = spans.lock_wait_ns.min(all_ns - run_queue_ns);
        let waits_ns = run_queue_ns + lock_wait_ns;
        let pages_ns = spans.pages_ns.min(all_ns).saturating_sub(waits_ns);
        Self {
            cpu,
            cause,
            due,
            began_ns,
            ended_ns,
            fold_ns: all_ns - waits_ns - pages_ns,
            pages_ns,
            lock_wait_ns,
            run_queue_ns,
        }
    }

    pub(super) fn all_ns(&self) -> u64 {
        self.ended_ns - self.began_ns
    }
}

/// Records of one CPU.
#[derive(Debug, Default)]
struct OfCpu {
    calls: Vec<Call>,
    due: Option<Due>,
    spans: Spans,
    /// Expiries of other timers of the CPU.
    others_ns: Vec<u64>,
    /// Times at which a timer found its work done early.
    in_vain_ns: Vec<u64>,
}

/// All records of one CPU.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) calls: Vec<Call>,
    pub(super) others_ns: Vec<u64>,
    pub(super) in_vain_ns: Vec<u64>,
}

/// Records of all CPUs.
#[derive(Debug)]
pub(super) struct Record {
    hz: u32,
    cpus: Vec<Mutex<OfCpu>>,
}

/// Returns the expiry of a timer that is set at `now_ns`.
pub fn expiry_ns(timer: Timer, hz: u32, now_ns: u64) -> u64 {
    if timer.kind == TimerKind::Exact || timer.deadline_ns <= now_ns {
        return timer.deadline_ns.max(now_ns);
    }
    let tick_ns = tick_ns(hz);
    wheel_expiry(now_ns / tick_ns, timer.deadline_ns.div_ceil(tick_ns)) * tick_ns
}

impl Record {
    pub(super) fn new(hz: u32, cpus: usize) -> Self {
        let cpus = (0..cpus).map(|_| Mutex::default()).collect();
        Self { hz, cpus }
    }

    /// Records that upkeep was queued at `now_ns`.
    pub(super) fn queued(&self, shard: Shard, timer: Timer, queuer: Queuer, now_ns: u64) {
        let expires_ns = expiry_ns(timer, self.hz, now_ns);
        self.of(shard).due = Some(Due { expires_ns, queuer });
    }

    /// Returns the time at which the queued upkeep is due; `now_ns` if none was recorded.
    pub(super) fn due(&self, shard: Shard, now_ns: u64) -> Due {
        self.of(shard).due.unwrap_or(Due {
            expires_ns: now_ns,
            queuer: Queuer::Shepherd,
        })
    }

    /// Records the length of page work within the current call.
    pub(super) fn note_pages(&self, shard: Shard, pages_ns: u64, lock_wait_ns: u64) {
        let spans = &mut self.of(shard).spans;
        spans.pages_ns += pages_ns;
        spans.lock_wait_ns += lock_wait_ns;
    }

    /// Takes the lengths recorded within the call that has ended.
    pub(super) fn take_spans(&self, shard: Shard) -> Spans {
        std::mem::take(&mut self.of(shard).spans)
    }

    pub(super) fn called(&self, call: Call) {
        self.of(Shard(call.cpu)).calls.push(call);
    }

    /// Records that another timer of the CPU has expired.
    pub(super) fn other(&self, shard: Shard, expires_ns: u64) {
        self.of(shard).others_ns.push(expires_ns);
    }

    /// Records that a timer has found nothing to do.
    pub(super) fn in_vain(&self, shard: Shard, now_ns: u64) {
        self.of(shard).in_vain_ns.push(now_ns);
    }

    /// Returns the records by CPU.
    pub(super) fn into_parts(self) -> Vec<Part> {
        let part = |cpu: Mutex<OfCpu>| {
            let cpu = cpu.into_inner().unwrap_or_else(PoisonError::into_inner);
            Part {
                calls: cpu.calls,
                others_ns: cpu.others_ns,
                in_vain_ns: cpu.in_vain_ns,
            }
        };
        self.cpus.into_iter().map(part).collect()
    }

    fn of(&self, shard: Shard) -> MutexGuard<'_, OfCpu> {
        let cpu = &self.cpus[shard.index() % self.cpus.len()];
        cpu.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_call_are_all_of_it() {
        let due = Due {
            expires_ns: 5,
            queuer: Queuer::Itself,
        };
        for (pages_ns, lock_wait_ns, run_queue_ns) in [
            (0, 0, 0),
            (60, 20, 0),
            (60, 20, 30),
            (60, 50, 30),
            (200, 300, 400),
            (0, 0, 90),
        ] {
            let spans = Spans {
                pages_ns,
                lock_wait_ns,
                run_queue_ns,
            };
            let call = Call::new((0, Cause::Periodic, due), (10, 110), spans);
            let parts = call.fold_ns + call.pages_ns + call.lock_wait_ns + call.run_queue_ns;
            assert_eq!(parts, 100, "{spans:?}");
        }
        let spans = Spans {
            pages_ns: 60,
            lock_wait_ns: 20,
            run_queue_ns: 10,
        };
        let call = Call::new((0, Cause::Periodic, due), (10, 110), spans);
        assert_eq!((call.fold_ns, call.pages_ns), (40, 30));
    }

    #[test]
    fn expiries_are_those_of_the_wheel_unless_exact() {
        let timer = |kind, deadline_ns| Timer { kind, deadline_ns };
        let second = 1_000_000_000;
        let deferrable = timer(TimerKind::Deferrable, second);
        assert_eq!(expiry_ns(deferrable, 1000, 0), 1_024_000_000);
        assert_eq!(expiry_ns(timer(TimerKind::Exact, second), 1000, 0), second);
        assert_eq!(
            expiry_ns(deferrable, 1000, 2 * second),
            2 * second,
            "at once"
        );
    }
}
