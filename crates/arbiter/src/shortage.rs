//! Decisions in a shortage: pure functions of the running queries.

use std::cmp::Reverse;
use std::time::Duration;

use crate::policy::{VictimOrder, Yielding};

/// Place of a query in the order in which memory goes to those that run: the least comes first, and yields last.
///
/// The user's order comes before ours: whether it can run again, precedence of the tenant, bytes of the tenant for its weight, score, and
/// the time at which it began.
pub(crate) type Claim = (
    /* may run again */ bool,
    Reverse<i32>,
    u64,
    Reverse<i32>,
    u64,
);

/// A query that runs below the limit in question, as a decision sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) grant: u64,
    pub(crate) claim: Claim,
    /// Bytes that return to the limit if it ends: those that are charged or promised to it.
    pub(crate) holds: u64,
    /// Bytes that it says it can give back, if it was not asked in vain.
    pub(crate) reclaimable: u64,
    /// Whether it can be stopped: it has an engine, or waits for memory itself.
    pub(crate) can_stop: bool,
    /// Whether its tenant is within its `min`.
    pub(crate) is_protected: bool,
    /// Whether it waits for memory.
    pub(crate) waits: bool,
    /// Whether it was asked or told to stop, and has time left for that.
    pub(crate) is_leaving: bool,
}

/// Bytes that one query needs and that a limit does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    /// The query that it is for.
    pub(crate) grant: u64,
    pub(crate) claim: Claim,
    /// Bytes, without those that are expected from queries that leave.
    pub(crate) missing: u64,
    /// Time since when.
    pub(crate) age_ns: u64,
    /// Whether a query that was told to stop has time left for it.
    pub(crate) is_stopping: bool,
    /// Whether queries may be stopped for it, and not only asked.
    pub(crate) may_stop: bool,
}

/// Step against a shortage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A query is asked to give back so many bytes.
    Ask { grant: u64, bytes: u64 },
    /// A query is stopped.
    Stop { grant: u64 },
    /// The query that it is for is refused: nobody else can give back anything.
    Refuse,
}

/// Returns the steps to take now; none if it is a time to wait.
pub(crate) fn steps(running: &[Running], shortage: &Shortage, policy: &Yielding) -> Vec<Step> {
    let mut missing = shortage.missing;
    let mut steps = Vec::new();
    if missing == 0 {
        return steps;
    }
    let others = || running.iter().filter(|one| one.grant != shortage.grant);
    // Somebody who runs and does not wait may end, and so may one who leaves.
    let is_stuck = others().all(|one| one.waits && !one.is_leaving);
    let is_older = |than: Duration| is_stuck || u128::from(shortage.age_ns) >= than.as_nanos();
    // Those that come later in the order, and of these the last first.
    let later = || others().filter(|one| one.claim > shortage.claim && !one.is_leaving);
    let may_ask = is_older(policy.ask_after);
    let mut spillers: Vec<&Running> = later()
        .filter(|one| may_ask && one.reclaimable > 0)
        .collect();
    spillers.sort_unstable_by_key(|one| Reverse(one.claim));
    for one in spillers {
        let bytes = one.reclaimable.min(missing);
        steps.push(Step::Ask {
            grant: one.grant,
            bytes,
        });
        missing -= bytes;
        if missing == 0 {
            return steps;
        }
    }
    if !steps.is_empty() {
        // The rest is for the next look, which knows what they gave.
        return steps;
    }
    if !shortage.may_stop {
        return steps;
    }
    let victims = || {
        later().filter(|one| {
            one.can_stop
                && !one.is_protected
                && one.claim.0
                && one.holds >= policy.victim_min.max(1)
        })
    };
    let helps = |one: &Running| u128::from(one.holds);
    let all: u128 = victims().map(helps).sum();
    if all >= u128::from(missing) && !shortage.is_stopping && is_older(policy.stop_after) {
        let victim = match policy.victim {
            VictimOrder::Youngest => victims().max_by_key(|one| one.claim),
            VictimOrder::Largest => victims().max_by_key(|one| {
                let (.., score, _) = one.claim;
                (one.claim.1, one.claim.2, score, one.holds, one.grant)
            }),
        };
        steps.extend(victim.map(|one| Step::Stop { grant: one.grant }));
    } else if is_stuck && !shortage.is_stopping {
        steps.push(Step::Refuse);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(score: i32, began: u64) -> Claim {
        (true, Reverse(0), 0, Reverse(score), began)
    }

    fn running(grant: u64, score: i32, holds: u64) -> Running {
        Running {
            grant,
            claim: claim(score, grant),
            holds,
            reclaimable: 0,
            can_stop: true,
            is_protected: false,
            waits: false,
            is_leaving: false,
        }
    }

    fn shortage(missing: u64) -> Shortage {
        Shortage {
            grant: 1,
            claim: claim(0, 1),
            missing,
            age_ns: u64::MAX,
            is_stopping: false,
            may_stop: true,
        }
    }

    fn policy() -> Yielding {
        Yielding {
            victim_min: 10,
            ..Yielding::default()
        }
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn those_that_can_spill_are_asked_from_the_last_of_the_order_on_for_no_more_than_is_missing() {
        let mut all = [running(2, 0, 50), running(3, 5, 50), running(4, 0, 50)];
        for one in &mut all {
            one.reclaimable = 40;
        }
        let asked = steps(&all, &shortage(60), &policy());
        // The one of the higher score comes before the one that asks.
        let expected = [(4, 40), (2, 20)].map(|(grant, bytes)| Step::Ask { grant, bytes });
        assert_eq!(asked, expected);
    }

    #[test]
    fn one_is_stopped_at_a_time_and_only_if_all_together_are_enough() {
        let all = [running(2, 0, 50), running(3, 0, 40)];
        assert_eq!(
            steps(&all, &shortage(80), &policy()),
            [Step::Stop { grant: 3 }]
        );
        assert_eq!(steps(&all, &shortage(91), &policy()), []);
        let stopping = Shortage {
            is_stopping: true,
            ..shortage(40)
        };
        assert_eq!(steps(&all, &stopping, &policy()), []);
    }

    #[test]
    fn nobody_is_stopped_before_its_time_unless_all_wait() {
        let policy = Yielding {
            stop_after: Duration::from_millis(1),
            ..policy()
        };
        let young = Shortage {
            age_ns: 999_999,
            ..shortage(40)
        };
        let mut all = [running(2, 0, 50)];
        assert_eq!(steps(&all, &young, &policy), []);
        all[0].waits = true;
        assert_eq!(steps(&all, &young, &policy), [Step::Stop { grant: 2 }]);
    }

    #[test]
    fn who_is_protected_holds_little_cannot_run_again_or_has_no_engine_is_not_stopped() {
        let ok = running(2, 0, 50);
        let others = [
            Running {
                is_protected: true,
                ..ok
            },
            Running { holds: 9, ..ok },
            Running {
                claim: (false, Reverse(0), 0, Reverse(0), 2),
                ..ok
            },
            Running {
                can_stop: false,
                ..ok
            },
            Running {
                is_leaving: true,
                ..ok
            },
        ];
        for one in others {
            assert_eq!(steps(&[one], &shortage(5), &policy()), [], "{one:?}");
        }
        assert_eq!(
            steps(&[ok], &shortage(5), &policy()),
            [Step::Stop { grant: 2 }]
        );
    }

    #[test]
    fn if_all_wait_and_nobody_can_yield_the_first_is_refused() {
        let mut one = running(2, 0, 50);
        one.waits = true;
        assert_eq!(steps(&[one], &shortage(51), &policy()), [Step::Refuse]);
        assert_eq!(steps(&[], &shortage(51), &policy()), [Step::Refuse]);
        // Nothing is missing if enough is on its way.
        assert_eq!(steps(&[], &shortage(0), &policy()), []);
    }

    #[test]
    fn the_largest_is_stopped_if_the_policy_says_so_but_not_before_a_lower_score() {
        let policy = Yielding {
            victim: VictimOrder::Largest,
            ..policy()
        };
        let all = [
            running(2, 0, 50 * MIB),
            running(3, 0, 40 * MIB),
            running(4, -1, 20 * MIB),
        ];
        let stopped = |all: &[Running]| steps(all, &shortage(40), &policy);
        assert_eq!(stopped(&all), [Step::Stop { grant: 4 }]);
        assert_eq!(stopped(&all[..2]), [Step::Stop { grant: 2 }]);
    }
}
