//! The experiment of the page-allocator thread of September 2025: how many pages are freed under one hold of the locks,
//! and which tasks wait meanwhile.
//!
//! | part | file |
//! |---|---|
//! | the parameters and their ranges | `parameters.rs` |
//! | state that all tasks of a run share | `scene.rs` |
//! | tasks that take or free a few pages now and then, and wait for others | `bystander.rs` |
//! | tasks that free many pages: exits, long lists, drains | `free.rs` |
//! | decay of the lists of all CPUs | `decay.rs` |
//! | tasks that map, fault, rewrite and unmap | `stress.rs`, with `swap.rs` |
//! | processes that come and go | `boot.rs` |
//! | the results of a run | `outcome.rs` |
//!
//! Every variant runs the same load from the same seed. If some pages are missing at the end, the run gives no result.

mod boot;
mod bystander;
mod decay;
mod free;
mod outcome;
mod parameters;
mod scene;
mod stress;
mod swap;

use bursar_rig::timer::{BoundTask, Timers};

pub use parameters::Parameters;

use self::outcome::Outcome;
use self::scene::{Job, Log, Scene};
use crate::document::Metrics;
use crate::page_allocators::{Lists, Own, Theirs};
use crate::workload::Workload;
use bursar_kernel::pages::Release;

/// A variant, over `../page_allocators/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Bursar.
    Bounded,
    /// A policy of the thread.
    Published(Release),
    /// `batched` taken to its end, as a control for rulings that nothing changed: each page is a batch.
    SinglePage,
}

impl Workload for Parameters {
    type Variant = Variant;

    fn variants() -> Vec<(&'static str, &'static str, Variant)> {
        let published = Release::ALL.map(|release| {
            (
                release.name(),
                release.summary(),
                Variant::Published(release),
            )
        });
        let about =
            "Bursar: batches go to a depot; holds of the zone's lock end after 63 blocks or 2 us";
        let control = "control: both locks are released after each page";
        published
            .into_iter()
            .chain([
                ("bounded", about, Variant::Bounded),
                ("single-page", control, Variant::SinglePage),
            ])
            .collect()
    }

    fn measure<M: Timers>(&self, machine: &M, variant: Variant) -> Result<Metrics, String> {
        let outcome = match variant {
            Variant::Bounded => {
                let own = Own::new(machine, self.own_sizes(machine.cpus())?)?;
                measure(machine, &own, self)
            }
            Variant::Published(release) => {
                let settings = self.published_settings(machine.cpus(), release)?;
                measure(machine, &Theirs::new(machine, settings)?, self)
            }
            Variant::SinglePage => {
                let mut settings = self.published_settings(machine.cpus(), Release::Batched)?;
                settings.piece_pages = Some(1);
                measure(machine, &Theirs::new(machine, settings)?, self)
            }
        };
        Ok(outcome?.metrics(self))
    }
}

/// Runs all tasks of the load, and checks afterwards that all pages are back.
fn measure<M: Timers, S: Lists<M>>(
    machine: &M,
    subject: &S,
    parameters: &Parameters,
) -> Result<Outcome, String> {
    let listed = parameters.listed_pages * machine.cpus() as u64;
    if listed > subject.managed_pages() / 2 {
        return Err(format!(
            "`listed_pages` on {} CPUs are {listed} pages, and may be half of all, {}",
            machine.cpus(),
            subject.managed_pages()
        ));
    }
    if parameters.listed_pages > 0 {
        subject.fill(machine, parameters.listed_pages as u32);
    }
    let mut scene = Scene::new(machine, subject, parameters);
    scene.map_before();
    scene.settle();
    let before = subject.holds();
    scene.start();
    let scene = &scene;
    let jobs = jobs(scene);
    let mut logs = vec![Log::default(); jobs.len()];
    let mut tasks: Vec<BoundTask<'_>> = Vec::new();
    for (Job { cpu, work }, log) in jobs.into_iter().zip(&mut logs) {
        tasks.push((cpu, Box::new(move || *log = work())));
    }
    machine.run_bound(tasks);
    let end_ns = logs.iter().map(|log| log.ended_ns).max().unwrap_or(0);
    let holds = subject.holds().since(&before);
    scene.clear();
    let (free, all) = (subject.free_pages(), subject.managed_pages());
    if free != all {
        return Err(format!(
            "{free} pages of {all} are free after all were freed"
        ));
    }
    Ok(Outcome::new(logs, holds, end_ns - scene.start_ns))
}

/// Returns all tasks of the load.
fn jobs<'s, M: Timers, S: Lists<M>>(scene: &'s Scene<'_, M, S>) -> Vec<Job<'s>> {
    let cpus = scene.machine.cpus() as u64;
    let own = scene.parameters;
    let mut jobs = Vec::new();
    // Each on a CPU of its own as long as there are any: those that free are never the ones that wait.
    let mut next_cpu = 0;
    let mut place = || {
        next_cpu += 1;
        Some(((next_cpu - 1) % cpus) as u32)
    };
    for index in 0..own.bystanders {
        jobs.push(scene.job(place(), move |scene, log| {
            bystander::stand_by(scene, index, log);
        }));
    }
    for index in 0..own.exiters {
        jobs.push(scene.job(place(), move |scene, log| free::exit(scene, index, log)));
    }
    for _ in 0..own.drains {
        jobs.push(scene.job(place(), free::drain));
    }
    for index in 0..own.freers {
        jobs.push(scene.job(place(), move |scene, log| {
            free::free_again_and_again(scene, index, log);
        }));
    }
    if own.decay_period_ms > 0 {
        for cpu in 0..cpus as u32 {
            jobs.push(scene.job(Some(cpu), move |scene, log| decay::decay(scene, cpu, log)));
        }
    }
    for index in 0..own.workers {
        jobs.push(scene.job(None, move |scene, log| stress::stress(scene, index, log)));
    }
    for index in 0..own.shells {
        jobs.push(scene.job(None, move |scene, log| boot::run(scene, index, log)));
    }
    jobs
}

#[cfg(test)]
mod tests;
