//! `bursar`: runs Bursar's experiments and says how the library works on this machine.
//!
//! Standard output holds the document that was asked for and nothing else; progress and remarks go to standard error.

#![forbid(unsafe_code)]

mod args;
mod calibrate;
mod compare;
mod doctor;
mod explore;
mod failure;
mod findings;
mod format;
mod further_figures;
mod grid;
mod html;
mod interruption;
mod jobs;
mod latency_ranges;
mod list;
mod live;
mod machine;
mod markup;
mod observe;
mod options;
mod output;
mod page;
mod picture;
mod place;
mod points;
mod progress;
mod published_figures;
mod report;
mod result_file;
mod run;
#[cfg(test)]
mod samples;
mod screen;
mod shell;
mod svg;
mod system;
mod table;
mod timeline;
mod units;
mod view;
mod width;

use std::process::ExitCode;

use args::Command;

fn main() -> ExitCode {
    let args = args::parse();
    let ended = match &args.command {
        Command::Run(run) => run::run(run, &args.global),
        Command::Report(report) => report::report(report, &args.global),
        Command::Compare(compare) => compare::compare(compare, &args.global),
        Command::Explore(explore) => explore::explore(explore, &args.global),
        Command::Calibrate(calibrate) => calibrate::calibrate(calibrate, &args.global),
        Command::List(list) => list::list(list, &args.global),
        Command::Completions(completions) => shell::completions(completions, &args.global),
        Command::Man(man) => shell::man(man, &args.global),
        Command::Observe(observe) => observe::observe(observe, &args.global),
        Command::Stat(stat) => live::stat(stat, &args.global),
        Command::Top(top) => live::top(top, &args.global),
        Command::Doctor => doctor::doctor(&args.global),
    };
    match ended {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
