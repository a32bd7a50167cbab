//! User-space OOM killers: they choose a victim by the numbers that they read. No victim is killed; the choice is
//! judged.
//!
//! A killer chooses by `memory.stat`, by `memory.current`, or by `pgscan`, as systemd-oomd does for pressure: the tenant in which
//! reclaim looked at most pages since the last decision. Pressure itself (PSI) is not modelled: the kernel averages the
//! times of waiting tasks on its own, without these statistics.
//!
//! A decision is wrong if the victim was not the largest tenant, or nearly so, both when the decision began and when it
//! ended. A decision by numbers that were true at either moment is right. A killer that reads
//! `pgscan` is judged by size, too.

use bursar_rig::Tasks;

use super::scene::{RESIDENT, Scene, resident};
use crate::document::Metrics;
use crate::memcg_flush::parameters::KillerReads;
use crate::memcg_flush::statistics::Stat;
use crate::memcg_flush::subject::Subject;
use crate::memcg_flush::tree::Tree;
use crate::metrics::memcg_flush::*;
use crate::random::Random;

/// Margin by which a victim may be smaller than the largest tenant (judgement).
const MARGIN_PERCENT: u64 = 10;

/// Outcome of one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    latency_ns: u64,
    is_wrong: bool,
    shortfall_pages: u64,
}

/// Returns the pages that the largest tenant has more than the victim.
fn shortfall(victim: usize, pages: &[u64]) -> u64 {
    pages.iter().max().map_or(0, |most| most - pages[victim])
}

/// Returns whether the victim is too small by the truth of one moment.
fn is_too_small(victim: usize, pages: &[u64]) -> bool {
    let most = pages[victim] + shortfall(victim, pages);
    pages[victim] * 100 < most * (100 - MARGIN_PERCENT)
}

/// Judges the choice of `victim` by the truth when it began and when it ended.
fn judge(victim: usize, latency_ns: u64, before: &[u64], after: &[u64]) -> Decision {
    Decision {
        latency_ns,
        is_wrong: is_too_small(victim, before) && is_too_small(victim, after),
        shortfall_pages: shortfall(victim, before).min(shortfall(victim, after)),
    }
}

/// Returns the first of the largest.
fn largest(pages: &[u64]) -> usize {
    let most = pages.iter().max();
    pages
        .iter()
        .position(|pages| Some(pages) == most)
        .unwrap_or(0)
}

/// Decides again and again until the end.
pub(super) fn decide<M: Tasks, S: Subject<M>>(
    scene: &Scene<'_, M, S>,
    index: u64,
) -> Result<Vec<Decision>, String> {
    let parameters = scene.parameters;
    let tree = parameters.tree();
    let mut random = Random::fork(parameters.seed, index);
    let tenants: Vec<_> = (0..tree.tenants).map(|it| tree.tenant(it)).collect();
    let mut decisions = Vec::new();
    let mut scanned_before = vec![0; tenants.len()];
    scene.now_and_then(parameters.killer_interval_ms, &mut random, || {
        let before = scene.oracle.all();
        let began_ns = scene.machine.now_ns();
        let subject = scene.subject;
        let read =
            |wanted: &[Stat]| subject.read_all(Tree::ROOT, &tenants, parameters.need(), wanted);
        let shown = |pages: i64| u64::try_from(pages).unwrap_or(0);
        let pages: Vec<u64> = match parameters.killer_reads {
            KillerReads::MemoryStat => {
                let numbers = read(&RESIDENT)?;
                numbers.iter().map(|it| shown(resident(it))).collect()
            }
            KillerReads::MemoryCurrent => {
                let tenants = tenants.iter();
                tenants.map(|&it| subject.current_pages(it)).collect()
            }
            KillerReads::Pgscan => {
                let numbers = read(&[Stat::Pgscan])?;
                let scanned = numbers.iter().map(|it| it.get(Stat::Pgscan));
                let before = scanned_before.iter_mut();
                let since = |(now, before)| shown(now - std::mem::replace(before, now));
                scanned.zip(before).map(since).collect()
            }
        };
        let ended_ns = scene.machine.now_ns();
        let latency_ns = ended_ns - began_ns;
        decisions.push(judge(
            largest(&pages),
            latency_ns,
            &before,
            &scene.oracle.all(),
        ));
        Ok(())
    })?;
    Ok(decisions)
}

/// Adds the measurements of all killers.
pub(super) fn report(decisions: &[Decision], seed: u64, metrics: &mut Metrics) {
    let wrong = decisions
        .iter()
        .filter(|decision| decision.is_wrong)
        .count();
    metrics.share(WRONG_VICTIMS, seed, wrong as u64, decisions.len() as u64);
    metrics.spread(DECISION_LATENCY, decisions.iter().map(|it| it.latency_ns));
    metrics.spread(
        VICTIM_SHORTFALL_PAGES,
        decisions.iter().map(|it| it.shortfall_pages),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_victim_is_wrong_if_it_was_too_small_at_both_ends() {
        let is_wrong =
            |victim, before: &[u64], after: &[u64]| judge(victim, 0, before, after).is_wrong;
        assert!(is_wrong(0, &[89, 100], &[80, 100]));
        assert!(!is_wrong(0, &[90, 100], &[80, 100]), "within the margin");
        assert!(!is_wrong(0, &[10, 100], &[100, 10]), "right at the end");
        assert!(
            !is_wrong(1, &[10, 100], &[100, 10]),
            "right at the beginning"
        );
        assert!(!is_wrong(0, &[0, 0], &[0, 0]), "nobody has anything");
        assert!(!is_wrong(0, &[7], &[7]), "there is no other");
    }

    #[test]
    fn the_shortfall_is_the_smaller_of_both_ends() {
        assert_eq!(judge(0, 0, &[60, 100], &[90, 100]).shortfall_pages, 10);
        assert_eq!(judge(1, 0, &[60, 100], &[90, 100]).shortfall_pages, 0);
    }

    #[test]
    fn the_first_of_the_largest_is_chosen() {
        assert_eq!(largest(&[3, 9, 9, 1]), 1);
        assert_eq!(largest(&[0, 0]), 0);
    }
}
