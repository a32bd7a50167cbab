//! Work of the kernel's upkeep, on timers of the machine.

use bursar::housekeeping::{self as library, HousekeepingError, Place};
use bursar_machine::{Machine, Shard};
use bursar_rig::timer::Timer;

use super::firing::{Clocked, Firing};
use super::period::Period;

/// Work of upkeep for a CPU. Its parts are called in the order `fold`, `pages`, by one task at a time for each CPU.
/// Only [`Housekeeping::quiet`] may fold at the same time.
pub trait Upkeep: Send + Sync {
    /// Returns whether a fold would change anything. Changes nothing, and does not look at page lists. Those are
    /// handled when there is other work, as in the kernel.
    #[doc(alias = "need_update")]
    fn needs(&self, shard: Shard) -> bool;

    /// Folds small counters; returns whether anything changed.
    fn fold(&self, shard: Shard) -> bool;

    /// Decays page lists and drains remote ones; returns whether there will be work the next time.
    fn pages(&self, shard: Shard) -> bool;
}

/// Both parts of the work, as the library's upkeep has one.
#[derive(Debug)]
struct Both<U>(U);

impl<U: Upkeep> library::Upkeep for Both<U> {
    fn needs(&self, shard: Shard) -> bool {
        self.0.needs(shard)
    }

    fn run(&self, shard: Shard) -> bool {
        let folded = self.0.fold(shard);
        let left = self.0.pages(shard);
        folded || left
    }
}

/// Settings of upkeep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Policy for the times at which each CPU's upkeep fires.
    pub firing: Firing,
    /// Clock of upkeep.
    pub period: Period,
    /// CPUs that are left alone.
    pub isolated: Vec<u32>,
    /// Maximum nanoseconds by which upkeep may come early when its CPU is awake anyway; 0: never early.
    pub slack_ns: u64,
}

impl Options {
    /// Makes upkeep on the default grid, on all CPUs, never ahead of its time.
    pub fn new(period: Period) -> Self {
        Self {
            firing: Firing::default(),
            period,
            isolated: Vec::new(),
            slack_ns: 0,
        }
    }
}

/// Upkeep of all CPUs of a machine: the library's shepherd, with the kernel's work and timers.
#[derive(Debug)]
pub struct Housekeeping<M: Machine, U: Upkeep>(library::Housekeeping<M, Both<U>, Clocked>);

impl<M: Machine, U: Upkeep> Housekeeping<M, U> {
    /// Makes upkeep of the CPUs of `machine`.
    ///
    /// # Errors
    /// [`HousekeepingError`] says which option is invalid.
    pub fn new(machine: &M, upkeep: U, options: Options) -> Result<Self, HousekeepingError> {
        let Options {
            firing,
            period,
            isolated,
            slack_ns,
        } = options;
        let options = library::Options {
            timetable: Clocked { firing, period },
            isolated,
            slack_ns,
        };
        library::Housekeeping::new(machine, Both(upkeep), options).map(Self)
    }

    /// The work of upkeep.
    pub fn upkeep(&self) -> &U {
        &self.0.upkeep().0
    }

    /// Place of a CPU; `None` for a CPU that is left alone.
    pub fn place(&self, shard: Shard) -> Option<Place> {
        self.0.place(shard)
    }

    fn timer(&self, deadline_ns: u64) -> Timer {
        self.0.options().timetable.firing.timer(deadline_ns)
    }

    /// Timer of a CPU's upkeep, if it is queued.
    pub fn due(&self, shard: Shard) -> Option<Timer> {
        self.0.due(shard).map(|due_ns| self.timer(due_ns))
    }

    /// Runs one round of the shepherd. Calls `queue(shard, timer)` for each CPU that it queues; when the timer expires,
    /// call [`Housekeeping::fire`].
    pub fn shepherd(&self, mut queue: impl FnMut(Shard, Timer)) {
        self.0
            .shepherd(|shard, due_ns| queue(shard, self.timer(due_ns)));
    }

    /// Timer of the shepherd's next round.
    pub fn shepherd_timer(&self, now_ns: u64) -> Timer {
        self.timer(self.0.shepherd_due(now_ns))
    }

    /// Runs one CPU's upkeep. Call it when the CPU's timer has expired, and queue the CPU for the timer that it returns.
    pub fn fire(&self, shard: Shard) -> Option<Timer> {
        self.0.fire(shard).map(|due_ns| self.timer(due_ns))
    }

    /// Runs a CPU's upkeep now if it is due within the slack. Returns whether it ran.
    pub fn awake(&self, shard: Shard) -> bool {
        self.0.awake(shard)
    }

    /// Folds a CPU's counters on its way into idleness, without page work. Returns whether anything changed. Queued
    /// upkeep stays queued.
    ///
    /// The kernel does so only while the CPU's upkeep is queued ([`Housekeeping::due`]), and otherwise leaves it to the
    /// shepherd.
    #[doc(alias = "quiet_vmstat")]
    pub fn quiet(&self, shard: Shard) -> bool {
        let upkeep = self.upkeep();
        self.0.is_running(shard) == Some(false) && upkeep.needs(shard) && upkeep.fold(shard)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    use bursar_machine::Host;
    use bursar_rig::timer::TimerKind;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Upkeep of any CPU, with a record of the calls.
    #[derive(Debug, Default)]
    struct Recorded {
        diffs: AtomicU64,
        calls: Mutex<Vec<&'static str>>,
    }

    impl Recorded {
        fn note(&self, call: &'static str) {
            self.calls.lock().expect("no panic").push(call);
        }
    }

    impl Upkeep for Recorded {
        fn needs(&self, _: Shard) -> bool {
            self.diffs.load(Ordering::Relaxed) > 0
        }

        fn fold(&self, _: Shard) -> bool {
            self.note("fold");
            self.diffs.swap(0, Ordering::Relaxed) > 0
        }

        fn pages(&self, _: Shard) -> bool {
            self.note("pages");
            false
        }
    }

    fn housekeeping(firing: Firing, interval_ns: u64) -> Housekeeping<Host, Recorded> {
        let machine = Host::start().expect("a host");
        let options = Options {
            firing,
            ..Options::new(Period::new(interval_ns, 1_000).expect("a period"))
        };
        Housekeeping::new(&machine, Recorded::default(), options).expect("sense")
    }

    #[test]
    fn quiet_folds_and_leaves_pages_and_timers_alone() {
        let housekeeping = housekeeping(Firing::RoundJiffies { skew: 3 }, 3_600 * SECOND_NS);
        let upkeep = housekeeping.upkeep();
        let calls = || std::mem::take(&mut *upkeep.calls.lock().expect("no panic"));
        assert!(!housekeeping.quiet(Shard(0)));
        assert_eq!(calls(), [""; 0]);
        upkeep.diffs.store(1, Ordering::Relaxed);
        let mut queued = Vec::new();
        housekeeping.shepherd(|shard, timer| queued.push((shard, timer)));
        assert!(housekeeping.quiet(Shard(0)));
        assert_eq!(calls(), ["fold"]);
        assert_eq!(housekeeping.due(Shard(0)), Some(queued[0].1));
        assert_eq!(housekeeping.fire(Shard(0)), None, "nothing is left");
        assert_eq!(calls(), ["fold", "pages"]);
        assert!(!housekeeping.quiet(Shard(u32::MAX)));
    }

    #[test]
    fn the_shepherd_comes_once_an_interval() {
        let of = |firing| {
            let timer = housekeeping(firing, SECOND_NS).shepherd_timer(7_400_000_123);
            (timer.kind, timer.deadline_ns)
        };
        let grid = of(Firing::PhaseGrid { exact: true });
        assert_eq!(grid, (TimerKind::Exact, 8 * SECOND_NS));
        let rounded = of(Firing::RoundJiffies { skew: 0 });
        assert_eq!(rounded, (TimerKind::Deferrable, 9 * SECOND_NS));
    }
}
