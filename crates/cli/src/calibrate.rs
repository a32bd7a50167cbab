//! `bursar calibrate`: draws of what is uncertain, and those of them that fit the rows that may be fitted. Where nothing was
//! published that may be, every draw does: then an ensemble says what is not known, and no more.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use bursar_lab::draws::{Draw, Draws, Range, accepts, calibration_rows, draw, ranges};
use bursar_lab::experiment::PublishedRow;
use bursar_lab::{Plan, Request, SeedShard};
use bursar_sim::{CostModel, Settings, Simulator, Topology};

use crate::args::{Calibrate, Global};
use crate::failure::Failure;
use crate::machine::{self, costs};
use crate::output::Output;
use crate::progress::Progress;

/// A row, and the plan that runs its load and variant.
struct Target {
    row: PublishedRow,
    plan: Plan,
}

/// Draws, runs and writes those that pass, in the form of the file beside the experiment's.
pub fn calibrate(calibrate: &Calibrate, global: &Global) -> Result<ExitCode, Failure> {
    let experiment = bursar_lab::experiment_named(&calibrate.experiment).map_err(Failure::usage)?;
    let topology = machine::own_topology(&experiment)?;
    let parameters = ranges(&experiment).map_err(Failure::usage)?;
    let of_costs = CostModel::constants().map(|constant| Range {
        name: constant.name.to_owned(),
        lo: constant.lo,
        hi: constant.hi,
    });
    let of_costs: Vec<Range> = of_costs.collect();
    let rows = calibration_rows(&experiment).into_iter().cloned();
    let targets = rows
        .map(|row| target(&calibrate.experiment, row))
        .collect::<Result<Vec<_>, _>>()?;
    let output = Output::open(global)?;
    let progress = Progress::new(calibrate.draws, global);
    let next = AtomicU64::new(0);
    let found = Mutex::new(Ok(Vec::<Draw>::new()));
    let work = || {
        let wants_more = || {
            let found = found.lock().unwrap_or_else(PoisonError::into_inner);
            matches!(&*found, Ok(accepted) if (accepted.len() as u64) < calibrate.keep)
        };
        while wants_more() {
            // Relaxed: the number is all that is shared.
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= calibrate.draws {
                return;
            }
            let drawn = draw(calibrate.seed, number, &parameters, &of_costs);
            let passed = try_draw(&targets, topology, drawn);
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            match (&mut *found, passed) {
                (Ok(accepted), Ok(Some(draw))) => {
                    accepted.push(draw);
                    progress.end(&format!("draw {number} fits, {} do", accepted.len()));
                }
                (Ok(_), Ok(None)) => progress.end(&format!("draw {number} does not fit")),
                (Ok(_), Err(failure)) => *found = Err(failure),
                (Err(_), _) => return,
            }
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    drop(progress);
    let mut accepted: Vec<Draw> = found.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    // Numbers are given out in order, so those with the least numbers are the same however many threads there are.
    accepted.sort_by_key(|draw| draw.number);
    accepted.truncate(calibrate.keep as usize);
    let is_enough = accepted.len() as u64 == calibrate.keep;
    let last = accepted.last().map_or(0, |draw: &Draw| draw.number);
    let draws = Draws {
        tried: if is_enough { last + 1 } else { calibrate.draws },
        seed: calibrate.seed,
        model: CostModel::default().hash(),
        accepted,
    };
    output.write(&document(&calibrate.experiment, &draws)?)?;
    Ok(ExitCode::SUCCESS)
}

fn target(name: &str, row: PublishedRow) -> Result<Target, Failure> {
    let experiment = bursar_lab::experiment_named(name).map_err(Failure::usage)?;
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
        shard: SeedShard::WHOLE,
    };
    let plan = Plan::new(experiment, request).map_err(Failure::usage)?;
    Ok(Target { row, plan })
}

/// The draw with what it gave, if it passes all rows.
fn try_draw(
    targets: &[Target],
    topology: Topology,
    mut draw: Draw,
) -> Result<Option<Draw>, Failure> {
    for Target { row, plan } in targets {
        let job = plan.jobs()[0];
        let mut settings = Settings::new(topology, draw.number + 1);
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

fn document(name: &str, draws: &Draws) -> Result<String, Failure> {
    let body = toml::to_string(draws).map_err(Failure::unavailable)?;
    Ok(format!(
        "# Draws of the cost model's uncertain constants and of the parameters in [uncertain] that fit the calibration rows of\n\
         # {name}.toml. Made by `bursar calibrate {name}`; not to be edited.\n{body}"
    ))
}
