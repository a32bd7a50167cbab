//! Readers that need usage and statistics, and those of several groups, to fit together: the system's own use is the
//! total less the free memory less the sum of the top groups.
//!
//! A round reads the root, then every tenant. In truth each charged page is anonymous, of a file or of a socket, and
//! pages are charged below tenants only. So both differences are 0, except for operations under way, and their distance
//! from 0 shows how badly the numbers fit together. If a variant's usage counts the per-CPU stock of charged pages, as
//! the kernel's `memory.current` does, the first difference contains that stock.

use std::time::Duration;

use bursar_machine::Tasks;

use super::Scene;
use crate::measure::{Metric, Samples, Unit};
use crate::memcg_flush::outcome::Outcome;
use crate::memcg_flush::statistics::Stat;
use crate::memcg_flush::subject::{Need, Numbers, Subject};
use crate::memcg_flush::tree::Tree;
use crate::random::Random;

const CHARGED: [Stat; 3] = [Stat::Anon, Stat::File, Stat::Sock];

/// Time between the reader's look at the clock and that of the read (judgement). A greater value makes the numbers no
/// older.
const CLOCK_SLACK: Duration = Duration::from_micros(10);

/// Result of one round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Round {
    latency_ns: u64,
    /// By tenant.
    pair_errors: Vec<u64>,
    overhead_error: u64,
}

fn charged(numbers: &Numbers) -> i64 {
    CHARGED.iter().map(|&stat| numbers.get(stat)).sum()
}

/// Returns the difference between the root and the sum of the tenants.
fn overhead_error(root: i64, tenants: &[i64]) -> u64 {
    root.abs_diff(tenants.iter().sum())
}

/// Returns the freshness that the tenants' numbers need `elapsed` after the reader asked for the root's. It is no
/// greater than the root's, so that the flush for the root may answer for them too.
fn need_of_tenants(need: Need, elapsed: Duration) -> Need {
    let of_root = match need {
        Need::Own => Duration::ZERO,
        Need::AtMost(age) => age,
    };
    Need::AtMost(of_root + elapsed + CLOCK_SLACK)
}

/// Reads again and again until the end.
pub(super) fn read<M: Tasks, S: Subject<M>>(
    scene: &Scene<'_, M, S>,
    index: u64,
) -> Result<Vec<Round>, String> {
    let parameters = scene.parameters;
    let tree = parameters.tree();
    let mut random = Random::fork(parameters.seed, index);
    let mut rounds = Vec::new();
    scene.now_and_then(parameters.read_interval_ms, &mut random, || {
        let began_ns = scene.machine.now_ns();
        let root = scene
            .subject
            .read(Tree::ROOT, parameters.need(), &CHARGED)?;
        let mut sums = Vec::with_capacity(tree.tenants);
        let mut pair_errors = Vec::with_capacity(tree.tenants);
        for tenant in 0..tree.tenants {
            let elapsed = Duration::from_nanos(scene.machine.now_ns() - began_ns);
            let need = need_of_tenants(parameters.need(), elapsed);
            let numbers = scene.subject.read(tree.tenant(tenant), need, &CHARGED)?;
            pair_errors.push(numbers.usage_pages.abs_diff(charged(&numbers)));
            sums.push(charged(&numbers));
        }
        rounds.push(Round {
            latency_ns: scene.machine.now_ns() - began_ns,
            pair_errors,
            overhead_error: overhead_error(charged(&root), &sums),
        });
        Ok(())
    })?;
    Ok(rounds)
}

/// Adds the measurements of all these readers.
pub(super) fn report(rounds: &[Round], outcome: &mut Outcome) {
    let mut latency = Samples::new(Unit::Ns);
    let mut pair = Samples::new(Unit::Count);
    let mut overhead = Samples::new(Unit::Count);
    for round in rounds {
        latency.record(round.latency_ns);
        overhead.record(round.overhead_error);
        round
            .pair_errors
            .iter()
            .for_each(|&pages| pair.record(pages));
    }
    for (name, samples) in [
        ("pair_latency", latency),
        ("pair_error_pages", pair),
        ("overhead_error_pages", overhead),
    ] {
        outcome.push(name, Metric::Distribution(samples.distribution()));
    }
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

    #[test]
    fn tenants_may_be_as_old_as_the_root_but_no_older() {
        let elapsed = Duration::from_micros(300);
        assert_eq!(
            need_of_tenants(Need::Own, elapsed),
            Need::AtMost(Duration::from_micros(310))
        );
        assert_eq!(
            need_of_tenants(Need::AtMost(Duration::from_millis(1)), elapsed),
            Need::AtMost(Duration::from_micros(1310))
        );
    }
}
