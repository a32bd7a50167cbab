//! Proactive reclaim: a loop for a tenant that takes some pages back, looks at the numbers, and stops when it seems
//! ineffective.
//!
//! A step reads, reclaims, and reads again. It looks effective if the statistics fell by at least half of the requested
//! pages. It was effective if the truth fell by as much between the same two moments. A loop stops after some steps in
//! a row that looked ineffective. It stopped early if it would have gone on with true numbers.

use bursar_rig::Tasks;

use super::scene::{RESIDENT, Scene, resident};
use crate::document::Metrics;
use crate::memcg_flush::subject::Subject;
use crate::metrics::memcg_flush::*;
use crate::random::Random;

/// Steps in a row that look ineffective, after which a loop stops (judgement).
const PATIENCE: u32 = 3;

/// Outcome of a loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    steps: u64,
    /// Last steps in a row that looked ineffective, and how many of them were effective.
    ineffective: u32,
    deceptive: u32,
}

impl Run {
    /// Counts a step by its look and its truth.
    fn count(&mut self, looked: Effect, was: Effect) {
        self.steps += 1;
        match looked {
            Effect::Some => (self.ineffective, self.deceptive) = (0, 0),
            Effect::None => {
                self.ineffective += 1;
                self.deceptive += u32::from(was == Effect::Some);
            }
        }
    }

    fn has_stopped(self) -> bool {
        self.ineffective >= PATIENCE
    }

    fn has_stopped_early(self) -> bool {
        self.has_stopped() && self.deceptive > 0
    }
}

/// Whether a step freed a considerable part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    None,
    Some,
}

impl Effect {
    fn of(before: i64, after: i64, step_pages: u64) -> Self {
        if i128::from(before - after) * 2 >= i128::from(step_pages) {
            Self::Some
        } else {
            Self::None
        }
    }
}

/// Reclaims from a tenant until it looks ineffective, or until the end.
pub(super) fn reclaim<M: Tasks, S: Subject<M>>(
    scene: &Scene<'_, M, S>,
    index: u64,
    tenant: usize,
) -> Result<Run, String> {
    let parameters = scene.parameters;
    let group = parameters.tree().tenant(tenant);
    let step_pages = parameters.proactive_step_pages;
    let truth = || scene.oracle.pages(tenant) as i64;
    let mut random = Random::fork(parameters.seed, index);
    let mut run = Run::default();
    scene.now_and_then(parameters.proactive_interval_ms, &mut random, || {
        if run.has_stopped() {
            return Ok(());
        }
        let read = || scene.subject.read(group, parameters.need(), &RESIDENT);
        let before = (resident(&read()?), truth());
        scene.reclaim.reclaim(tenant, step_pages);
        let truth_after = truth();
        let after = resident(&read()?);
        run.count(
            Effect::of(before.0, after, step_pages),
            Effect::of(before.1, truth_after, step_pages),
        );
        Ok(())
    })?;
    Ok(run)
}

/// Adds the measurements of all loops.
pub(super) fn report(runs: &[Run], seed: u64, metrics: &mut Metrics) {
    let early = runs.iter().filter(|run| run.has_stopped_early()).count() as u64;
    let stopped = runs.iter().filter(|run| run.has_stopped());
    metrics.count(PROACTIVE_STEPS, runs.iter().map(|run| run.steps).sum());
    metrics.share(STOPPED_EARLY, seed, early, runs.len() as u64);
    metrics.spread(STEPS_UNTIL_STOP, stopped.map(|run| run.steps));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_effective_if_half_of_it_is_gone() {
        assert_eq!(Effect::of(1000, 968, 64), Effect::Some);
        assert_eq!(Effect::of(1000, 969, 64), Effect::None);
        assert_eq!(Effect::of(1000, 1100, 64), Effect::None);
        assert_eq!(Effect::of(10, 9, 1), Effect::Some);
    }

    fn run(steps: &[(Effect, Effect)]) -> Run {
        let mut run = Run::default();
        steps
            .iter()
            .for_each(|&(looked, was)| run.count(looked, was));
        run
    }

    #[test]
    fn a_loop_stops_after_three_steps_in_a_row_that_look_ineffective() {
        use Effect::{None, Some};
        let broken = run(&[(None, None), (None, None), (Some, Some), (None, None)]);
        assert!(!broken.has_stopped());
        let stopped = run(&[(Some, Some), (None, None), (None, None), (None, None)]);
        assert!(stopped.has_stopped() && !stopped.has_stopped_early());
        assert_eq!(stopped.steps, 4);
    }

    #[test]
    fn a_loop_stops_early_if_one_of_the_last_three_was_effective() {
        use Effect::{None, Some};
        assert!(run(&[(None, None), (None, Some), (None, None)]).has_stopped_early());
        assert!(!run(&[(None, Some), (None, Some)]).has_stopped_early());
        let forgotten = [
            (None, Some),
            (Some, Some),
            (None, None),
            (None, None),
            (None, None),
        ];
        assert!(!run(&forgotten).has_stopped_early());
    }
}
