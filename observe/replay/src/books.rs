//! The kernel's data in a replay: what each CPU has to fold, and pages that are due to go back to the zone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bursar_kernel::pages::{Cause, Measured, PageLists, Settings, ZONE_PAGE_NS};
use bursar_kernel::upkeep::Upkeep;
use bursar_machine::Shard;
use bursar_machine::pages::{Order, ReserveError};
use bursar_rig::timer::Timers;

use crate::load::{Fold, Load, Move, OfCpu, Stretch};
use crate::policy::Policies;
use crate::stash::{Stash, needed};
use bursar_experiments::random::Random;

/// Pages that one call gives back at most, in batches.
const BATCHES_MAX: u32 = 32;

/// State of one CPU.
#[derive(Debug, Default)]
struct State {
    /// Moment of the last fold.
    folded_ns: i64,
    /// Moment up to which due pages were counted.
    counted_ns: i64,
    /// Pages that are due.
    due: u64,
    calls: usize,
}

/// All of it.
pub(crate) struct Books<'a, M: Timers> {
    pub(crate) machine: M,
    pub(crate) load: &'a Load,
    pub(crate) lists: PageLists<M>,
    pub(crate) stash: Stash,
    origin_ns: u64,
    cpus: Vec<Mutex<State>>,
    /// Shift of each CPU's copy of a recorded CPU's load.
    shifts_ns: Vec<u64>,
    /// Pages that a drain did not find.
    missed: AtomicU64,
}

impl<'a, M: Timers> Books<'a, M> {
    /// Reserves a zone for the load.
    ///
    /// # Errors
    /// The machine's error if it cannot.
    pub(crate) fn new(
        machine: &M,
        load: &'a Load,
        policies: Policies,
        seed: u64,
    ) -> Result<Self, ReserveError> {
        let cpus = machine.cpus();
        let nominal = Settings::of(load.zone_pages, cpus, policies.release);
        let mut limits = nominal.limits;
        limits.batch = load.batch;
        let settings = Settings {
            // As much again, so that refills find pages too.
            pages: 2 * needed(load, cpus) + (1 << 16),
            high_watermark_pages: 0,
            limits,
            piece_pages: policies.piece_pages,
            zone_page_ns: load.page_ns.unwrap_or(ZONE_PAGE_NS),
            measured: Measured::Holds,
            ..nominal
        };
        let shift_ns = |cpu: usize| match cpu < load.cpus() {
            true => 0,
            // Copies would else do the same at the same moment.
            false => Random::fork(seed, cpu as u64).below(load.duration_ns),
        };
        Ok(Self {
            lists: PageLists::new(machine, settings)?,
            stash: Stash::default(),
            origin_ns: load.origin_ns(),
            cpus: (0..=cpus).map(|_| Mutex::new(State::new(load))).collect(),
            shifts_ns: (0..cpus).map(shift_ns).collect(),
            missed: AtomicU64::new(0),
            machine: machine.clone(),
            load,
        })
    }

    /// Moves the pages that the recorded tasks had from the zone to the stash.
    pub(crate) fn fill_stash(&self) {
        let pages = u32::try_from(needed(self.load, self.machine.cpus())).unwrap_or(u32::MAX);
        let put = |page| self.stash.put(page);
        self.lists.take_seen(Order::new(0), pages, put);
    }

    /// Time since the recording's beginning.
    pub(crate) fn since_start_ns(&self) -> i64 {
        self.machine.now_ns() as i64 - self.origin_ns as i64
    }

    /// The recorded load of a CPU.
    pub(crate) fn of_cpu(&self, cpu: usize) -> &OfCpu {
        &self.load.cpus[cpu % self.load.cpus()]
    }

    /// The moves of a CPU, in the order of time.
    pub(crate) fn moves(&self, cpu: usize) -> Vec<Move> {
        let moves = self.of_cpu(cpu).moves.iter();
        let shift_ns = self.shifts_ns[cpu] % self.load.events_ns;
        let shifted = |it: &Move| Move {
            at_ns: (it.at_ns + shift_ns as i64) % self.load.events_ns as i64,
            ..*it
        };
        let mut moves: Vec<Move> = moves.map(shifted).collect();
        moves.sort_by_key(|it| it.at_ns);
        moves
    }

    /// The end of the stretch in which the CPU sleeps at that moment of the machine, if it does.
    pub(crate) fn asleep_until_ns(&self, cpu: usize, at_ns: u64) -> Option<u64> {
        let at_ns = at_ns as i64 - self.origin_ns as i64;
        let stretches = &self.of_cpu(cpu).asleep;
        let before = stretches.partition_point(|(from_ns, _)| *from_ns <= at_ns);
        let (_, until_ns) = *stretches.get(before.checked_sub(1)?)?;
        (until_ns > at_ns).then(|| (until_ns + self.origin_ns as i64) as u64)
    }

    /// Pages that a drain did not find in the stash.
    pub(crate) fn missed(&self) -> u64 {
        // Relaxed: a tally.
        self.missed.load(Ordering::Relaxed)
    }

    /// Gives so many pages back to the zone, as the policy does.
    pub(crate) fn drain(&self, cause: Cause, shard: Shard, pages: u32) {
        self.lists
            .give_back_seen(cause, shard, pages, Order::new(0), || {
                let page = self.stash.take();
                if page.is_none() {
                    // Relaxed: a tally.
                    self.missed.fetch_add(1, Ordering::Relaxed);
                }
                page
            });
    }

    /// Takes so many pages from the zone, as a refill does.
    pub(crate) fn refill(&self, pages: u32) {
        let put = |page| self.stash.put(page);
        self.lists.take_seen(Order::new(0), pages, put);
    }

    /// Whether the CPU changes counters at any moment from `from_ns` up to `to_ns`.
    fn is_active(&self, cpu: usize, from_ns: i64, to_ns: i64) -> bool {
        let active = &self.of_cpu(cpu).active;
        let first = active.partition_point(|(_, end_ns): &Stretch| *end_ns <= from_ns);
        active
            .get(first)
            .is_some_and(|(begin_ns, _)| *begin_ns < to_ns)
    }

    fn was_in_vain(&self, cpu: usize, from_ns: i64, to_ns: i64) -> bool {
        let all = &self.of_cpu(cpu).in_vain_ns;
        let first = all.partition_point(|at_ns| *at_ns <= from_ns);
        all.get(first).is_some_and(|at_ns| *at_ns <= to_ns)
    }

    fn state(&self, shard: Shard) -> MutexGuard<'_, State> {
        let state = &self.cpus[shard.index() % self.cpus.len()];
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the pages that have become due, and takes as many of them as one call gives back.
    fn take_due(&self, shard: Shard) -> u32 {
        let now_ns = self.since_start_ns();
        let due_pages = &self.of_cpu(shard.index()).due_pages;
        let mut state = self.state(shard);
        let up_to = |at_ns: i64| due_pages.partition_point(|(due_ns, _)| *due_ns <= at_ns);
        let new = up_to(state.counted_ns)..up_to(now_ns).max(up_to(state.counted_ns));
        let pages: u64 = due_pages[new]
            .iter()
            .map(|(_, pages)| u64::from(*pages))
            .sum();
        state.counted_ns = now_ns.max(state.counted_ns);
        state.due += pages;
        let taken = state.due.min(u64::from(self.load.batch * BATCHES_MAX));
        state.due -= taken;
        taken as u32
    }
}

impl State {
    fn new(load: &Load) -> Self {
        let before_ns = -(2 * load.warm_up_ns() as i64);
        Self {
            folded_ns: before_ns,
            counted_ns: before_ns,
            ..Self::default()
        }
    }
}

impl<M: Timers> Upkeep for Books<'_, M> {
    fn needs(&self, shard: Shard) -> bool {
        let (cpu, now_ns) = (shard.index(), self.since_start_ns());
        let folded_ns = self.state(shard).folded_ns;
        cpu < self.machine.cpus()
            && (self.is_active(cpu, folded_ns, now_ns) || self.was_in_vain(cpu, folded_ns, now_ns))
    }

    fn fold(&self, shard: Shard) -> bool {
        let (folded_ns, call) = {
            let mut state = self.state(shard);
            state.calls += 1;
            (state.folded_ns, state.calls - 1)
        };
        let time_ns = match &self.load.fold {
            Fold::Fixed { time_ns, .. } => *time_ns,
            // Each CPU begins elsewhere in the list.
            Fold::Recorded(times) => {
                let place = call * self.machine.cpus() + shard.index();
                times.get(place % times.len().max(1)).copied().unwrap_or(0)
            }
        };
        self.machine.compute(time_ns);
        let now_ns = self.since_start_ns();
        self.state(shard).folded_ns = now_ns;
        self.is_active(shard.index(), folded_ns, now_ns)
    }

    fn pages(&self, shard: Shard) -> bool {
        let pages = self.take_due(shard);
        if pages > 0 {
            self.drain(Cause::Decay, shard, pages);
        }
        self.state(shard).due > 0
    }
}
