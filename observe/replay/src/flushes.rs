//! A run: flushes of statistics.
//!
//! The updates that were pending at a request come in the time since the request before it for the same group, on CPUs that the
//! seed chooses.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bursar_kernel::stats::{GroupIndex, Policy, Published, Substrate};
use bursar_rig::timer::{BoundTask, Timer, TimerKind, Timers};

use crate::load::{Load, Request};
use crate::measure::{Figures, put_flushes};
use bursar_experiments::random::Random;

/// Time before the first event.
const LEAD_NS: u64 = 10_000_000;
/// Longest time over which updates spread before their request.
const SPREAD_NS_MAX: u64 = 1_000_000_000;
/// Greatest number of updates of a run: with many requests, each has its updates on fewer CPUs.
const UPDATES_MAX: usize = 500_000;
/// Updates that a flush is worth for each CPU.
const BATCH: u64 = 64;

/// Something that a CPU's task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Update { group: GroupIndex, delta: i64 },
    Flush { group: GroupIndex, is_forced: bool },
}

/// Replays the requests, and adds the figures.
///
/// # Errors
/// The machine has no room.
pub(crate) fn run<M: Timers>(
    machine: &M,
    load: &Load,
    policy: Policy,
    seed: u64,
    figures: &mut Figures,
) -> Result<(), String> {
    let published = Published::new(machine, policy, Substrate::default(), &load.groups, 1)
        .map_err(|error| error.to_string())?;
    let origin_ns = machine.now_ns() + LEAD_NS + SPREAD_NS_MAX;
    let acts = acts(load, machine.cpus(), seed);
    let times_ns: Mutex<Vec<u64>> = Mutex::default();
    let mut all: Vec<BoundTask<'_>> = Vec::new();
    for (cpu, acts) in acts
        .into_iter()
        .enumerate()
        .filter(|(_, acts)| !acts.is_empty())
    {
        let (published, times_ns) = (&published, &times_ns);
        let task = move || {
            for (at_ns, act) in acts {
                machine.sleep_on_timer(Timer {
                    kind: TimerKind::Exact,
                    deadline_ns: origin_ns.saturating_add_signed(at_ns),
                });
                match act {
                    Act::Update { group, delta } => published.add(group, 0, delta),
                    Act::Flush { group, is_forced } => {
                        let began_ns = machine.now_ns();
                        match (is_forced, group) {
                            (true, 0) => published.flush_periodic(),
                            (true, group) => published.flush_forced(group),
                            (false, group) => published.flush(group),
                        }
                        let time_ns = machine.now_ns() - began_ns;
                        let mut times_ns = times_ns.lock().unwrap_or_else(PoisonError::into_inner);
                        times_ns.push(time_ns);
                    }
                }
            }
        };
        all.push((Some(cpu as u32), Box::new(task)));
    }
    machine.run_bound(all);
    let counts = published.counts();
    drop(published);
    let times_ns = times_ns
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let served = counts.root + counts.subtree + counts.waits;
    let share = 1.0 - served as f64 / times_ns.len().max(1) as f64;
    let seconds = load.events_ns as f64 / 1e9;
    put_flushes(figures, times_ns, Some(share.max(0.0)), seconds);
    Ok(())
}

/// The acts of each CPU, in the order of time.
fn acts(load: &Load, cpus: usize, seed: u64) -> Vec<Vec<(i64, Act)>> {
    let mut random = Random::new(seed);
    let copies = cpus.div_ceil(load.cpus());
    let mut requests: Vec<Request> = Vec::new();
    for copy in 0..copies {
        let shift_ns = match copy {
            0 => 0,
            _ => random.below(load.events_ns) as i64,
        };
        requests.extend(load.requests.iter().filter_map(|request| {
            let cpu = copy * load.cpus() + request.cpu as usize;
            (cpu < cpus).then_some(Request {
                at_ns: (request.at_ns + shift_ns) % load.events_ns as i64,
                cpu: cpu as u32,
                ..*request
            })
        }));
    }
    requests.sort_by_key(|request| (request.at_ns, request.cpu));
    let touched = (UPDATES_MAX / requests.len().max(1)).clamp(1, cpus);
    let mut acts = vec![Vec::new(); cpus];
    // Of each group: the moment of the request before, and the updates that it left.
    let mut before: BTreeMap<GroupIndex, (i64, u64)> = BTreeMap::new();
    for request in requests {
        let (spread_ns, left) = match before.get(&request.group) {
            Some((before_ns, left)) => {
                let since_ns = (request.at_ns - before_ns) as u64;
                (since_ns.clamp(1, SPREAD_NS_MAX), *left)
            }
            None => (SPREAD_NS_MAX, 0),
        };
        let pending = request.pending.unwrap_or(match request.is_skipped {
            true => 0,
            // Just enough: more may have been pending.
            false => (BATCH + 1) * cpus as u64,
        });
        let leaves = if request.is_skipped { pending } else { 0 };
        before.insert(request.group, (request.at_ns, leaves));
        let new = pending.saturating_sub(left);
        let delta = new.div_ceil(touched as u64).min(1 << 40) as i64;
        let first = random.below(cpus as u64) as usize;
        for cpu in (0..touched).map(|it| (first + it) % cpus) {
            let at_ns = request.at_ns - 1 - random.below(spread_ns) as i64;
            if delta > 0 {
                let group = request.group;
                acts[cpu].push((at_ns, Act::Update { group, delta }));
            }
        }
        let act = Act::Flush {
            group: request.group,
            is_forced: request.is_forced,
        };
        acts[request.cpu as usize].push((request.at_ns, act));
    }
    for acts in &mut acts {
        acts.sort_unstable();
    }
    acts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Updates that a skipped request left are still pending at the next.
    #[test]
    fn pending_updates_come_once() {
        let bytes = include_bytes!("../../watch/tests/recordings/synthetic-2-cpus.bursar");
        let mut recording = bursar_watch::recording::parse(&bytes[..]).expect("one");
        let start_ns = recording.start_ns;
        let requests = [(100, true), (260, false), (140, false)];
        for (number, (pending, is_skipped)) in (0..).zip(requests) {
            let start_ns = start_ns + 1_000 * number;
            recording.flushes.push(bursar_watch::seen::Flush {
                cgroup: 7,
                start_ns,
                end_ns: start_ns,
                skipped: Some(is_skipped),
                pending: Some(pending),
                ..bursar_watch::seen::Flush::default()
            });
        }
        let load = Load::of(&recording).expect("a load");
        let all = acts(&load, 2, 1).concat();
        let deltas = all.iter().filter_map(|(_, act)| match act {
            Act::Update { delta, .. } => Some(*delta),
            Act::Flush { .. } => None,
        });
        assert_eq!(deltas.sum::<i64>(), 100 + 160 + 140);
    }
}
