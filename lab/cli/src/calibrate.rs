//! `bursar-lab calibrate`: draws of uncertain constants, and which of them fit the calibration rows. Without such rows every draw fits;
//! the ensemble then spans what is unknown.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use bursar_experiments::draws::{Range, accepts, calibration_rows, draw, ranges};
use bursar_experiments::experiment::PublishedRow;
use bursar_experiments::experiment::{Draw, Draws};
use bursar_experiments::{Plan, Request};
use bursar_sim::{CostModel, Settings, Simulator, Topology};

use crate::args::Calibrate;
use crate::machine::{self, costs};
use bursar_term::failure::{EXPECTATION_FAILED, Failure, INTERRUPTED};
use bursar_term::interruption;
use bursar_term::options::Global;
use bursar_term::output::Output;
use bursar_term::progress::Progress;
use bursar_term::units::counted;

/// A row, and the plan that runs its load and variant.
struct Target {
    row: PublishedRow,
    plan: Plan,
}

/// Ranges of draws, and the rows that a draw must fit. Shared by threads that are not joined: a draw may take minutes.
struct Trial {
    targets: Vec<Target>,
    topology: Topology,
    parameters: Vec<Range>,
    costs: Vec<Range>,
    seed: u64,
    /// Most draws to try.
    draws: u64,
}

/// The draw, if it fits.
type Tried = Result<Option<Draw>, Failure>;

/// Result of a search.
#[derive(Default)]
struct Found {
    draws: Draws,
    /// Reason of the failure that ended the search.
    failure: Option<Failure>,
}

/// Message to the collecting thread.
enum Message {
    /// The draw of that number ended.
    Ended(u64, Tried),
    /// A bug, to be shown as one.
    Panicked(Box<dyn Any + Send>),
    /// Look at the flag.
    Interrupted,
}

/// Draws, runs and writes those that pass, in the form of the file beside the experiment's.
pub fn calibrate(calibrate: &Calibrate, global: &Global) -> Result<ExitCode, Failure> {
    global.refuse_format("calibrate")?;
    let trial = trial(calibrate)?;
    let output = Output::open(global)?;
    let (sender, receiver) = channel();
    let is_interrupted = Arc::new(AtomicBool::new(false));
    let (flag, to_wake) = (Arc::clone(&is_interrupted), sender.clone());
    interruption::catch(move || {
        // Relaxed: nothing else is passed with it.
        flag.store(true, Ordering::Relaxed);
        to_wake.send(Message::Interrupted).is_ok()
    })?;
    let progress = Progress::new(calibrate.draws, global);
    progress.begin(&format!("draws of seed {}", calibrate.seed), "");
    start(trial, &sender);
    let found = collect(calibrate, &receiver, &is_interrupted, &progress);
    drop(progress);
    conclude(&calibrate.experiment, found, output)
}

/// Writes the draws that fit, and says how the command ends. Without such a draw nothing is written, so the file of an earlier search
/// stays.
fn conclude(experiment: &str, found: Found, output: Output) -> Result<ExitCode, Failure> {
    let Found { draws, failure } = found;
    let has_none = draws.accepted.is_empty();
    let ended = match (failure, draws.interrupted) {
        (Some(failure), _) => Err(failure),
        (None, true) => Ok(ExitCode::from(INTERRUPTED)),
        (None, false) if has_none => Ok(ExitCode::from(EXPECTATION_FAILED)),
        (None, false) => Ok(ExitCode::SUCCESS),
    };
    if has_none {
        let _ = writeln!(
            std::io::stderr(),
            "none fitted of {} that ended; nothing is written",
            counted(draws.tried, "draw")
        );
        return ended;
    }
    let text = document(experiment, &draws)?;
    output.write(&text, |_| text.clone())?;
    ended
}

fn trial(calibrate: &Calibrate) -> Result<Trial, Failure> {
    let experiment =
        bursar_experiments::experiment_named(&calibrate.experiment).map_err(Failure::usage)?;
    let costs = CostModel::constants().map(|constant| Range {
        name: constant.name.to_owned(),
        lo: constant.lo,
        hi: constant.hi,
    });
    let rows = calibration_rows(&experiment).into_iter().cloned();
    let targets = rows.map(|row| target(&calibrate.experiment, row));
    Ok(Trial {
        targets: targets.collect::<Result<_, _>>()?,
        topology: machine::own_topology(&experiment)?,
        parameters: ranges(&experiment).map_err(Failure::usage)?,
        costs: costs.collect(),
        seed: calibrate.seed,
        draws: calibrate.draws,
    })
}

/// Starts a thread on each CPU. They try draws in the order of their numbers until all are tried or the receiver is gone.
fn start(trial: Trial, sender: &Sender<Message>) {
    let trial = Arc::new(trial);
    let next = Arc::new(AtomicU64::new(0));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..threads {
        let (trial, next, sender) = (Arc::clone(&trial), Arc::clone(&next), sender.clone());
        thread::spawn(move || {
            loop {
                // Relaxed: the number is all that is shared.
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= trial.draws {
                    return;
                }
                let tried = catch_unwind(AssertUnwindSafe(|| trial.of(number)));
                if sender.send(message(number, tried)).is_err() {
                    return;
                }
            }
        });
    }
}

fn message(number: u64, tried: thread::Result<Tried>) -> Message {
    match tried {
        Ok(tried) => Message::Ended(number, tried),
        // The simulator panics so when tasks are in a deadlock.
        Err(panic) => match panic.downcast::<bursar_sim::Failure>() {
            Ok(failure) => Message::Ended(number, Err(Failure::unavailable(failure))),
            Err(panic) => Message::Panicked(panic),
        },
    }
}

/// Takes results until enough draws fit, all are tried, one fails, or the user wants no more.
///
/// Results count in the order of their numbers and without gaps, so they are the same however many threads there are. Those of a
/// search that was interrupted, or that a failure ended, are those of a shorter one.
fn collect(
    calibrate: &Calibrate,
    receiver: &Receiver<Message>,
    is_interrupted: &AtomicBool,
    progress: &Progress,
) -> Found {
    let mut found = Found::default();
    found.draws.seed = calibrate.seed;
    found.draws.model = CostModel::default().hash();
    let draws = &mut found.draws;
    let mut early: BTreeMap<u64, Tried> = BTreeMap::new();
    let mut fitting = 0_u64;
    loop {
        while let Some(tried) = early.remove(&draws.tried) {
            match tried {
                Ok(fits) => draws.accepted.extend(fits),
                Err(failure) => {
                    draws.interrupted = true;
                    found.failure = Some(failure);
                    return found;
                }
            }
            draws.tried += 1;
            if draws.accepted.len() as u64 == calibrate.keep {
                return found;
            }
        }
        if draws.tried == calibrate.draws {
            return found;
        }
        // Relaxed: see where it is set.
        if is_interrupted.load(Ordering::Relaxed) {
            draws.interrupted = true;
            return found;
        }
        match receiver.recv().expect("the caller holds a sender") {
            Message::Ended(number, tried) => {
                fitting += u64::from(matches!(tried, Ok(Some(_))));
                progress.end(&match tried {
                    Ok(Some(_)) => format!("draw {number} fits, {fitting} do"),
                    Ok(None) => format!("draw {number} does not fit"),
                    Err(_) => format!("draw {number} fails"),
                });
                early.insert(number, tried);
            }
            Message::Panicked(panic) => resume_unwind(panic),
            Message::Interrupted => {}
        }
    }
}

fn target(name: &str, row: PublishedRow) -> Result<Target, Failure> {
    let experiment = bursar_experiments::experiment_named(name).map_err(Failure::usage)?;
    let assignments = [
        format!("load={}", row.load),
        format!("variants={}", row.variant),
        "draws=none".to_owned(),
    ];
    let request = Request {
        machine: row.machine.kind,
        machine_keys: &[],
        assignments: &assignments,
        is_quick: false,
        seeds: 1,
    };
    let plan = Plan::new(experiment, request).map_err(Failure::usage)?;
    Ok(Target { row, plan })
}

impl Trial {
    /// The draw of that number with what it gave, if it passes all rows.
    fn of(&self, number: u64) -> Tried {
        let mut draw = draw(self.seed, number, &self.parameters, &self.costs);
        for Target { row, plan } in &self.targets {
            let job = plan.jobs()[0];
            let mut settings = Settings::new(self.topology, draw.number + 1);
            settings.costs = costs(&draw.costs).map_err(Failure::unavailable)?;
            let simulator = Simulator::new(settings);
            let result = plan
                .run_with(&simulator.machine(), job, Some(&draw))
                .map_err(Failure::unavailable)?;
            let (passes, measured) = accepts(row, &result).map_err(Failure::unavailable)?;
            draw.measured.extend(measured);
            if !passes {
                return Ok(None);
            }
        }
        Ok(Some(draw))
    }
}

fn document(name: &str, draws: &Draws) -> Result<String, Failure> {
    let body = toml::to_string(draws).map_err(Failure::unavailable)?;
    Ok(format!(
        "# Draws of the cost model's uncertain constants and of the parameters in [uncertain] that fit the calibration rows of\n\
         # {name}.toml. Made by `bursar-lab calibrate {name}`; do not edit.\n{body}"
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use bursar_term::failure::UNAVAILABLE;
    use bursar_term::options::Color;

    use super::*;

    fn to(output: Option<PathBuf>) -> Global {
        Global {
            output,
            format: None,
            color: Color::Never,
            quiet: true,
            verbose: false,
        }
    }

    #[test]
    fn a_draw_that_fails_ends_the_search_and_loses_nothing() {
        let calibrate = Calibrate {
            experiment: "memcg-stock".to_owned(),
            keep: 9,
            draws: 9,
            seed: 1,
        };
        let (sender, receiver) = channel();
        let fits = |number| message(number, Ok(Ok(Some(draw(1, number, &[], &[])))));
        let stuck = bursar_sim::Failure::TooLong { steps: 7 };
        let stuck = message(2, Err(Box::new(stuck)));
        for message in [fits(3), stuck, fits(0), fits(1)] {
            sender.send(message).expect("a receiver");
        }
        let progress = Progress::new(1, &to(None));
        let found = collect(&calibrate, &receiver, &AtomicBool::new(false), &progress);
        let kept: Vec<_> = found.draws.accepted.iter().map(|it| it.number).collect();
        assert_eq!((kept, found.draws.tried), (vec![0, 1], 2));
        assert!(found.draws.interrupted);
        let failure = found.failure.expect("what failed");
        assert!(failure.message().contains('7'), "{}", failure.message());
        assert_eq!(failure.report(), ExitCode::from(UNAVAILABLE));
    }

    #[test]
    fn a_search_in_which_no_draw_fits_leaves_the_file_of_an_earlier_one() {
        let name = format!("bursar-none-fits-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, "an earlier search").expect("a temporary file");
        let ended = |accepted: Vec<Draw>| {
            let mut found = Found::default();
            (found.draws.tried, found.draws.accepted) = (3, accepted);
            let output = Output::open(&to(Some(path.clone()))).expect("a place");
            let ended = conclude("memcg-stock", found, output).expect("nothing failed");
            (ended, fs::read_to_string(&path).expect("the file"))
        };
        let none = ended(Vec::new());
        let (one, text) = ended(vec![draw(1, 0, &[], &[])]);
        fs::remove_file(&path).expect("the file");
        let failed = ExitCode::from(EXPECTATION_FAILED);
        assert_eq!(none, (failed, "an earlier search".to_owned()));
        assert_eq!(one, ExitCode::SUCCESS);
        assert!(text.contains("\ntried = 3\n"), "{text}");
    }
}
