//! Bursar beside its peers, in one run.
//!
//! Each benchmark prints its conditions, a table with every contender (the ones that beat Bursar included) and which of
//! Bursar's targets were met. Only ratios within one run mean much. See BENCHMARKS.md for the method.

#![forbid(unsafe_code)]

mod account;
mod admission;
mod charge;
mod code;
mod contender;
mod corners;
mod corners_run;
mod fast_path;
mod flush;
mod golden;
mod hand_over;
mod heap;
mod instruction;
mod machine;
mod output;
mod pages;
#[cfg(feature = "datafusion")]
mod pools;
mod read;
mod read_run;
#[cfg(feature = "datafusion")]
mod reservation;
mod rounds;
mod series;
mod sim;
mod sim_run;
mod stat;
mod table;
mod targets;
mod timing;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

use bursar_machine::host;
use clap::{Args, Parser, Subcommand};

use crate::machine::Conditions;
use crate::output::Output;
use crate::rounds::Heat;
use crate::series::{BARE, Run};
use crate::targets::Verdict;
use crate::timing::Effort;

/// Bursar beside its peers, in one run.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    /// Charging and uncharging, beside atomics and DataFusion's pools.
    Charge(Options),
    /// Requests of DataFusion's operators, beside its own pools.
    #[cfg(feature = "datafusion")]
    Reservation(Options),
    /// Counting, beside atomics, prometheus and hytra.
    Stat(Options),
    /// An Exact read with ten dirty groups among 100 to 100,000.
    Flush(Options),
    /// Exact reads by 64 threads while one writes.
    Read(Options),
    /// Pages: allocating and freeing blocks, beside the allocators that programs use.
    Pages(Pages),
    /// 64-byte blocks of the system's allocator, bare and in wrappers that count.
    Heap(Options),
    /// Admissions and their ends, alone and beside asks that wait.
    Admission(Options),
    /// The simulator: locks, tasks, shared words and schedules a second, and its memory.
    Sim(Sim),
    /// All of the above.
    All(Options),
    /// Operations beside many groups: lowering a limit, births and ends, refusals, removals.
    Corners(Corners),
    /// Instructions on the fast paths (release build, x86-64).
    Golden(Golden),
}

#[derive(Args, Clone)]
struct Options {
    /// Turns of each contender.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Short turns, to see whether everything works; the figures are not representative.
    #[arg(long)]
    quick: bool,
    /// Only rows of charge, stat and flush whose "scenario depth contender" contains this, of pages whose "scenario size
    /// threads contender" does, of sim whose name does, or of corners whose "scenario beside" does.
    #[arg(long)]
    filter: Option<String>,
    /// Write the raw samples there.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep the raw samples in bench/runs, under the day and the processor.
    #[arg(long)]
    keep: bool,
}

#[derive(Args)]
struct Sim {
    #[command(flatten)]
    options: Options,
    /// Do one turn of this row and say as JSON what it measured: what the benchmark starts a process for.
    #[arg(long, value_name = "NAME")]
    row: Option<String>,
    /// Run the turn of the row without run-ahead.
    #[arg(long, requires = "row")]
    step_by_step: bool,
}

#[derive(Args)]
struct Pages {
    #[command(flatten)]
    options: Options,
    /// Do one turn of this row and say as JSON what it measured: what the benchmark starts a process for.
    #[arg(long, value_name = "NAME", hide = true)]
    row: Option<String>,
}

#[derive(Args)]
struct Corners {
    #[command(flatten)]
    options: Options,
    /// Also lower a limit above 400,000 groups that hold stock.
    #[arg(long)]
    large: bool,
}

#[derive(Args)]
struct Golden {
    /// Compare with the golden file; exit with 1 if a count differs.
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Replace the golden file.
    #[arg(long)]
    write: bool,
    /// Another build of this program, also for 64-bit Arm; this one if missing.
    #[arg(long, value_name = "FILE")]
    executable: Option<PathBuf>,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().benchmark {
        Benchmark::Golden(options) => run_golden(&options),
        Benchmark::Charge(options) => run("charge", &options, &[measure_charge]),
        #[cfg(feature = "datafusion")]
        Benchmark::Reservation(options) => run("reservation", &options, &[measure_reservation]),
        Benchmark::Stat(options) => run("stat", &options, &[measure_stat]),
        Benchmark::Flush(options) => run("flush", &options, &[measure_flush]),
        Benchmark::Read(options) => run("read", &options, &[measure_read]),
        Benchmark::Pages(options) => run_pages(&options),
        Benchmark::Heap(options) => run("heap", &options, &[measure_heap]),
        Benchmark::Admission(options) => run("admission", &options, &[measure_admission]),
        Benchmark::Sim(options) => run_sim(options),
        Benchmark::Corners(corners) => {
            let measure: Measure = if corners.large {
                all_corners
            } else {
                usual_corners
            };
            run("corners", &corners.options, &[measure])
        }
        Benchmark::All(options) => run(
            "all",
            &options,
            &[
                measure_charge,
                #[cfg(feature = "datafusion")]
                measure_reservation,
                measure_stat,
                measure_flush,
                measure_read,
                measure_pages,
                measure_heap,
                measure_admission,
                measure_sim,
            ],
        ),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("bursar-bench: {error}");
        ExitCode::from(2)
    })
}

fn run_golden(options: &Golden) -> Result<ExitCode, String> {
    let action = match options {
        Golden { check: true, .. } => golden::Action::Check,
        Golden { write: true, .. } => golden::Action::Write,
        _ => golden::Action::Show,
    };
    let (text, same) = golden::run(action, options.executable.as_deref())?;
    output::print(&text)?;
    Ok(if same {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run_pages(options: &Pages) -> Result<ExitCode, String> {
    let Some(row) = &options.row else {
        return run("pages", &options.options, &[measure_pages]);
    };
    // The other threads would wait without end for one that panicked.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(101);
    }));
    let report = pages::job(row, options.options.quick)?;
    output::print(&format!("{report}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn run_sim(options: Sim) -> Result<ExitCode, String> {
    let Some(row) = options.row else {
        return run("sim", &options.options, &[measure_sim]);
    };
    let job = sim_run::Job {
        row,
        step_by_step: options.step_by_step,
        quick: options.options.quick,
    };
    let report = sim_run::job(&job)?;
    output::print(&format!("{report}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// One benchmark's samples, its table and its verdicts.
type Part = (Run, String, Vec<Verdict>);
type Measure = fn(&Options) -> Result<Part, String>;

fn run(kind: &str, options: &Options, parts: &[Measure]) -> Result<ExitCode, String> {
    // Backend first: without one nothing runs. Files next: a long run must not end at a path that cannot be written.
    host::Host::start().map_err(|error| error.to_string())?;
    let mut output = Output::open(kind, options.json.as_deref(), options.keep)?;
    for (index, part) in parts.iter().enumerate() {
        let (run, table, verdicts) = part(options)?;
        if index == 0 {
            output::print(&format!("{}\n", run.conditions))?;
        }
        let verdicts: Vec<String> = verdicts.iter().map(Verdict::line).collect();
        let text = format!("\n## {}\n\n{table}\n\n{}\n", run.kind, verdicts.join("\n"));
        output::print(&text)?;
        output.add(run);
    }
    output.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn measure_charge(options: &Options) -> Result<Part, String> {
    race("charge", BARE, charge::heats(), targets::of_charge, options)
}

#[cfg(feature = "datafusion")]
fn measure_reservation(options: &Options) -> Result<Part, String> {
    race(
        "reservation",
        reservation::FLOOR,
        reservation::heats(),
        targets::of_reservation,
        options,
    )
}

fn measure_stat(options: &Options) -> Result<Part, String> {
    race("stat", BARE, stat::heats(), targets::of_stat, options)
}

fn measure_flush(options: &Options) -> Result<Part, String> {
    let yardstick = flush::yardstick();
    race(
        "flush",
        &yardstick,
        flush::heats(),
        targets::of_flush,
        options,
    )
}

fn measure_heap(options: &Options) -> Result<Part, String> {
    race("heap", heap::SYSTEM, heap::heats(), heap::targets, options)
}

fn measure_admission(options: &Options) -> Result<Part, String> {
    race(
        "admission",
        admission::FLOOR,
        admission::heats(),
        admission::targets,
        options,
    )
}

fn race(
    kind: &str,
    yardstick: &str,
    heats: Vec<Heat>,
    verdicts: fn(&Run) -> Vec<Verdict>,
    options: &Options,
) -> Result<Part, String> {
    let heats = rounds::filtered(heats, options.filter.as_deref(), yardstick);
    if heats.is_empty() {
        return Err(format!("--filter: no row of {kind} contains that"));
    }
    let series = rounds::run(&heats, &host::allowed_cpus(), effort(options))?;
    let run = of(kind, yardstick, options, series);
    let (table, verdicts) = (table::of(&run).to_string(), verdicts(&run));
    Ok((run, table, verdicts))
}

fn measure_read(options: &Options) -> Result<Part, String> {
    let entries = read_run::run(effort(options))?;
    let run = of("read", "", options, read_run::series(&entries));
    let table = read_run::table(&entries).to_string();
    Ok((run, table, targets::of_read(&entries)))
}

fn measure_pages(options: &Options) -> Result<Part, String> {
    let (cpus, rounds) = (host::allowed_cpus().len(), options.rounds as usize);
    let rounds = rounds.min(pages::ROUNDS_MAX);
    let pages::Results { series, absent } =
        pages::run(cpus, rounds, options.quick, options.filter.as_deref())?;
    let mut run = of("pages", pages::BARE_STACK, options, series);
    run.conditions.rounds = rounds;
    let (tables, verdicts) = (pages::tables(&run, &absent), pages::of_pages(&run));
    Ok((run, tables, verdicts))
}

fn usual_corners(options: &Options) -> Result<Part, String> {
    measure_corners(options, corners::Sizes::full(false))
}

fn all_corners(options: &Options) -> Result<Part, String> {
    measure_corners(options, corners::Sizes::full(true))
}

fn measure_corners(options: &Options, sizes: corners::Sizes) -> Result<Part, String> {
    let sizes = if options.quick {
        corners::Sizes::quick()
    } else {
        sizes
    };
    let cpus = host::allowed_cpus();
    let series = corners_run::run(&sizes, options.filter.as_deref(), &cpus, effort(options))?;
    let run = of("corners", "", options, series);
    let table = corners_run::table(&run).to_string();
    Ok((run, table, Vec::new()))
}

fn measure_sim(options: &Options) -> Result<Part, String> {
    let rounds = sim_run::rounds(options.rounds as usize);
    let entries = sim_run::run(rounds, options.quick, options.filter.as_deref())?;
    let mut run = of("sim", "", options, sim_run::series(&entries));
    // A turn is as long as its work takes, and there are fewer of them.
    (run.conditions.rounds, run.conditions.slice_ns) = (rounds, 0);
    let table = sim_run::table(&entries).to_string();
    Ok((run, table, targets::of_sim(&entries)))
}

fn of(kind: &str, yardstick: &str, options: &Options, series: Vec<series::Series>) -> Run {
    Run {
        schema: 1,
        kind: kind.to_owned(),
        yardstick: yardstick.to_owned(),
        conditions: Conditions::here(effort(options)),
        series,
    }
}

fn effort(options: &Options) -> Effort {
    let rounds = options.rounds as usize;
    if options.quick {
        Effort::quick(rounds)
    } else {
        Effort::full(rounds)
    }
}
