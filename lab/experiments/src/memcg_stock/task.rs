//! The tasks, and what they record.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar_rig::timer::{BoundTask, Timers};

use super::parameters::Parameters;
use super::subject::Subject;
use crate::document::Metrics;
use crate::measure::{Samples, Unit};
use crate::metrics::memcg_stock::*;
use crate::random::Random;

/// State that all tasks share. The word that only the measurement needs is not the machine's.
struct Scene<'a, M, S> {
    machine: &'a M,
    subject: &'a S,
    parameters: &'a Parameters,
    limit_pages: u64,
    end_ns: u64,
    /// Pages that tasks hold or are about to charge, without stock.
    held_pages: AtomicU64,
}

/// Log of one task.
struct Log {
    /// Length of each charge, its drains included.
    charges_ns: Samples,
    drains_ns: Vec<u64>,
    charges: u64,
    /// Charges that the limit refused at first though all that tasks held left room.
    refused_early: u64,
    /// Charges that were still refused after a drain, though there was room.
    refused_in_spite: u64,
    /// Pages charged that no task held, at each sample.
    stranded_pages: Vec<u64>,
    ended_ns: u64,
}

impl Log {
    fn new() -> Self {
        Self {
            charges_ns: Samples::new(Unit::Ns),
            drains_ns: Vec::new(),
            charges: 0,
            refused_early: 0,
            refused_in_spite: 0,
            stranded_pages: Vec::new(),
            ended_ns: 0,
        }
    }
}

/// Runs all tasks, and checks afterwards that nothing is left.
pub(super) fn measure<M: Timers, S: Subject>(
    machine: &M,
    subject: &S,
    parameters: &Parameters,
) -> Result<Metrics, String> {
    let cpus = machine.cpus();
    let start_ns = machine.now_ns();
    let scene = Scene {
        machine,
        subject,
        parameters,
        limit_pages: parameters.limit_pages(cpus).unwrap_or(u64::MAX),
        end_ns: start_ns + parameters.duration_ms * 1_000_000,
        held_pages: AtomicU64::new(0),
    };
    let scene = &scene;
    let transfers = machine.line_transfers();
    let mut logs: Vec<Log> = (0..cpus + 2).map(|_| Log::new()).collect();
    let mut tasks: Vec<BoundTask<'_>> = Vec::new();
    let (workers, others) = logs.split_at_mut(cpus);
    for (cpu, log) in (0..).zip(workers) {
        tasks.push((Some(cpu), Box::new(move || scene.work(cpu, log))));
    }
    for (log, task) in others.iter_mut().zip([Scene::sample, Scene::drain]) {
        tasks.push((None, Box::new(move || task(scene, log))));
    }
    machine.run_bound(tasks);
    let transfers = machine.line_transfers().zip(transfers);
    let transfers = transfers.map(|(after, before)| after - before);
    let counts = subject.counts();
    let left = subject.settle();
    if left > 0 {
        return Err(format!("{left} pages are charged after all were returned"));
    }

    let seed = parameters.seed;
    let sum = |of: fn(&Log) -> u64| -> u64 { logs.iter().map(of).sum() };
    let charges = sum(|log| log.charges);
    let ended_ns = logs.iter().map(|log| log.ended_ns).max().unwrap_or(0);
    let seconds = ended_ns.saturating_sub(start_ns).max(1) as f64 / 1e9;
    let each = |count: u64| count as f64 / charges.max(1) as f64;
    let mut metrics = Metrics::default();
    let mut charges_ns = logs[0].charges_ns.distribution();
    for log in &logs[1..cpus] {
        charges_ns.merge(&log.charges_ns.distribution());
    }
    metrics.distribution(CHARGE_TIME, charges_ns);
    metrics.figure(CHARGES_PER_SECOND, seed, charges as f64 / seconds);
    if let Some(transfers) = transfers {
        metrics.figure(TRANSFERS_PER_CHARGE, seed, each(transfers));
    }
    if let Some(counts) = counts {
        metrics.figure(WALKS_PER_CHARGE, seed, each(counts.walks));
        metrics.figure(EVICTIONS_PER_CHARGE, seed, each(counts.evictions));
    }
    metrics.spread(
        STRANDED_PAGES,
        logs.iter()
            .flat_map(|log| log.stranded_pages.iter().copied()),
    );
    metrics.share(REFUSED_EARLY, seed, sum(|log| log.refused_early), charges);
    metrics.share(
        REFUSED_IN_SPITE,
        seed,
        sum(|log| log.refused_in_spite),
        charges,
    );
    metrics.spread(
        DRAIN_TIME,
        logs.iter().flat_map(|log| log.drains_ns.iter().copied()),
    );
    Ok(metrics)
}

impl<M: Timers, S: Subject> Scene<'_, M, S> {
    fn is_over(&self) -> bool {
        self.machine.now_ns() >= self.end_ns
    }

    /// Charges to the groups of a set in turn, and gives all back, again and again.
    fn work(&self, cpu: u32, log: &mut Log) {
        let own = self.parameters;
        let mut random = Random::fork(own.seed, u64::from(cpu));
        // Tasks are at different points of a cycle when the run begins.
        let mut left = 1 + random.below(own.cycle_charges);
        let mut set = u64::from(cpu) % own.group_sets;
        let mut held = Vec::new();
        while !self.is_over() {
            for nth in 0..left {
                let group = set * own.groups + nth % own.groups;
                let Some(charge) = self.charge(group as usize, log) else {
                    break;
                };
                held.push(charge);
                self.machine.compute(own.work_ns);
            }
            while !held.is_empty() {
                let keep = held.len().saturating_sub(own.release_charges as usize);
                let mut some = held.split_off(keep);
                let pages = some.len() as u64 * own.charge_pages;
                self.subject.release(&mut some);
                // Relaxed: a tally that orders nothing.
                self.held_pages.fetch_sub(pages, Ordering::Relaxed);
            }
            if own.moves {
                set = (set + 1) % own.group_sets;
            }
            left = own.cycle_charges;
        }
        log.ended_ns = self.machine.now_ns();
    }

    /// Charges once. Where a limit refuses it, drains and tries once more.
    fn charge(&self, group: usize, log: &mut Log) -> Option<S::Charge> {
        let pages = self.parameters.charge_pages;
        let began_ns = self.machine.now_ns();
        log.charges += 1;
        // Before the charge: so what tasks hold is never more than this says.
        self.held_pages.fetch_add(pages, Ordering::Relaxed);
        let has_room = || self.held_pages.load(Ordering::Relaxed) <= self.limit_pages;
        let mut charge = self.subject.try_charge(group, pages);
        if charge.is_none() {
            log.refused_early += u64::from(has_room());
            self.drain_once(log);
            charge = self.subject.try_charge(group, pages);
        }
        if charge.is_none() {
            log.refused_in_spite += u64::from(has_room());
            self.held_pages.fetch_sub(pages, Ordering::Relaxed);
        }
        log.charges_ns.record(self.machine.now_ns() - began_ns);
        charge
    }

    fn drain_once(&self, log: &mut Log) {
        let began_ns = self.machine.now_ns();
        if self.subject.drain() {
            log.drains_ns.push(self.machine.now_ns() - began_ns);
        }
    }

    /// Samples the pages that are charged and that nobody holds.
    fn sample(&self, log: &mut Log) {
        self.each(self.parameters.sample_interval_us, || {
            let held = self.held_pages.load(Ordering::Relaxed);
            let stranded = self.subject.usage_pages().saturating_sub(held);
            log.stranded_pages.push(stranded);
        });
    }

    /// Drains as others do.
    fn drain(&self, log: &mut Log) {
        if self.parameters.drain_interval_us > 0 {
            self.each(self.parameters.drain_interval_us, || self.drain_once(log));
        }
    }

    /// Does something at the end of each interval until the run is over.
    fn each(&self, interval_us: u64, mut act: impl FnMut()) {
        loop {
            let now_ns = self.machine.now_ns();
            self.machine.sleep_until(now_ns + interval_us * 1_000);
            if self.is_over() {
                return;
            }
            act();
        }
    }
}
