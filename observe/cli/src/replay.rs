//! `bursar-observe replay`: the load of a recording on a simulated machine, under the recorded policy and under others.
//!
//! | part | file |
//! |---|---|
//! | the file, the machines, and the runs | here |
//! | figures of one policy | `figures.rs` |
//! | the document, for programs | `document.rs` |
//! | the document, for people | `text.rs` |
//! | effects of changes of the kernel | `prediction.rs` |

mod compared;
mod document;
mod figures;
mod prediction;
mod text;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bursar_experiments::draws::{Range, draw};
use bursar_replay::{Figures, Load, Policies, run, seen, what_ifs};
use bursar_sim::{CostModel, PreemptionKind, Settings, Simulator, Topology, TopologyError};
use bursar_term::failure::Failure;
use bursar_term::interruption;
use bursar_term::options::Global;
use bursar_term::output::{Output, refuse_to_replace};
use bursar_term::progress::Progress;
use clap::Args;

use self::document::{Document, Runs};
use crate::form;
use crate::recordings;

pub const EXAMPLES: &str = "\
Examples:
  bursar-observe replay node7.bursar      the recorded machine
  bursar-observe replay node7.bursar -m sim:cpus=384 -o node7.html";

#[derive(Debug, Args)]
pub struct Replay {
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Simulated machine for the other policies: `sim:KEY=VALUE,...` [default: the recorded one]
    #[arg(short, long, value_name = "MACHINE")]
    machine: Option<String>,
}

/// Draws of the cost model, each of which runs once.
const DRAWS: u64 = 12;
/// Seed of the draws.
const SEED: u64 = 1;

/// Replays a recording, and writes one document.
pub fn replay(replay: &Replay, global: &Global) -> Result<ExitCode, Failure> {
    let format = global.format()?;
    let path = &replay.file;
    refuse_to_replace([path], global.output.as_deref())?;
    let output = Output::open(global)?;
    let recording = recordings::read(path)?;
    let load = Load::of(&recording)
        .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    let mut own = Topology::new(load.cpus(), 1, load.hz());
    own.preemption = PreemptionKind::Kernel;
    let other = match &replay.machine {
        Some(asked) => topology(asked, own)?,
        None => own,
    };
    interruption::catch(|| false)?;

    let stock = load.stock().policies;
    let mut jobs = vec![(own, stock)];
    if other != own {
        jobs.push((other, stock));
    }
    jobs.extend(
        what_ifs(&load, other.cpus)
            .into_iter()
            .map(|policies| (other, policies)),
    );
    let (figures, failed) = run_all(&load, &jobs, global)?;
    let runs = Runs {
        own,
        other,
        figures,
        failed,
        draws: DRAWS,
    };
    let document = Document::new(path, &recording, &load, &seen(&load), &runs);
    form::write(
        format,
        &document,
        "A kernel's load, replayed",
        text::text,
        output,
    )?;
    end(&runs.failed)
}

/// The end of a replay whose document is written.
fn end(failed: &[String]) -> Result<ExitCode, Failure> {
    match failed.first() {
        None => Ok(ExitCode::SUCCESS),
        Some(why) => Err(Failure::unavailable(format!(
            "a policy was left out: {why}"
        ))),
    }
}

/// The machine that is asked for, which has the ticks and the preemption of the recorded one.
fn topology(asked: &str, own: Topology) -> Result<Topology, Failure> {
    let refused = |error: &str| Failure::usage(format!("machine `{asked}`: {error}"));
    let keys = asked.strip_prefix("sim:").ok_or_else(|| {
        refused("a recording is replayed on a simulated machine, such as sim:cpus=64")
    })?;
    let mut topology: Topology =
        (keys.parse()).map_err(|error: TopologyError| refused(&error.to_string()))?;
    let is_given = |key: &str| {
        let mut given = keys.split(',').filter_map(|part| part.split_once('='));
        given.any(|(name, _)| name == key)
    };
    if !is_given("cpus") {
        return Err(refused("it does not say how many CPUs it has: add cpus=N"));
    }
    if !is_given("preempt") {
        topology.preemption = own.preemption;
    }
    if !is_given("hz") {
        topology.hz = own.hz;
    }
    if topology.hz != own.hz {
        return Err(refused(&format!(
            "hz={} differs from the recorded kernel's, {}: its timers cannot be replayed; leave hz out",
            topology.hz, own.hz
        )));
    }
    Ok(topology)
}

/// Figures of each draw, of one policy on one machine.
type OfJob = Vec<Figures>;

/// Machine, policies and figures of each job.
type OfJobs = Vec<(Topology, Policies, OfJob)>;

/// Result of each run, by the number of its job and of its draw.
type Done = BTreeMap<(usize, u64), Result<Figures, String>>;

/// Does all runs: every job with every draw. Leaves out policies as [`whole`] does.
fn run_all(
    load: &Load,
    jobs: &[(Topology, Policies)],
    global: &Global,
) -> Result<(OfJobs, Vec<String>), Failure> {
    let ranges: Vec<Range> = CostModel::constants()
        .map(|constant| Range {
            name: constant.name.to_owned(),
            lo: constant.lo,
            hi: constant.hi,
        })
        .collect();
    let tasks: Vec<(usize, u64)> = (0..jobs.len())
        .flat_map(|job| (0..DRAWS).map(move |number| (job, number)))
        .collect();
    let progress = Progress::new(tasks.len() as u64, global);
    let next = AtomicUsize::new(0);
    let done: Mutex<Done> = Mutex::default();
    let work = || {
        // Relaxed: each number goes to one thread, and nothing else is passed with it.
        while let Some(&(job, number)) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (topology, policies) = jobs[job];
            progress.begin(&format!("{}, draw {}", policies.name, number + 1), "");
            let result = run_one(load, topology, policies, &ranges, number);
            if let Ok(mut done) = done.lock() {
                done.insert((job, number), result);
            }
            progress.end(policies.name);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads.min(tasks.len()) {
            scope.spawn(work);
        }
    });
    drop(progress);
    let done = done.into_inner().unwrap_or_default();
    whole(jobs, load.stock().policies, done)
}

/// Leaves out policies of which a run failed, and returns why. Figures are compared draw by draw, so those of the other draws would
/// meet the wrong ones. Without the recorded policy on a machine there is nothing to compare with.
fn whole(
    jobs: &[(Topology, Policies)],
    stock: Policies,
    mut done: Done,
) -> Result<(OfJobs, Vec<String>), Failure> {
    let mut failed = Vec::new();
    let mut whole = OfJobs::new();
    for (job, &(topology, policies)) in jobs.iter().enumerate() {
        let results = (0..DRAWS).filter_map(|number| done.remove(&(job, number)));
        match results.collect::<Result<OfJob, _>>() {
            Ok(figures) => whole.push((topology, policies, figures)),
            Err(why) if job == 0 => return Err(Failure::unavailable(why)),
            Err(why) => {
                failed.push(why);
                if policies == stock {
                    break;
                }
            }
        }
    }
    Ok((whole, failed))
}

fn run_one(
    load: &Load,
    topology: Topology,
    policies: Policies,
    ranges: &[Range],
    number: u64,
) -> Result<Figures, String> {
    let mut settings = Settings::new(topology, SEED + number);
    for (name, value) in &draw(SEED, number, &[], ranges).costs {
        let set = settings.costs.set(name, *value);
        set.map_err(|error| error.to_string())?;
    }
    let simulator = Simulator::new(settings);
    let ran = catch_unwind(AssertUnwindSafe(|| {
        run(&simulator.machine(), load, policies, SEED + number)
    }));
    let failed = |why: String| format!("the replay under `{}` failed: {why}", policies.name);
    match ran {
        Ok(result) => result.map_err(failed),
        // The simulator says so when tasks are in a deadlock.
        Err(panic) => match panic.downcast::<bursar_sim::Failure>() {
            Ok(failure) => Err(failed(failure.to_string())),
            Err(panic) => std::panic::resume_unwind(panic),
        },
    }
}

#[cfg(test)]
mod tests {
    use bursar_term::failure::UNAVAILABLE;
    use bursar_watch::recording;

    use super::*;

    const RECORDING: &[u8] = include_bytes!("../../watch/tests/recordings/synthetic-2-cpus.bursar");

    /// Figures of a draw that say which one it is.
    fn figures(number: u64) -> Figures {
        Figures::from([("herd_mean", number as f64)])
    }

    #[test]
    fn a_policy_of_which_a_draw_fails_is_left_out_and_no_other_is() {
        let recording = recording::parse(RECORDING).expect("a recording");
        let load = Load::of(&recording).expect("a load");
        let stock = load.stock().policies;
        let [first, second, ..] = what_ifs(&load, 16)[..] else {
            panic!("two policies to compare with")
        };
        let [own, other] = [2, 16].map(|cpus| Topology::new(cpus, 1, load.hz()));
        let jobs = [
            (own, stock),
            (other, stock),
            (other, first),
            (other, second),
        ];
        // One draw of one job fails, or none does.
        let outcome = |failing: Option<usize>| {
            let of_job = |job| (0..DRAWS).map(move |number| (job, number));
            let all = (0..jobs.len()).flat_map(of_job);
            let done = all.map(|(job, number)| match failing == Some(job) && number == 7 {
                true => ((job, number), Err("the draw fails".to_owned())),
                false => ((job, number), Ok(figures(number))),
            });
            let (whole, failed) = whole(&jobs, stock, done.collect())?;
            for (.., of_draws) in &whole {
                assert!(of_draws.iter().cloned().eq((0..DRAWS).map(figures)));
            }
            let of_jobs = whole
                .into_iter()
                .map(|(topology, policies, _)| (topology, policies));
            let code = end(&failed).unwrap_or_else(|failure| failure.report());
            Ok::<_, Failure>((of_jobs.collect::<Vec<_>>(), code))
        };
        let all = outcome(None).expect("figures");
        assert_eq!(all, (jobs.to_vec(), ExitCode::SUCCESS));
        let unavailable = ExitCode::from(UNAVAILABLE);
        // A policy to compare with, and the recorded one on the other machine, without which the others say nothing there.
        let left = outcome(Some(2)).expect("figures");
        assert_eq!(left, (vec![jobs[0], jobs[1], jobs[3]], unavailable));
        let left = outcome(Some(1)).expect("figures");
        assert_eq!(left, (vec![jobs[0]], unavailable));
        let failure = outcome(Some(0)).expect_err("nothing to compare with");
        assert_eq!(failure.message(), "the draw fails");
    }
}
