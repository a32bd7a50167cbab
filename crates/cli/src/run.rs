//! `bursar run`.

use std::process::ExitCode;

use bursar_lab::Plan;
use bursar_lab::document::Document;
use bursar_machine::Host;

use crate::args::{Format, Global, Run};
use crate::failure::{EXPECTATION_FAILED, Failure, INTERRUPTED};
use crate::output::{self, Output};
use crate::progress::Progress;
use crate::{format, system, table};

/// The revision of the source, noted when this was built.
const REVISION: &str = env!("BURSAR_REVISION");

/// Runs experiments and writes one document. All that can be refused is refused before anything runs.
pub fn run(run: &Run, global: &Global) -> Result<ExitCode, Failure> {
    check_machine(&run.machine)?;
    let plans = plans(run)?;
    let host = system::host()?;
    let output = Output::open(global)?;
    end_on_interruption()?;

    let steps = plans.iter().map(Plan::runs).sum();
    let progress = Progress::new(steps, global);
    let mut documents = Vec::new();
    for plan in &plans {
        documents.push(run_plan(plan, &host, &progress)?);
    }
    drop(progress);

    let document = match global.format {
        Format::Table => table::run(
            &documents,
            table::Form::Terminal {
                color: output.has_color(),
            },
        ),
        Format::Markdown => table::run(&documents, table::Form::Markdown),
        Format::Json => format::run_json(&documents)?,
        Format::Ndjson => format::run_ndjson(&documents)?,
        Format::Csv => format::run_csv(&documents),
    };
    output.write(&document)?;
    Ok(if documents.iter().all(Document::holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXPECTATION_FAILED)
    })
}

fn check_machine(machine: &str) -> Result<(), Failure> {
    match machine {
        "host" => Ok(()),
        sim if sim == "sim" || sim.starts_with("sim:") => Err(Failure::unavailable(format!(
            "machine `{sim}`: this version has no simulated machine; use `-m host`"
        ))),
        other => Err(Failure::usage(format!(
            "unknown machine `{other}`; there is: host"
        ))),
    }
}

/// The experiments that are asked for, each once, in the order in which they were named.
fn plans(run: &Run) -> Result<Vec<Plan>, Failure> {
    let plan = |name: &str| Plan::new(name, &run.set, run.seeds).map_err(Failure::usage);
    if run.experiments.is_empty() {
        return bursar_lab::names().map(plan).collect();
    }
    let named = |place: &usize| !run.experiments[..*place].contains(&run.experiments[*place]);
    let places = (0..run.experiments.len()).filter(named);
    places.map(|place| plan(&run.experiments[place])).collect()
}

fn run_plan(plan: &Plan, host: &Host, progress: &Progress) -> Result<Document, Failure> {
    let seconds = plan.run_ms() as f64 / 1e3;
    let experiment = &plan.experiment().name;
    let begin = |variant: &str, seed| {
        progress.begin(&format!(
            "{experiment} {variant}, seed {seed}, {seconds:.1} s"
        ));
    };
    let variants = plan.run(host, begin).map_err(Failure::unavailable)?;
    Ok(plan.document(system::describe(host), REVISION, variants))
}

/// Lets an interruption end the process at once, and leave no empty file behind.
fn end_on_interruption() -> Result<(), Failure> {
    let handler = || {
        output::abandon();
        std::process::exit(INTERRUPTED);
    };
    ctrlc::set_handler(handler)
        .map_err(|error| Failure::unavailable(format!("cannot catch interruptions: {error}")))
}
