//! Work of the kernel's upkeep, on timers of the machine.

use bursar::housekeeping::{self as library, HousekeepingError, Options, Place, Timetable};
use bursar_machine::{AtomicWord, Machine, MemoryOrder, Shard};
use bursar_rig::timer::Timer;

use super::firing::Clocked;
use crate::Padded;

/// Work of upkeep for a CPU. Its parts are called in the order `fold`, `pages`, `fold_rest`, by one task at a time for each
/// CPU. Only [`Housekeeping::quiet`] may fold at the same time.
pub trait Upkeep: Send + Sync {
    /// Returns whether a fold would change anything. Changes nothing, and does not look at page lists. Those are
    /// handled when there is other work, as in the kernel.
    #[doc(alias = "need_update")]
    fn needs(&self, shard: Shard) -> bool;

    /// Folds small counters; returns whether anything changed.
    fn fold(&self, shard: Shard) -> bool;

    /// Decays page lists and drains remote ones; returns whether there will be work the next time.
    fn pages(&self, shard: Shard) -> bool;

    /// Folds the counters whose turn is after the page lists: those of nodes, in the kernel. Returns whether anything
    /// changed.
    fn fold_rest(&self, _shard: Shard) -> bool {
        false
    }
}

/// Treatment of upkeep that runs when the shepherd finds work for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shepherd {
    /// The shepherd leaves it alone, as since *fix vmstat_shepherd double-scheduling vmstat_update* (April 2026).
    #[default]
    Repaired,
    /// The shepherd queues it once more, because work that runs is not pending. The call under way then does not queue
    /// itself.
    BeforeRepair,
}

/// All parts of the work, as the library's upkeep has one.
struct All<M: Machine, U> {
    work: U,
    /// By CPU: whether the shepherd has queued upkeep that runs.
    is_queued_twice: Box<[Padded<M::Word>]>,
}

impl<M: Machine, U: Upkeep> All<M, U> {
    /// Whether the shepherd has queued a CPU's upkeep once more.
    fn is_queued_twice(&self, shard: Shard) -> bool {
        let word = &self.is_queued_twice[shard.index()].0;
        // Relaxed: the queue orders the calls; the word guards no data.
        word.load(MemoryOrder::Relaxed) > 0
    }

    fn set_queued_twice(&self, shard: Shard, is_twice: bool) {
        let word = &self.is_queued_twice[shard.index()].0;
        // Relaxed: see `is_queued_twice`.
        word.store(u64::from(is_twice), MemoryOrder::Relaxed);
    }

    fn run_parts(&self, shard: Shard) -> bool {
        let folded = self.work.fold(shard);
        let left = self.work.pages(shard);
        let folded_rest = self.work.fold_rest(shard);
        folded || left || folded_rest
    }
}

impl<M: Machine, U: Upkeep> library::Upkeep for All<M, U> {
    fn needs(&self, shard: Shard) -> bool {
        self.work.needs(shard)
    }

    fn run(&self, shard: Shard) -> bool {
        // Upkeep that is queued twice stays queued, whatever it found.
        self.run_parts(shard) || self.is_queued_twice(shard)
    }
}

/// Upkeep of all CPUs of a machine: the library's shepherd, with the kernel's work and timers.
pub struct Housekeeping<M: Machine, U: Upkeep> {
    library: library::Housekeeping<M, All<M, U>, Clocked>,
    machine: M,
    shepherd: Shepherd,
}

impl<M: Machine, U: Upkeep> Housekeeping<M, U> {
    /// Makes upkeep of the CPUs of `machine`.
    ///
    /// # Errors
    /// [`HousekeepingError`] says which option is invalid.
    pub fn new(
        machine: &M,
        upkeep: U,
        options: Options<Clocked>,
    ) -> Result<Self, HousekeepingError> {
        let word = |_| Padded(M::Word::new(0));
        let all = All {
            work: upkeep,
            is_queued_twice: (0..=machine.cpus()).map(word).collect(),
        };
        Ok(Self {
            library: library::Housekeeping::new(machine, all, options)?,
            machine: machine.clone(),
            shepherd: Shepherd::default(),
        })
    }

    /// Sets how the shepherd treats upkeep that runs.
    #[must_use]
    pub fn with_shepherd(self, shepherd: Shepherd) -> Self {
        Self { shepherd, ..self }
    }

    /// The work of upkeep.
    pub fn upkeep(&self) -> &U {
        &self.library.upkeep().work
    }

    fn timer(&self, deadline_ns: u64) -> Timer {
        self.library.options().timetable.firing.timer(deadline_ns)
    }

    /// Timer of a CPU's upkeep, if it is queued.
    pub fn due(&self, shard: Shard) -> Option<Timer> {
        self.library.due(shard).map(|due_ns| self.timer(due_ns))
    }

    /// Runs one round of the shepherd. Calls `queue(shard, timer)` for each CPU that it queues; when the timer expires,
    /// call [`Housekeeping::fire`].
    pub fn shepherd(&self, mut queue: impl FnMut(Shard, Timer)) {
        let mut queued = vec![false; self.machine.cpus()];
        self.library.shepherd(|shard, due_ns| {
            queued[shard.index()] = true;
            queue(shard, self.timer(due_ns));
        });
        // Upkeep that runs ahead of its time has its timer still set, so it is pending.
        let has_slack = self.library.options().slack_ns > 0;
        if self.shepherd == Shepherd::Repaired || has_slack {
            return;
        }
        let all = self.library.upkeep();
        for (shard, _) in (0..).map(Shard).zip(queued).filter(|(_, queued)| !queued) {
            let runs = self.library.is_running(shard) == Some(true);
            if runs && all.work.needs(shard) && !all.is_queued_twice(shard) {
                all.set_queued_twice(shard, true);
                let timetable = self.library.options().timetable;
                let now_ns = self.machine.now_ns();
                queue(shard, timetable.first_timer(self.place(shard), now_ns));
            }
        }
    }

    /// Place of a CPU that takes part.
    fn place(&self, shard: Shard) -> Place {
        let isolated = &self.library.options().isolated;
        let before = isolated.iter().filter(|&&cpu| cpu < shard.0).count() as u32;
        Place {
            cpu: shard.0,
            rank: shard.0 - before,
            of: (self.machine.cpus() - isolated.len()) as u32,
        }
    }

    /// Timer of the shepherd's next round.
    pub fn shepherd_timer(&self, now_ns: u64) -> Timer {
        self.timer(self.library.shepherd_due(now_ns))
    }

    /// Returns whether a timer that expires at `now_ns` finds its work done early.
    pub fn is_done(&self, shard: Shard, now_ns: u64) -> bool {
        let due = self.due(shard);
        let is_ahead = due.is_some_and(|timer| timer.deadline_ns > now_ns);
        is_ahead && !self.library.upkeep().is_queued_twice(shard)
    }

    /// Runs one CPU's upkeep. Call it when the CPU's timer has expired, and queue the CPU for the timer that it returns.
    pub fn fire(&self, shard: Shard) -> Option<Timer> {
        let all = self.library.upkeep();
        if all.is_queued_twice(shard) && self.due(shard).is_some() {
            // The second of two calls. The state is already that of the next one.
            all.set_queued_twice(shard, false);
            all.run_parts(shard);
            let timetable = self.library.options().timetable;
            let next_ns = timetable.next(self.place(shard), self.machine.now_ns());
            return Some(self.timer(next_ns));
        }
        let due_ns = self.library.fire(shard)?;
        // Work that is pending already is not queued again.
        (!all.is_queued_twice(shard)).then(|| self.timer(due_ns))
    }

    /// Runs a CPU's upkeep now if it is due within the slack. Returns whether it ran.
    pub fn awake(&self, shard: Shard) -> bool {
        self.library.awake(shard)
    }

    /// Folds a CPU's counters on its way into idleness, without page work. Returns whether anything changed. Queued
    /// upkeep stays queued.
    ///
    /// The kernel does so only while the CPU's upkeep is queued ([`Housekeeping::due`]), and otherwise leaves it to the
    /// shepherd.
    #[doc(alias = "quiet_vmstat")]
    pub fn quiet(&self, shard: Shard) -> bool {
        let upkeep = self.upkeep();
        if self.library.is_running(shard) != Some(false) || !upkeep.needs(shard) {
            return false;
        }
        let folded = upkeep.fold(shard);
        upkeep.fold_rest(shard) || folded
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    use bursar_machine::Host;
    use bursar_rig::timer::TimerKind;

    use super::super::{Firing, Period};
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
        let period = Period::new(interval_ns, 1_000).expect("a period");
        let options = Options::new(Clocked::new(firing, period));
        Housekeeping::new(&machine, Recorded::default(), options).expect("sense")
    }

    /// Work during which the shepherd comes round once.
    struct Visited {
        shepherd: Mutex<Option<Visit>>,
        calls: AtomicU64,
    }

    type Visit = Box<dyn FnOnce() + Send>;

    impl Upkeep for Visited {
        fn needs(&self, _: Shard) -> bool {
            true
        }

        fn fold(&self, _: Shard) -> bool {
            false
        }

        fn pages(&self, _: Shard) -> bool {
            self.calls.fetch_add(1, Ordering::Relaxed);
            let visit = self.shepherd.lock().expect("no panic").take();
            if let Some(visit) = visit {
                visit();
            }
            false
        }
    }

    #[test]
    fn upkeep_that_runs_is_queued_again_before_the_repair_only() {
        for (shepherd, queued_again) in [(Shepherd::BeforeRepair, 1), (Shepherd::Repaired, 0)] {
            let machine = Host::start().expect("a host");
            let period = Period::new(3_600 * SECOND_NS, 1_000).expect("a period");
            let options = Options {
                isolated: (1..machine.cpus() as u32).collect(),
                ..Options::new(Clocked::new(Firing::RoundJiffies { skew: 3 }, period))
            };
            let work = Visited {
                shepherd: Mutex::new(None),
                calls: AtomicU64::new(0),
            };
            let housekeeping = Housekeeping::new(&machine, work, options).expect("sense");
            let housekeeping = Arc::new(housekeeping.with_shepherd(shepherd));
            let mut queued = 0;
            housekeeping.shepherd(|_, _| queued += 1);
            assert_eq!(queued, 1);
            let again = Arc::new(AtomicU64::new(0));
            let (visitor, count) = (Arc::clone(&housekeeping), Arc::clone(&again));
            let visit = move || {
                for _ in 0..2 {
                    visitor.shepherd(|_, _| {
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                }
            };
            let slot = &housekeeping.upkeep().shepherd;
            *slot.lock().expect("no panic") = Some(Box::new(visit));
            assert_eq!(housekeeping.fire(Shard(0)), None, "queued already, or idle");
            assert_eq!(again.load(Ordering::Relaxed), queued_again, "{shepherd:?}");
            let calls = || housekeeping.upkeep().calls.load(Ordering::Relaxed);
            assert_eq!(calls(), 1);
            if queued_again == 1 {
                assert!(
                    !housekeeping.is_done(Shard(0), 0),
                    "the second call has work"
                );
                let next = housekeeping.fire(Shard(0));
                assert_eq!(calls(), 2);
                assert!(next.is_some_and(|timer| timer.deadline_ns > SECOND_NS));
            }
        }
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
        upkeep.diffs.store(1, Ordering::Relaxed);
        assert!(!housekeeping.quiet(Shard(u32::MAX)), "no such CPU");
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
