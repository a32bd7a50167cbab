//! `bursar observe --replay`: the load of a recording on a simulated machine, under the recorded policy and under others.
//!
//! | part | file |
//! |---|---|
//! | the file, the machines, and the runs | here |
//! | figures of one policy | `figures.rs` |
//! | the document, for programs | `document.rs` |
//! | the document, for people | `text.rs` |
//! | effects of changes of the kernel | `prediction.rs` |

mod document;
mod figures;
mod prediction;
mod text;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bursar_experiments::draws::{Range, draw};
use bursar_experiments::replay::{Figures, Load, Policies, run, seen, what_ifs};
use bursar_sim::{CostModel, Settings, Simulator, Topology};

use self::document::{Document, Runs};
use super::people::{People, write};
use super::read_recording;
use crate::failure::Failure;
use crate::options::Global;
use crate::output::{Output, refuse_to_replace};
use crate::progress::Progress;
use crate::{interruption, machine};

/// Draws of the cost model, each of which runs once.
const DRAWS: u64 = 12;
/// Seed of the draws.
const SEED: u64 = 1;

/// Replays a recording, and writes one document. `asked` is the machine for the other policies, if it is not the recorded
/// one.
pub fn replay(path: &Path, asked: Option<&str>, global: &Global) -> Result<ExitCode, Failure> {
    let format = global.page_format()?;
    refuse_to_replace([&path.to_owned()], global.output.as_deref())?;
    let output = Output::open(global)?;
    let recording = read_recording(path)?;
    let load = Load::of(&recording)
        .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    let own = own_topology(&load);
    let other = machine::topology_over(asked, &own.to_string())?;
    if other.hz != load.hz() {
        return Err(Failure::usage(format!(
            "hz={} differs from the recorded kernel's, {}: its timers cannot be replayed; leave hz out",
            other.hz,
            load.hz()
        )));
    }
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
    let runs = run_all(&load, &jobs, global)?;
    let document = Document::new(
        path,
        &recording,
        &load,
        &seen(&load),
        &Runs {
            own,
            other,
            figures: runs,
            draws: DRAWS,
        },
    );
    let people = People {
        title: "A kernel's load, replayed",
        text: text::text,
        csv: Document::csv,
    };
    write(&document, people, format, output)?;
    Ok(ExitCode::SUCCESS)
}

/// The recorded machine, simulated.
fn own_topology(load: &Load) -> Topology {
    let mut topology = Topology::new(load.cpus(), 1, load.hz());
    topology.preemption = bursar_sim::PreemptionKind::Kernel;
    topology
}

/// Figures of each draw, of one policy on one machine.
type OfJob = Vec<Figures>;

/// Does all runs: every job with every draw.
fn run_all(
    load: &Load,
    jobs: &[(Topology, Policies)],
    global: &Global,
) -> Result<Vec<(Topology, Policies, OfJob)>, Failure> {
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
    let done: Mutex<BTreeMap<(usize, u64), Result<Figures, String>>> = Mutex::default();
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
    let mut all: Vec<_> = (jobs.iter())
        .map(|(topology, policies)| (*topology, *policies, OfJob::new()))
        .collect();
    let done = done.into_inner().unwrap_or_default();
    for ((job, _), result) in done {
        let figures = result.map_err(Failure::unavailable)?;
        all[job].2.push(figures);
    }
    Ok(all)
}

fn run_one(
    load: &Load,
    topology: Topology,
    policies: Policies,
    ranges: &[Range],
    number: u64,
) -> Result<Figures, String> {
    let mut settings = Settings::new(topology, SEED + number);
    settings.costs = machine::costs(&draw(SEED, number, &[], ranges).costs)?;
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
