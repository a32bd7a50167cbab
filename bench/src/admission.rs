//! `admission`: asks that are granted at once, and the ends of their grants, alone and beside asks that wait.
//!
//! The floor is the group that each grant is: made below its tenant, and closed. The threads have tenants of their own, as clients have,
//! and one arbiter. Those that wait are blocked by the limits of ten other tenants.
//!
//! `wait for memory`: a query needs more than there is, and the arbiter decides about all that run. None of them can give back anything, so the
//! query gives up. `charge refused`: it does not wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use bursar::{Charge, Group, Limits, Memory};
use bursar_arbiter::{Admit, Answer, Arbiter, Ask, Engine, Grant, Policy, Stop};

use crate::rounds::{Heat, Racer};
use crate::series::{Run, Series};
use crate::targets::{Verdict, Wanted};
use crate::timing::{Slice, Spent, on_cpus};

/// The yardstick.
pub const FLOOR: &str = "a group, made and closed";
const SCENARIO: &str = "admit and end";
const DECISION: &str = "wait for memory";
const REFUSAL: &str = "charge refused";
/// Below the root: tenant, query.
const DEPTH: usize = 2;
/// Operations of a block.
const BLOCK: u64 = 256;
/// Tenants whose asks wait.
const WAITING_TENANTS: usize = 10;
/// Queries that run, of the second scenario.
const RUNNING: [usize; 3] = match cfg!(test) {
    false => [100, 1000, 10_000],
    // In this build the arbiter checks itself after each step.
    true => [1, 10, 100],
};

/// All heats.
pub fn heats() -> Vec<Heat> {
    let racers = vec![
        racer(FLOOR, None),
        racer("alone", Some(0)),
        racer("beside 10 that wait", Some(10)),
        racer("beside 10,000 that wait", Some(10_000)),
    ];
    let among = |scenario: &str, waits| {
        let racers = RUNNING.map(|running| Box::new(deciding(running, waits)) as Box<dyn Racer>);
        Heat {
            scenario: scenario.to_owned(),
            depth: DEPTH,
            threads: &[1],
            racers: Vec::from(racers),
        }
    };
    vec![
        Heat {
            scenario: SCENARIO.to_owned(),
            depth: DEPTH,
            threads: &[1, 2],
            racers,
        },
        among(DECISION, true),
        among(REFUSAL, false),
    ]
}

/// A query that needs more than there is, among others that run.
struct Deciding {
    name: String,
    /// Whether it waits. Otherwise it is refused.
    waits: bool,
    arbiter: Arbiter,
    running: Vec<(Charge, Grant)>,
}

/// An engine whose query can neither give back nor end.
struct Stubborn;

impl Engine for Stubborn {
    fn reclaimable(&self) -> u64 {
        0
    }
    fn ask(&self, _: u64, answer: Answer) {
        answer.cannot();
    }
    fn stop(&self, _: &Arc<Stop>) {}
}

fn deciding(running: usize, waits: bool) -> Deciding {
    let memory = Memory::builder().build();
    let memory = memory.expect("the host starts, it was tried");
    let mut policy = Policy::default();
    policy.yielding.ask_after = Duration::ZERO;
    policy.yielding.stop_after = Duration::ZERO;
    policy.yielding.victim_min = u64::MAX;
    let arbiter = Arbiter::new(&memory, policy);
    let tenants: Vec<Group> = (0..WAITING_TENANTS)
        .map(|number| {
            let limits = Limits::max(1 << 40);
            let tenant = memory.root().child(format!("t-{number}"), limits);
            tenant.expect("a new name")
        })
        .collect();
    let grants = (0..=running).map(|number| {
        let tenant = &tenants[number % tenants.len()];
        let ask = Ask::new(tenant, format!("q-{number}")).least(1 << 20, 0);
        let grant = arbiter.try_admit(ask).expect("there is room");
        grant.attach(Arc::new(Stubborn));
        (grant.try_charge(1 << 20).expect("it was promised"), grant)
    });
    let grants = grants.collect();
    memory.set_max((running as u64 + 1) << 20);
    Deciding {
        name: format!("among {running} that run"),
        waits,
        arbiter,
        running: grants,
    }
}

impl Racer for Deciding {
    fn name(&self) -> &str {
        &self.name
    }

    fn race(&self, cpus: &[usize], slice: Slice) -> Spent {
        let (_, first) = &self.running[0];
        on_cpus(cpus, |_, meeting| {
            let refused = || {
                let more = first.try_charge(1 << 10);
                assert!(more.is_err(), "nothing is left");
                1
            };
            let wait = || {
                let mut more = first.grow(1 << 10);
                let polled = Pin::new(&mut more).poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending(), "nobody gives back anything");
                1
            };
            match self.waits {
                true => slice.run(|| meeting.join(), wait),
                false => slice.run(|| meeting.join(), refused),
            }
        })
    }

    fn check(&self) -> Result<(), String> {
        match self.arbiter.counts().stopped {
            0 => Ok(()),
            stopped => Err(format!("{stopped} were stopped")),
        }
    }
}

struct Admitting {
    name: &'static str,
    tenants: Vec<Group>,
    /// None for the floor.
    arbiter: Option<Arbiter>,
    /// Grants that the waiting tenants hold, and their asks.
    _waiting: Arc<(Vec<Grant>, Vec<Admit>)>,
    names: AtomicU64,
}

fn racer(name: &'static str, waiting: Option<usize>) -> Box<dyn Racer> {
    let memory = Memory::builder().max(1 << 40).build();
    let memory = memory.expect("the host starts, it was tried");
    let tenant = |name: String, max| {
        memory
            .root()
            .child(name, Limits::max(max))
            .expect("a new name")
    };
    let arbiter = Arbiter::new(&memory, Policy::default());
    let (mut held, mut asks) = (Vec::new(), Vec::new());
    for number in 0..waiting
        .filter(|&waiting| waiting > 0)
        .map_or(0, |_| WAITING_TENANTS)
    {
        let tenant = tenant(format!("waiting-{number}"), 1 << 20);
        let ask = |name: String| Ask::new(&tenant, name).least(1 << 20, 0);
        held.push(
            arbiter
                .try_admit(ask("held".to_owned()))
                .expect("all is free"),
        );
        for at in 0..waiting.unwrap_or(0) / WAITING_TENANTS {
            let mut admit = arbiter.admit(ask(format!("query-{at}")));
            let polled = Pin::new(&mut admit).poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "its tenant has nothing left");
            asks.push(admit);
        }
    }
    Box::new(Admitting {
        name,
        tenants: (0..2)
            .map(|number| tenant(format!("tenant-{number}"), 1 << 30))
            .collect(),
        arbiter: waiting.map(|_| arbiter),
        _waiting: Arc::new((held, asks)),
        names: AtomicU64::new(0),
    })
}

impl Racer for Admitting {
    fn name(&self) -> &str {
        self.name
    }

    fn race(&self, cpus: &[usize], slice: Slice) -> Spent {
        on_cpus(cpus, |thread, meeting| {
            let tenant = &self.tenants[thread];
            // Relaxed: each number is taken once.
            let name = format!("query-{}", self.names.fetch_add(1, Ordering::Relaxed));
            slice.run(
                || meeting.join(),
                || block(self.arbiter.as_ref(), tenant, &name),
            )
        })
    }

    fn check(&self) -> Result<(), String> {
        let left: usize = self
            .tenants
            .iter()
            .map(|tenant| tenant.children().len())
            .sum();
        match left {
            0 => Ok(()),
            groups => Err(format!("{groups} groups are left")),
        }
    }
}

#[inline(never)]
fn block(arbiter: Option<&Arbiter>, tenant: &Group, name: &str) -> u64 {
    for _ in 0..BLOCK {
        match arbiter {
            None => {
                let group = tenant
                    .child(name, Limits::max(1 << 20))
                    .expect("the name is free");
                group.close().expect("it is not the root");
            }
            Some(arbiter) => {
                let ask = Ask::new(tenant, name).least(1 << 20, 0).wanted(1 << 20);
                drop(arbiter.try_admit(ask).expect("there is room"));
            }
        }
    }
    BLOCK
}

/// The targets.
pub fn targets(run: &Run) -> Vec<Verdict> {
    let find = |name, threads| run.find(SCENARIO, DEPTH, name, threads);
    let ratio = |threads| {
        let (many, few): (Option<&Series>, _) = (
            find("beside 10,000 that wait", threads),
            find("beside 10 that wait", threads),
        );
        Run::ratio(many?, few?)
    };
    let cost = find("alone", 2).and_then(|series| crate::series::Summary::of(&series.samples));
    let decision = run.find(DECISION, DEPTH, "among 10000 that run", 1);
    let decision = decision.and_then(|series| crate::series::Summary::of(&series.samples));
    let mut verdicts = vec![Verdict {
        target: "a wait for memory among 10,000 that run, ns".to_owned(),
        measured: decision,
        wanted: Wanted::AtMost(100_000.0),
    }];
    verdicts.push(Verdict {
        target: "an admission and its end on each of two threads, ns: 200,000 a second".to_owned(),
        measured: cost,
        wanted: Wanted::AtMost(10_000.0),
    });
    verdicts.extend([1, 2].map(|threads| Verdict {
        target: format!("beside 10,000 that wait, {threads} threads, x beside 10"),
        measured: ratio(threads),
        wanted: Wanted::AtMost(2.0),
    }));
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds;
    use crate::timing::Effort;
    use bursar_machine::host;

    #[test]
    fn every_grant_ends() {
        let series = rounds::run(&heats(), &host::allowed_cpus(), Effort::smoke()).unwrap();
        assert!(series.iter().all(|series| series.samples.len() == 1));
    }
}
