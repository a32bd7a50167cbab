//! `bursar-lab`: runs Bursar's experiments.
//!
//! Standard output holds the document that was asked for and nothing else; progress and remarks go to standard error.

#![forbid(unsafe_code)]

mod args;
mod calibrate;
mod compare;
mod explore;
mod findings;
mod format;
mod further_figures;
mod html;
mod jobs;
mod latency_ranges;
mod list;
mod machine;
mod page;
mod picture;
mod points;
mod published_figures;
mod report;
mod result_file;
mod run;
#[cfg(test)]
mod samples;
mod screen;
mod svg;
mod system;
mod table;
mod timeline;
mod units;
mod view;

use std::process::ExitCode;

use args::{Args, Command};
use bursar_term::{help, shell};

fn main() -> ExitCode {
    let args = help::parse::<Args>();
    let ended = match &args.command {
        Command::Run(run) => run::run(run, &args.global),
        Command::Report(report) => report::report(report, &args.global),
        Command::Compare(compare) => compare::compare(compare, &args.global),
        Command::Explore(explore) => explore::explore(explore, &args.global),
        Command::Calibrate(calibrate) => calibrate::calibrate(calibrate, &args.global),
        Command::List(list) => list::list(list, &args.global),
        Command::Completions(completions) => shell::completions::<Args>(completions, &args.global),
        Command::Man(man) => shell::man::<Args>(man, &args.global),
    };
    match ended {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
