//! The clients, and what they record.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bursar_machine::Lock;
use bursar_rig::timer::{BoundTask, Timers};

use super::desk::{Denied, Desk, Start};
use super::parameters::{Parameters, of_percent};
use super::query::{HIGH, Query};
use crate::document::Metrics;
use crate::measure::{Samples, Unit};
use crate::metrics::arbitration::*;
use crate::random::Random;

/// Interval from one look of the desk and of the measurement to the next.
const TICK_NS: u64 = 10_000_000;

/// State that all tasks share. Words that only the measurement needs are not the machine's.
struct Scene<'a, M: Timers, D> {
    machine: &'a M,
    desk: &'a D,
    own: &'a Parameters,
    start_ns: u64,
    end_ns: u64,
    /// Time from which the disk is free.
    disk_free_ns: M::Mutex<u64>,
    batches: AtomicU64,
    is_over: AtomicBool,
}

/// Log of one client.
struct Log {
    /// From asking to the last row, tries included.
    high_ns: Samples,
    low_ns: Samples,
    done: u64,
    /// CPU time of the queries that were done, as if each had been alone.
    work_ns: u64,
    ran_ns: u64,
    /// Of this, CPU time of tries that ended without a result.
    thrown_ns: u64,
    failed: u64,
    spilled_mib: u64,
    /// Age of the query that was not done in the end.
    left_ns: u64,
}

impl Log {
    fn new() -> Self {
        Self {
            high_ns: Samples::new(Unit::Ns),
            low_ns: Samples::new(Unit::Ns),
            done: 0,
            work_ns: 0,
            ran_ns: 0,
            thrown_ns: 0,
            failed: 0,
            spilled_mib: 0,
            left_ns: 0,
        }
    }
}

/// Records of the ticker.
#[derive(Default)]
struct Watch {
    over_mib_ns: u64,
    stall_ns_max: u64,
}

/// Runs all clients.
pub(super) fn measure<M: Timers, D: Desk>(
    machine: &M,
    desk: &D,
    own: &Parameters,
) -> Result<Metrics, String> {
    let start_ns = machine.now_ns();
    let scene = Scene {
        machine,
        desk,
        own,
        start_ns,
        end_ns: start_ns + own.duration_ms * 1_000_000,
        disk_free_ns: M::Mutex::new(0),
        batches: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    let scene = &scene;
    let clients = own.clients(machine.cpus());
    let creepers = own.creepers;
    let mut logs: Vec<Log> = (0..clients + creepers).map(|_| Log::new()).collect();
    let mut watch = Watch::default();
    let mut tasks: Vec<BoundTask<'_>> = Vec::new();
    for (client, log) in (0..).zip(&mut logs) {
        tasks.push((
            None,
            Box::new(move || match client < clients {
                true => scene.client(client, log),
                false => scene.creep(log),
            }),
        ));
    }
    let watched = &mut watch;
    tasks.push((None, Box::new(move || scene.watch(watched))));
    machine.run_bound(tasks);
    let left = desk.now().used_mib;
    if left > 0 {
        return Err(format!("{left} MiB are charged after all queries ended"));
    }
    Ok(metrics(scene, &logs[..clients as usize], &watch))
}

fn metrics<M: Timers, D: Desk>(scene: &Scene<'_, M, D>, logs: &[Log], watch: &Watch) -> Metrics {
    let seed = scene.own.seed;
    let sum = |of: fn(&Log) -> u64| -> u64 { logs.iter().map(of).sum() };
    let seconds = (scene.end_ns - scene.start_ns) as f64 / 1e9;
    let cpus = scene.machine.cpus() as f64;
    let done = sum(|log| log.done);
    let mut metrics = Metrics::default();
    metrics.figure(
        WORK,
        seed,
        sum(|log| log.work_ns) as f64 / 1e9 / seconds / cpus,
    );
    metrics.figure(QUERIES_PER_SECOND, seed, done as f64 / seconds);
    for (info, of) in [
        (HIGH_TIME, (|log| &log.high_ns) as fn(&Log) -> &Samples),
        (LOW_TIME, |log| &log.low_ns),
    ] {
        let mut all = Samples::new(Unit::Ns).distribution();
        for log in logs {
            all.merge(&of(log).distribution());
        }
        metrics.distribution(info, all);
    }
    metrics.spread(LEFT_AGE, logs.iter().map(|log| log.left_ns));
    metrics.share(
        THROWN_AWAY,
        seed,
        sum(|log| log.thrown_ns),
        sum(|log| log.ran_ns).max(1),
    );
    let failed = sum(|log| log.failed);
    metrics.share(FAILED, seed, failed, (done + failed).max(1));
    let starved = logs.iter().filter(|log| log.done + log.failed == 0).count();
    metrics.count(STARVED, starved as u64);
    metrics.count(STOPPED, scene.desk.stops());
    metrics.figure(SPILLED, seed, sum(|log| log.spilled_mib) as f64 / seconds);
    metrics.figure(OVER_LIMIT, seed, watch.over_mib_ns as f64 / 1e9);
    metrics.spread(STALL, [watch.stall_ns_max]);
    metrics
}

impl<M: Timers, D: Desk> Scene<'_, M, D> {
    fn is_over(&self) -> bool {
        // Relaxed: it says that a loop may end, and orders nothing.
        self.is_over.load(Ordering::Relaxed)
    }

    /// Sends query after query, each when the one before is done.
    fn client(&self, client: u64, log: &mut Log) {
        let own = self.own;
        let cpus = self.machine.cpus();
        let clients = own.clients(cpus);
        let is_high = client < of_percent(clients, own.high_percent);
        let mut random = Random::fork(own.seed, client);
        // Not all at once.
        self.sleep(random.below(own.batch_us * 1_000 * 16));
        while !self.is_over() {
            let tenant = client % own.tenants;
            self.pause_between_bursts(tenant);
            let query = Query::draw(own, (tenant, is_high), cpus, &mut random);
            let asked_ns = self.machine.now_ns();
            let mut start = Start {
                query: &query,
                tenant,
                nth: 0,
                needed_mib: 0,
            };
            for nth in 1..=own.tries {
                start.nth = nth;
                match self.attempt(&mut start, log) {
                    Ok(()) => {
                        let took_ns = self.machine.now_ns() - asked_ns;
                        match query.score {
                            HIGH => log.high_ns.record(took_ns),
                            _ => log.low_ns.record(took_ns),
                        }
                        log.done += 1;
                        log.work_ns += query.work_ns();
                        break;
                    }
                    Err(Denied::Over) => {
                        log.left_ns = self.end_ns.saturating_sub(asked_ns);
                        return;
                    }
                    Err(_) => log.failed += u64::from(nth == own.tries),
                }
            }
        }
    }

    /// Every other tenant sends queries in even bursts, the rest in odd ones.
    fn pause_between_bursts(&self, tenant: u64) {
        let burst_ns = self.own.burst_ms * 1_000_000;
        if burst_ns == 0 {
            return;
        }
        let now_ns = self.machine.now_ns() - self.start_ns;
        let nth = now_ns / burst_ns;
        if nth % 2 != tenant % 2 {
            let until_ns = self.start_ns + (nth + 1) * burst_ns;
            self.machine.sleep_until(until_ns.min(self.end_ns));
        }
    }

    /// An adversary: queries that grow slowly until they are refused or stopped.
    fn creep(&self, log: &mut Log) {
        let query = Query::creeper(self.own);
        while !self.is_over() {
            let mut start = Start {
                query: &query,
                tenant: 0,
                nth: 1,
                needed_mib: 0,
            };
            if self.attempt(&mut start, log) == Err(Denied::Over) {
                return;
            }
        }
    }

    /// Runs a query once.
    fn attempt(&self, start: &mut Start<'_>, log: &mut Log) -> Result<(), Denied> {
        let id = self.desk.begin(start)?;
        let mut ran_ns = 0;
        let mut peak_mib = 0;
        let outcome = self.run(id, start.query, log, (&mut ran_ns, &mut peak_mib));
        start.needed_mib = start.needed_mib.max(peak_mib + start.query.batch_mib);
        self.desk.end(id);
        log.ran_ns += ran_ns;
        match outcome {
            // The end of the measurement cuts off a try: that is no loss.
            Ok(()) | Err(Denied::Over) => {}
            Err(_) => log.thrown_ns += ran_ns,
        }
        outcome
    }

    /// Runs its batches. Counts the CPU time and the most MiB that it had.
    fn run(
        &self,
        id: u64,
        query: &Query,
        log: &mut Log,
        (ran_ns, peak_mib): (&mut u64, &mut u64),
    ) -> Result<(), Denied> {
        let mut held_mib = 0;
        let mut on_disk_mib = 0;
        let mut spill = |held_mib: &mut u64, mib: u64| {
            let mib = mib.min(*held_mib);
            self.disk(mib);
            self.desk.spilled(id, mib);
            *held_mib -= mib;
            on_disk_mib += mib;
            if !self.is_over() {
                log.spilled_mib += mib;
            }
        };
        let mut nth = 0;
        while nth < query.builds.saturating_add(query.probes) {
            match self.desk.go_on(id) {
                Err(Denied::Spill(mib)) => {
                    spill(&mut held_mib, mib);
                    continue;
                }
                other => other?,
            }
            if self.is_over() {
                return Err(Denied::Over);
            }
            self.machine.compute(query.batch_ns);
            *ran_ns += query.batch_ns;
            // Relaxed: a tally that orders nothing.
            self.batches.fetch_add(1, Ordering::Relaxed);
            if nth < query.builds {
                loop {
                    match self.desk.grow(id, query.batch_mib) {
                        Ok(()) => break,
                        Err(Denied::Spill(mib)) => spill(&mut held_mib, mib),
                        // As DataFusion's operators: who is refused spills all, and tries again.
                        Err(Denied::Refused) if query.can_spill && held_mib > 0 => {
                            let all = held_mib;
                            spill(&mut held_mib, all);
                        }
                        Err(denied) => return Err(denied),
                    }
                }
                held_mib += query.batch_mib;
                *peak_mib = held_mib.max(*peak_mib);
            }
            nth += 1;
        }
        // All that was written is read once.
        self.disk(on_disk_mib);
        Ok(())
    }

    /// Moves bytes to or from the disk, which all share.
    fn disk(&self, mib: u64) {
        if mib == 0 {
            return;
        }
        let now_ns = self.machine.now_ns();
        let until_ns = {
            let mut free_ns = self.disk_free_ns.lock();
            let takes_ns = mib * 1_000_000_000 / self.own.disk_mib_per_second;
            *free_ns = now_ns.max(*free_ns) + takes_ns;
            *free_ns
        };
        self.machine.sleep_until(until_ns);
    }

    fn sleep(&self, ns: u64) {
        self.machine.sleep_until(self.machine.now_ns() + ns);
    }

    /// Ticks, lowers the limit in the middle, and ends the run.
    fn watch(&self, watch: &mut Watch) {
        let middle_ns = self.start_ns.midpoint(self.end_ns);
        let mut is_lowered = self.own.lowered_to_percent == 100;
        let (mut batches, mut progress_ns) = (0, self.start_ns);
        loop {
            let next_ns = (self.machine.now_ns() + TICK_NS).min(self.end_ns);
            self.machine.sleep_until(next_ns);
            let now_ns = self.machine.now_ns();
            let moment = self.desk.now();
            if !is_lowered && now_ns >= middle_ns {
                is_lowered = true;
                self.desk
                    .lower(of_percent(moment.limit_mib, self.own.lowered_to_percent));
            }
            self.desk.tick();
            watch.over_mib_ns += moment.used_mib.saturating_sub(moment.limit_mib) * TICK_NS;
            // Relaxed: as above.
            let now_batches = self.batches.load(Ordering::Relaxed);
            if now_batches > batches {
                (batches, progress_ns) = (now_batches, now_ns);
            }
            watch.stall_ns_max = watch.stall_ns_max.max(now_ns - progress_ns);
            if now_ns >= self.end_ns {
                self.is_over.store(true, Ordering::Relaxed);
                self.desk.close();
                return;
            }
        }
    }
}
