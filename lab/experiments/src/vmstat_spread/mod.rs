//! The experiment of the vmstat thread of April 2026: whether it helps that the CPUs do their periodic upkeep at
//! different times.
//!
//! | part | file |
//! |---|---|
//! | the rules that are compared | `variant.rs` |
//! | the parameters and their ranges | `parameters.rs` |
//! | small counters, page lists, and their upkeep | `substrate.rs` |
//! | the load | `tasks.rs`; `space.rs`: the memory that a task works on |
//! | records of a run in progress | `record.rs` |
//! | the results of a run | `outcome.rs` |
//!
//! Each CPU has a task of the load, which is bound to it, and a worker that does the upkeep there when a timer of the
//! machine fires. [`bursar_kernel::upkeep`] decides that time, and whether there is work. The page lists are those of
//! the kernel 6.19 ([`bursar_kernel::pages`]). Every variant runs the same load from the same seed for the same
//! time. A run whose counters are wrong in the end gives no result.
//!
//! # Differences from the kernel
//! * The tasks take pages from one zone of one node. On a machine with several nodes that is the memory of all of them.
//! * A fault is the machine's first touch of a page, and beside it a page from the lists. Counters change once for 31
//!   pages, as pages come to the lists of reclaim.
//! * The scheduler moves the memory that a task works on from CPU to CPU, because the task itself is bound.
//! * CPUs may stop while they hold the zone's lock (`stop_interval_us`). This was not published. Without it, no model
//!   has the tail that the published mean needs beside the published 99th percentile. They do not stop elsewhere:
//!   little of a call is elsewhere.
//! * If memory is short, a task that needs more gives up its oldest pages, for the time that a device takes.

mod outcome;
mod parameters;
mod record;
mod space;
mod substrate;
mod tasks;
mod variant;

use std::sync::atomic::AtomicU64;

use bursar_kernel::upkeep::{Clocked, Firing, Housekeeping, KERNEL_SKEW, Options, Period, Place};
use bursar_machine::Shard;
use bursar_rig::timer::{BoundTask, Timer, TimerKind, Timers, WorkQueue};

pub use parameters::{Parameters, Tasks, Work};
pub use record::expiry_ns;

use self::outcome::{Frame, Outcome};
use self::record::{Call, Cause, Queuer, Record};
use self::space::{Exchange, Space};
use self::substrate::{COUNTERS, Substrate};
use self::tasks::{Done, Scene};
use self::variant::VARIANTS;
use crate::document::Metrics;
use crate::measure::{Distribution, Unit};
use crate::random::Random;
use crate::settings::range_error;
use crate::workload::Workload;

/// Items of work: the upkeep of a CPU, and the shepherd's round.
const UPKEEP: u64 = 0;
const SHEPHERD: u64 = 1;

/// Time of its first round.
const SHEPHERD_BEGINS_NS: u64 = 1_000_000;

/// CPU that the shepherd works on.
const SHEPHERDS: Shard = Shard(0);

/// The variants' names and rules.
pub fn firings() -> impl Iterator<Item = (&'static str, Firing)> {
    VARIANTS.iter().map(|(name, _, firing)| (*name, *firing))
}

impl Workload for Parameters {
    type Variant = Firing;

    fn variants() -> Vec<(&'static str, &'static str, Firing)> {
        VARIANTS.to_vec()
    }

    fn measure<M: Timers>(&self, machine: &M, firing: Firing) -> Result<Metrics, String> {
        run(machine, firing, self).map(Outcome::metrics)
    }
}

fn run<M: Timers>(machine: &M, firing: Firing, parameters: &Parameters) -> Result<Outcome, String> {
    let cpus = machine.cpus();
    if let (true, key, problem) = parameters.too_many_pages(cpus) {
        return Err(range_error(key, problem).to_string());
    }
    let hz = machine.hz();
    let period = Period::new(parameters.interval_ms * 1_000_000, hz)
        .map_err(|error| format!("`interval_ms` is {}: {error}", parameters.interval_ms))?;
    let record = Record::new(hz, cpus);
    let (substrate, room) = Substrate::new(machine, parameters, &record)?;
    let options = Options {
        timetable: Clocked { firing, period },
        isolated: Vec::new(),
        slack_ns: parameters.slack_us * 1_000,
    };
    let housekeeping =
        Housekeeping::new(machine, substrate, options).map_err(|error| error.to_string())?;

    let resident_pages = AtomicU64::new(0);
    let mut random = Random::fork(parameters.seed, cpus as u64);
    let has_spare = parameters.migrate_percent > 0;
    let exchange = Exchange::new(has_spare.then(|| Space::new(parameters, cpus, &mut random)));
    let now_ns = machine.now_ns();
    let start_ns = now_ns + parameters.warm_up_ms * 1_000_000;
    let span = (start_ns, now_ns + parameters.end_ns());
    let scene = Scene {
        machine,
        parameters,
        exchange: &exchange,
        housekeeping: &housekeeping,
        record: &record,
        room,
        resident_pages: &resident_pages,
        span,
    };
    let done = run_tasks(scene, period);
    audit(&housekeeping, &done)?;

    let sharing = firing.sharing(period, cpus as u32);
    let frame = Frame {
        firing,
        cpus,
        hz,
        span,
        cpus_per_instant: sharing.map_or(1.0, |sharing| sharing.cpus as f64),
        defers: machine.defers(),
    };
    let holds = housekeeping.upkeep().lists.holds();
    let zone_lock_wait = Distribution::of_histogram(Unit::Ns, &holds.traffic_waited_ns);
    drop(housekeeping);
    Ok(Outcome::new(
        frame,
        parameters,
        record.into_parts(),
        &done,
        zone_lock_wait,
    ))
}

/// Runs the load and the upkeep; returns what the load's tasks did.
fn run_tasks<M: Timers>(scene: Scene<'_, M>, period: Period) -> Vec<Done> {
    let machine = scene.machine;
    let queue = &machine.work_queue();
    let work = |shard: Shard, item: u64| match item {
        SHEPHERD => shepherd(scene, queue),
        _ => upkeep(scene, queue, shard),
    };
    let now_ns = machine.now_ns();
    // Soon, and not after an interval: until then no upkeep would fire.
    let soon = Timer {
        kind: TimerKind::Exact,
        deadline_ns: now_ns + SHEPHERD_BEGINS_NS,
    };
    queue.queue_on(SHEPHERDS, soon, SHEPHERD);

    let cpus = machine.cpus() as u32;
    let mut done = vec![Done::default(); cpus as usize];
    let mut all: Vec<BoundTask<'_>> = queue.workers(&work);
    for (cpu, done) in (0..cpus).zip(&mut done) {
        let task = move || *done = tasks::run(scene, cpu);
        all.push((Some(cpu), Box::new(task)));
    }
    if scene.parameters.rounded_timers > 0 {
        for cpu in 0..cpus {
            let task = move || wake_for_others(scene, period, cpu);
            all.push((Some(cpu), Box::new(task)));
        }
    }
    let stop = || {
        let sleep_until = |deadline_ns| {
            machine.sleep_on_timer(Timer {
                kind: TimerKind::Exact,
                deadline_ns,
            });
        };
        sleep_until(scene.span.0);
        scene.housekeeping.upkeep().lists.forget_holds();
        sleep_until(scene.span.1);
        queue.stop();
    };
    all.push((None, Box::new(stop)));
    machine.run_bound(all);
    done
}

fn shepherd<M: Timers>(scene: Scene<'_, M>, queue: &M::Queue) {
    let machine = scene.machine;
    scene.housekeeping.shepherd(|shard, timer| {
        scene
            .record
            .queued(shard, timer, Queuer::Shepherd, machine.now_ns());
        queue.queue_on(shard, timer, UPKEEP);
    });
    let timer = scene.housekeeping.shepherd_timer(machine.now_ns());
    queue.queue_on(SHEPHERDS, timer, SHEPHERD);
}

fn upkeep<M: Timers>(scene: Scene<'_, M>, queue: &M::Queue, shard: Shard) {
    let Scene {
        machine, record, ..
    } = scene;
    let queued_ns = machine.run_queue_ns();
    let began_ns = machine.now_ns();
    let due = record.due(shard, began_ns);
    let is_done = scene.housekeeping.due(shard);
    let is_done = is_done.is_some_and(|timer| timer.deadline_ns > began_ns);
    let again = scene.housekeeping.fire(shard);
    let ended_ns = machine.now_ns();
    let mut spans = record.take_spans(shard);
    spans.run_queue_ns = machine.run_queue_ns() - queued_ns;
    let what = (shard.0, Cause::Periodic, due);
    // Work that was done early is only queued again.
    if is_done {
        record.in_vain(shard, began_ns);
    } else {
        record.called(Call::new(what, (began_ns, ended_ns), spans));
    }
    if let Some(timer) = again {
        record.queued(shard, timer, Queuer::Itself, ended_ns);
        queue.queue_on(shard, timer, UPKEEP);
    }
}

/// Runs a rounded timer of other code on a CPU, once a second, as many exist in the kernel.
fn wake_for_others<M: Timers>(scene: Scene<'_, M>, period: Period, cpu: u32) {
    let Scene {
        machine, record, ..
    } = scene;
    let shard = Shard(cpu);
    let place = Place {
        cpu,
        rank: cpu,
        of: machine.cpus() as u32,
    };
    loop {
        let now_ns = machine.now_ns();
        if now_ns >= scene.span.1 {
            return;
        }
        let rounded = Firing::RoundJiffies { skew: KERNEL_SKEW }.next(period, place, now_ns);
        let timer = Timer {
            kind: TimerKind::Wheel,
            ..rounded
        };
        let expires_ns = expiry_ns(timer, machine.hz(), now_ns);
        machine.sleep_on_timer(timer);
        record.other(shard, expires_ns);
        let began_ns = machine.now_ns();
        let due = record.due(shard, began_ns);
        if scene.housekeeping.awake(shard) {
            let spans = record.take_spans(shard);
            let what = (cpu, Cause::Early, due);
            record.called(Call::new(what, (began_ns, machine.now_ns()), spans));
        }
    }
}

/// Compares the counters with what the tasks did.
fn audit<M: Timers>(
    housekeeping: &Housekeeping<M, Substrate<'_, M>>,
    done: &[Done],
) -> Result<(), String> {
    let counters = &housekeeping.upkeep().counters;
    for counter in 0..COUNTERS {
        let added: i64 = done.iter().map(|done| done.added[counter]).sum();
        let counted = counters.precise(counter);
        if added != counted {
            return Err(format!(
                "counter {counter} is {counted}, and {added} was added to it"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
