//! Tasks that decide by the numbers that they read, beside workers and readers.
//!
//! | task | file |
//! |---|---|
//! | user-space OOM killers | `killer.rs` |
//! | readers of numbers that must fit together | `pair.rs` |
//! | proactive reclaim | `proactive.rs` |
//!
//! Each kind is enabled by a parameter. All ask for numbers as fresh as `need_ms` requires.

mod killer;
mod pair;
mod proactive;
mod scene;

pub(super) use self::scene::Scene;

use bursar_rig::Tasks;

use super::parameters::Parameters;
use super::subject::Subject;
use super::worker::Task;
use crate::document::Metrics;

/// Measurements of all consumers.
pub(super) struct Consumers {
    killers: Vec<Result<Vec<killer::Decision>, String>>,
    pairs: Vec<Result<Vec<pair::Round>, String>>,
    proactive: Vec<Result<proactive::Run, String>>,
}

fn nothing_yet<T: Default>(count: u64) -> Vec<Result<T, String>> {
    (0..count).map(|_| Ok(T::default())).collect()
}

impl Consumers {
    pub(super) fn new(parameters: &Parameters) -> Self {
        Self {
            killers: nothing_yet(parameters.killers),
            pairs: nothing_yet(parameters.pairs),
            proactive: nothing_yet(parameters.proactive),
        }
    }

    /// Returns their tasks. `first` is the number of the first one among all tasks that draw random numbers.
    pub(super) fn tasks<'a, M: Tasks, S: Subject<M>>(
        &'a mut self,
        scene: &'a Scene<'_, M, S>,
        first: u64,
    ) -> Vec<Task<'a>> {
        let mut tasks: Vec<Task<'a>> = Vec::new();
        let mut indices = first..;
        for (result, index) in self.killers.iter_mut().zip(&mut indices) {
            tasks.push(Box::new(move || *result = killer::decide(scene, index)));
        }
        for (result, index) in self.pairs.iter_mut().zip(&mut indices) {
            tasks.push(Box::new(move || *result = pair::read(scene, index)));
        }
        for ((tenant, result), index) in self.proactive.iter_mut().enumerate().zip(&mut indices) {
            tasks.push(Box::new(move || {
                *result = proactive::reclaim(scene, index, tenant);
            }));
        }
        tasks
    }

    /// Adds the measurements of the kinds that are enabled.
    ///
    /// # Errors
    /// The reason why one of them had to give up.
    pub(super) fn report(self, seed: u64, metrics: &mut Metrics) -> Result<(), String> {
        let all = |parts: Vec<Result<_, String>>| parts.into_iter().collect::<Result<Vec<_>, _>>();
        if !self.killers.is_empty() {
            killer::report(&all(self.killers)?.concat(), seed, metrics);
        }
        let pairs = self.pairs.into_iter().collect::<Result<Vec<_>, _>>()?;
        if !pairs.is_empty() {
            pair::report(&pairs.concat(), metrics);
        }
        let runs = self.proactive.into_iter().collect::<Result<Vec<_>, _>>()?;
        if !runs.is_empty() {
            proactive::report(&runs, seed, metrics);
        }
        Ok(())
    }
}
