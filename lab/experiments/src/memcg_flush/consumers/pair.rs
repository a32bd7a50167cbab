//! Readers that need usage and statistics, and those of several groups, to fit together: the system's own use is the
//! total less the free memory less the sum of the top groups.
//!
//! A round reads the root and every tenant. In truth each charged page is anonymous, of a file or of a socket, and
//! pages are charged below tenants only. So both differences are 0, except for operations under way, and their distance
//! from 0 shows how badly the numbers fit together. If a variant's usage counts the per-CPU stock of charged pages, as
//! the kernel's `memory.current` does, the first difference contains that stock.
//!
//! A round also takes the system's own use as MemTotal - MemFree - sum of `memory.current`, which needs no statistics. All
//! memory in use is the tenants' here, so its distance from 0 is what their counters have wrong: stock. The error of
//! MemFree, pages on the lists of CPUs, is not modelled.

use bursar_kernel::stats::GroupIndex;
use bursar_rig::Tasks;

use super::scene::Scene;
use crate::document::Metrics;
use crate::memcg_flush::statistics::Stat;
use crate::memcg_flush::subject::{Numbers, Subject};
use crate::memcg_flush::tree::Tree;
use crate::metrics::memcg_flush::*;
use crate::random::Random;

const CHARGED: [Stat; 3] = [Stat::Anon, Stat::File, Stat::Sock];

/// Result of one round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Round {
    latency_ns: u64,
    /// By tenant.
    pair_errors: Vec<u64>,
    overhead_error: u64,
    /// Pages in use less the sum of the tenants' usage, without its sign.
    overhead_current: u64,
}

fn charged(numbers: &Numbers) -> i64 {
    CHARGED.iter().map(|&stat| numbers.get(stat)).sum()
}

/// Returns the difference between the usage and the statistics of one group.
fn pair_error(numbers: &Numbers) -> u64 {
    numbers.usage_pages.abs_diff(charged(numbers))
}

/// Returns the difference between the root and the sum of the tenants.
fn overhead_error(root: i64, tenants: &[i64]) -> u64 {
    root.abs_diff(tenants.iter().sum())
}

/// Reads again and again until the end.
pub(super) fn read<M: Tasks, S: Subject<M>>(
    scene: &Scene<'_, M, S>,
    index: u64,
) -> Result<Vec<Round>, String> {
    let parameters = scene.parameters;
    let tree = parameters.tree();
    let mut random = Random::fork(parameters.seed, index);
    let tenants = (0..tree.tenants).map(|it| tree.tenant(it));
    let groups: Vec<_> = [Tree::ROOT].into_iter().chain(tenants).collect();
    let mut rounds = Vec::new();
    scene.now_and_then(parameters.read_interval_ms, &mut random, || {
        let began_ns = scene.machine.now_ns();
        let numbers = scene
            .subject
            .read_all(Tree::ROOT, &groups, parameters.need(), &CHARGED)?;
        let latency_ns = scene.machine.now_ns() - began_ns;
        let used: u64 = scene.oracle.all().into_iter().sum();
        let current = |&group: &GroupIndex| scene.subject.current_pages(group);
        let current: u64 = groups[1..].iter().map(current).sum();
        let (root, tenants) = numbers.split_first().expect("the root is the first group");
        let sums: Vec<_> = tenants.iter().map(charged).collect();
        rounds.push(Round {
            latency_ns,
            pair_errors: tenants.iter().map(pair_error).collect(),
            overhead_error: overhead_error(charged(root), &sums),
            overhead_current: used.abs_diff(current),
        });
        Ok(())
    })?;
    Ok(rounds)
}

/// Adds the measurements of all these readers.
pub(super) fn report(rounds: &[Round], metrics: &mut Metrics) {
    metrics.spread(PAIR_LATENCY, rounds.iter().map(|it| it.latency_ns));
    let errors = rounds.iter().flat_map(|it| it.pair_errors.iter().copied());
    metrics.spread(PAIR_ERROR_PAGES, errors);
    metrics.spread(
        OVERHEAD_ERROR_PAGES,
        rounds.iter().map(|it| it.overhead_error),
    );
    metrics.spread(
        OVERHEAD_CURRENT_PAGES,
        rounds.iter().map(|it| it.overhead_current),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_that_add_up_to_the_root_leave_no_error() {
        assert_eq!(overhead_error(12, &[5, 7]), 0);
        assert_eq!(overhead_error(10, &[5, 7]), 2);
        assert_eq!(overhead_error(12, &[5, -1]), 8);
    }
}
