//! The experiment of the page-allocator thread of September 2025: how many pages are freed under one hold of the locks,
//! and which tasks wait meanwhile.
//!
//! | part | file |
//! |---|---|
//! | the parameters and their ranges | `parameters.rs` |
//! | the variants | `variant.rs`, over `../page_subject/` |
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
mod variant;

use bursar_rig::timer::{BoundTask, Timers};

pub use parameters::Parameters;

use self::outcome::Outcome;
use self::scene::{Job, Log, Scene};
use self::variant::Variant;
use crate::document::VariantResult;
use crate::page_subject::{Lists, Own, Theirs};
use crate::settings::ParameterError;
use crate::workload::{RunError, Workload};

impl Workload for Parameters {
    fn check(&self) -> Result<(), ParameterError> {
        self.check_ranges()
    }

    fn check_simulated(&self) -> Result<(), ParameterError> {
        self.check_tasks()
    }

    fn ranges(&self) -> Vec<(&'static str, u64, u64, u64)> {
        Parameters::ranges(self)
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    fn run_ms(&self) -> u64 {
        self.duration_ms
    }

    fn estimated_seconds(&self, cpus: Option<usize>) -> f64 {
        self.estimate(cpus)
    }

    fn summary(variant: &str) -> &'static str {
        Variant::named(variant).map_or("", Variant::summary)
    }

    fn run<M: Timers>(&self, machine: &M, variant: &str) -> Result<VariantResult, RunError> {
        let fail = |reason: String| RunError {
            variant: variant.to_owned(),
            reason,
        };
        let known = Variant::named(variant).ok_or_else(|| fail("no such variant".to_owned()))?;
        let outcome = match known {
            Variant::Bounded => self
                .own_sizes(machine.cpus())
                .and_then(|sizes| Own::new(machine, sizes))
                .and_then(|own| measure(machine, &own, self)),
            Variant::Published(release) => self
                .published_settings(machine.cpus(), release)
                .and_then(|settings| Theirs::new(machine, settings))
                .and_then(|theirs| measure(machine, &theirs, self)),
        };
        let metrics = outcome.map_err(fail)?.metrics(self);
        Ok(VariantResult {
            name: variant.to_owned(),
            summary: known.summary().to_owned(),
            ran_seeds: vec![self.seed],
            metrics,
        })
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
    let jobs = scene.jobs();
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

#[cfg(test)]
mod tests;
