//! A run: upkeep and bursts of pages on a machine.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bursar_kernel::pages::Cause;
use bursar_kernel::upkeep::{Clocked, Housekeeping, Options, Period};
use bursar_machine::Shard;
use bursar_rig::timer::{BoundTask, Timer, TimerKind, Timers, WorkQueue, tick_ns};
use bursar_watch::seen::BurstKind;

use crate::books::Books;
use crate::flushes;
use crate::load::{Load, Move};
use crate::measure::{Call, Figures};
use crate::outcome::Outcome;
use crate::policy::Policies;
use bursar_experiments::vmstat_spread::expiry_ns;

/// Items of work.
const UPKEEP: u64 = 0;
const SHEPHERD: u64 = 1;
/// CPU that the shepherd works on.
const SHEPHERDS: Shard = Shard(0);

/// Time before a burst that its task spends awake, so that the burst does not include the wake-up.
const AWAKE_NS: u64 = 20_000;

/// Records of a run in progress. Not memory of the machine: recording takes no time there.
#[derive(Default)]
struct Record {
    calls: Mutex<Vec<Call>>,
    bursts_ns: Mutex<Vec<(BurstKind, u64)>>,
    /// By CPU: the slot of the queued upkeep, and the moment at which it fires.
    queued_ns: Vec<Mutex<(u64, u64)>>,
}

fn push<T>(list: &Mutex<Vec<T>>, value: T) {
    list.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(value);
}

fn take<T>(list: Mutex<Vec<T>>) -> Vec<T> {
    list.into_inner().unwrap_or_else(PoisonError::into_inner)
}

struct Scene<'a, M: Timers> {
    machine: &'a M,
    housekeeping: &'a Housekeeping<M, Books<'a, M>>,
    queue: &'a M::Queue,
    record: &'a Record,
    load: &'a Load,
}

/// Replays a load on a machine of any number of CPUs. The `seed` decides how the loads of further CPUs are shifted.
///
/// # Errors
/// The machine has no room, or other ticks than the recorded one.
pub fn run<M: Timers>(
    machine: &M,
    load: &Load,
    policies: Policies,
    seed: u64,
) -> Result<Figures, String> {
    let mut figures = simulate(machine, load, policies, seed)?.figures(load)?;
    if load.has_flushes() {
        flushes::run(machine, load, policies.flush, seed, &mut figures)?;
    }
    Ok(figures)
}

/// Replays upkeep and bursts.
pub(crate) fn simulate<M: Timers>(
    machine: &M,
    load: &Load,
    policies: Policies,
    seed: u64,
) -> Result<Outcome, String> {
    let hz = machine.hz();
    if hz != load.hz {
        return Err(format!(
            "the machine has {hz} ticks a second, and the recorded one had {}",
            load.hz
        ));
    }
    let period = Period::new(load.interval_ns, hz).map_err(|error| error.to_string())?;
    let books = Books::new(machine, load, policies, seed).map_err(|error| error.to_string())?;
    let firing = policies.firing;
    let options = Options::new(Clocked { firing, period });
    let housekeeping =
        Housekeeping::new(machine, books, options).map_err(|error| error.to_string())?;
    let record = Record {
        queued_ns: (0..machine.cpus()).map(|_| Mutex::default()).collect(),
        ..Record::default()
    };
    let queue = machine.work_queue();
    let scene = Scene {
        machine,
        housekeeping: &housekeeping,
        queue: &queue,
        record: &record,
        load,
    };
    scene.run();
    let books = housekeeping.upkeep();
    let (missed, holds) = (books.missed(), books.lists.holds());
    drop(housekeeping);
    Ok(Outcome {
        cpus: machine.cpus(),
        calls: take(record.calls),
        bursts_ns: take(record.bursts_ns),
        holds,
        missed,
    })
}

impl<M: Timers> Scene<'_, M> {
    fn run(&self) {
        let machine = self.machine;
        let origin_ns = self.load.origin_ns();
        // The machine's clock may have run already.
        let begin_ns = origin_ns - self.load.warm_up_ns();
        let work = |shard: Shard, item: u64| match item {
            SHEPHERD => self.shepherd(),
            _ => self.upkeep(shard),
        };
        let first = Timer {
            kind: TimerKind::Exact,
            deadline_ns: begin_ns,
        };
        self.queue.queue_on(SHEPHERDS, first, SHEPHERD);
        let mut all: Vec<BoundTask<'_>> = self.queue.workers(&work);
        for cpu in 0..machine.cpus() {
            let moves = self.housekeeping.upkeep().moves(cpu);
            if !moves.is_empty() {
                all.push((
                    Some(cpu as u32),
                    Box::new(move || self.burst_task(cpu, &moves)),
                ));
            }
        }
        let stop = || {
            self.housekeeping.upkeep().fill_stash();
            self.sleep_until(origin_ns);
            self.housekeeping.upkeep().lists.forget_holds();
            self.sleep_until(origin_ns + self.load.duration_ns);
            self.queue.stop();
        };
        all.push((None, Box::new(stop)));
        machine.run_bound(all);
    }

    fn sleep_until(&self, deadline_ns: u64) {
        self.machine.sleep_on_timer(Timer {
            kind: TimerKind::Exact,
            deadline_ns,
        });
    }

    fn shepherd(&self) {
        let machine = self.machine;
        self.housekeeping
            .shepherd(|shard, timer| self.queue_upkeep(shard, timer));
        let timer = self.housekeeping.shepherd_timer(machine.now_ns());
        // Like each CPU's upkeep, it is seldom late: a busy machine is awake.
        let timer = Timer {
            kind: match timer.kind {
                TimerKind::Exact => TimerKind::Exact,
                _ => TimerKind::Wheel,
            },
            ..timer
        };
        self.queue.queue_on(SHEPHERDS, timer, SHEPHERD);
    }

    /// Queues a CPU's upkeep. A deferrable timer waits where the recorded CPU slept, and only there.
    fn queue_upkeep(&self, shard: Shard, timer: Timer) {
        let now_ns = self.machine.now_ns();
        let slot_ns = expiry_ns(timer, self.load.hz, now_ns);
        let mut fires_ns = slot_ns;
        let mut timer = timer;
        if timer.kind == TimerKind::Deferrable && fires_ns > now_ns {
            let books = self.housekeeping.upkeep();
            match books.asleep_until_ns(shard.index(), fires_ns) {
                Some(until_ns) => {
                    fires_ns = until_ns;
                    timer = Timer {
                        kind: TimerKind::Exact,
                        deadline_ns: until_ns,
                    };
                }
                None => timer.kind = TimerKind::Wheel,
            }
        }
        *self.queued_ns(shard) = (slot_ns, fires_ns);
        self.queue.queue_on(shard, timer, UPKEEP);
    }

    fn queued_ns(&self, shard: Shard) -> MutexGuard<'_, (u64, u64)> {
        let queued_ns = &self.record.queued_ns[shard.index()];
        queued_ns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn upkeep(&self, shard: Shard) {
        let machine = self.machine;
        let (slot_ns, fired_ns) = *self.queued_ns(shard);
        let began_ns = machine.now_ns();
        let again = self.housekeeping.fire(shard);
        let ended_ns = machine.now_ns();
        let origin_ns = self.load.origin_ns();
        if (origin_ns..origin_ns + self.load.duration_ns).contains(&began_ns) {
            let call = Call {
                cpu: shard.0,
                tick: fired_ns / tick_ns(self.load.hz),
                slot: slot_ns / tick_ns(self.load.hz),
                length_ns: ended_ns - began_ns,
            };
            push(&self.record.calls, call);
        }
        if let Some(timer) = again {
            self.queue_upkeep(shard, timer);
        }
    }

    /// Moves pages as the tasks of a CPU did.
    fn burst_task(&self, cpu: usize, moves: &[Move]) {
        let machine = self.machine;
        let books = self.housekeeping.upkeep();
        let origin_ns = self.load.origin_ns();
        for burst in moves {
            let at_ns = origin_ns + burst.at_ns as u64;
            let now_ns = machine.now_ns();
            if at_ns > now_ns + AWAKE_NS {
                self.sleep_until(at_ns - AWAKE_NS);
            }
            machine.compute(at_ns.saturating_sub(machine.now_ns()));
            let began_ns = machine.now_ns();
            match burst.kind {
                BurstKind::Drain => books.drain(Cause::Free, Shard(cpu as u32), burst.pages),
                BurstKind::Refill => books.refill(burst.pages),
            }
            let time_ns = machine.now_ns() - began_ns;
            push(&self.record.bursts_ns, (burst.kind, time_ns));
        }
    }
}
