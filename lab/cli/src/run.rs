//! `bursar-lab run`.

use std::io::{IsTerminal, Write};
use std::panic::resume_unwind;
use std::path::Path;
use std::process::ExitCode;

use bursar_experiments::document::Document;
use bursar_experiments::{Plan, Request};

use crate::args::Run;
use crate::jobs::{self, Batch, Cause, Mailbox, Message, RunFailure};
use crate::machine;
use crate::screen::{self, Question};
use crate::units::{counted, long_time};
use crate::{format, html, page, table};
use bursar_term::failure::{Failure, INTERRUPTED, UNAVAILABLE};
use bursar_term::interruption;
use bursar_term::options::Format;
use bursar_term::options::Global;
use bursar_term::output::Output;
use bursar_term::progress::Progress;

/// The revision of the source, noted when this was built.
const REVISION: &str = env!("BURSAR_REVISION");

/// Form in which the documents are shown.
enum Shown {
    /// In the form that was asked for.
    Whole(Format),
    /// As one screen, with a page of its own accord.
    Screen,
    /// As one screen, with the page where it was asked for.
    ScreenAndPage(Output),
}

/// Runs experiments and writes one document. All that can be refused is refused before anything runs.
pub fn run(run: &Run, global: &Global) -> Result<ExitCode, Failure> {
    let batches = match run.is_alone() {
        true => screen_batches()?,
        false => batches(run)?,
    };
    let (shown, output) = shown(run, global)?;
    let mailbox = Mailbox::new();
    let sender = mailbox.sender.clone();
    interruption::catch(move || sender.send(Message::Interrupted).is_ok())?;

    announce(&batches, global);
    let progress = Progress::new(jobs::count(&batches), global);
    let done = jobs::run(batches, REVISION, &mailbox, &progress);
    let seconds = progress.seconds();
    drop(progress);
    // An interruption or a failure leaves no document if there are no figures.
    let mut written = Ok(());
    if done.documents.is_empty() {
        let _ = writeln!(
            std::io::stderr(),
            "{} before any run had finished; nothing is written",
            if done.is_interrupted {
                "interrupted"
            } else {
                "failed"
            }
        );
    } else {
        written = show(&done.documents, shown, seconds, output, global);
    }
    let is_whole = done.failures.is_empty();
    report(done.failures);
    written?;
    Ok(match (done.is_interrupted, is_whole) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, false) => ExitCode::from(UNAVAILABLE),
        (false, true) => format::exit_code(&done.documents),
    })
}

/// Form in which the documents are shown, and the place of the text.
fn shown(run: &Run, global: &Global) -> Result<(Shown, Output), Failure> {
    let format = global.format()?;
    let output = Output::open(global)?;
    Ok(match (run.is_alone(), format, &global.output) {
        (true, Format::Table, _) => (Shown::Screen, output),
        (true, Format::Html, Some(_)) => (Shown::ScreenAndPage(output), Output::standard(global)),
        _ => (Shown::Whole(format), output),
    })
}

/// Writes the documents, and the page that belongs to the screen. A page that was not asked for may fail.
fn show(
    documents: &[Document],
    shown: Shown,
    seconds: f64,
    output: Output,
    global: &Global,
) -> Result<(), Failure> {
    let terminal = output.terminal();
    let mut written = Ok(());
    let page = match shown {
        Shown::Whole(format) => {
            let text = format::documents(documents, format, terminal, global.verbose)?;
            return output.write(&text, |form| table::run(documents, form, global.verbose));
        }
        Shown::Screen => beside(Path::new(""), documents)?,
        Shown::ScreenAndPage(page) => {
            let place = page.to_string();
            written = page.write(&html::page(documents)?, |_| String::new());
            match written {
                Ok(()) => format!("Pictures and figures of these runs: {place}"),
                Err(_) => "No pictures: they could not be written.".to_owned(),
            }
        }
    };
    let mut text = screen::text(documents, seconds, &page, terminal);
    if global.verbose {
        text.push('\n');
        text.push_str(&table::run(documents, terminal, true));
    }
    output.write(&text, |_| text.clone())?;
    written
}

/// Writes the page of a whole run into a directory, and says where it is or why there is none.
fn beside(directory: &Path, documents: &[Document]) -> Result<String, Failure> {
    // A page of an earlier run has all figures.
    if documents.iter().any(|document| document.interrupted) {
        return Ok("No pictures: the run was interrupted.".to_owned());
    }
    Ok(match page::write(directory, &html::page(documents)?) {
        Ok(()) => format!("Pictures and figures of these runs: {}", page::NAME),
        Err(why) => format!(
            "No pictures: cannot write {}: {why}; -o FILE.html names another file",
            page::NAME
        ),
    })
}

/// Says which runs failed. One that ended in a bug goes on as the panic that it is, now that the others are written.
fn report(failures: Vec<RunFailure>) {
    let mut panics = Vec::new();
    for failure in failures {
        let said = match failure.cause {
            Cause::Said(said) => said,
            Cause::Panic(panic) => {
                panics.push(panic);
                "a bug in this program".to_owned()
            }
        };
        let _ = writeln!(std::io::stderr(), "error: {}: {said}", failure.name);
    }
    if let Some(panic) = panics.into_iter().next() {
        resume_unwind(panic);
    }
}

/// The experiments that are asked for, each once, in the order in which they were named.
pub fn batches(run: &Run) -> Result<Vec<Batch>, Failure> {
    let mut names: Vec<&str> = Vec::new();
    for name in &run.experiments {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    if names.is_empty() {
        names = bursar_experiments::names().collect();
    }
    let wanted = Wanted {
        machine: run.machine.as_deref(),
        set: &run.set,
        is_quick: run.quick || run.experiments.is_empty(),
        seeds: run.seeds,
    };
    let batches = names.into_iter().map(|name| batch(name, &wanted));
    batches.collect()
}

/// The runs of the screen.
fn screen_batches() -> Result<Vec<Batch>, Failure> {
    let of = |question: &Question| {
        let set = question.assignments();
        batch(question.experiment, &Wanted::usual(&set, false))
    };
    screen::QUESTIONS.iter().map(of).collect()
}

/// Settings of an experiment's run.
pub struct Wanted<'a> {
    machine: Option<&'a str>,
    set: &'a [String],
    is_quick: bool,
    seeds: u64,
}

impl<'a> Wanted<'a> {
    /// On its own machine, with one seed.
    pub fn usual(set: &'a [String], is_quick: bool) -> Self {
        Self {
            machine: None,
            set,
            is_quick,
            seeds: 1,
        }
    }
}

/// The runs of an experiment.
pub fn batch(name: &str, wanted: &Wanted<'_>) -> Result<Batch, Failure> {
    let experiment = bursar_experiments::experiment_named(name).map_err(Failure::usage)?;
    let asked = machine::Request::new(wanted.machine, &experiment)?;
    let keys = machine::keys();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let request = Request {
        machine: asked.kind(),
        machine_keys: &keys,
        assignments: wanted.set,
        is_quick: wanted.is_quick,
        seeds: wanted.seeds,
    };
    let plan = Plan::new(experiment, request).map_err(Failure::usage)?;
    if let Some(model) = plan.drawn_from() {
        machine::check_model(model, name)?;
    }
    let machines = plan.points().map(|point| asked.at(point, plan.ensemble()));
    let machines = machines.collect::<Result<_, _>>()?;
    Ok(Batch { plan, machines })
}

/// Says on standard error, before anything runs, what follows: always if it takes long, and where no progress is shown unless it
/// takes a moment.
fn announce(batches: &[Batch], global: &Global) {
    /// As long as an experiment in full may take.
    const LONG_SECONDS: f64 = 1_200.0;
    /// As long as a reader waits without a word.
    const MOMENT_SECONDS: f64 = 5.0;
    let seconds = jobs::estimated_seconds(batches);
    let is_shown = std::io::stderr().is_terminal();
    let is_long = seconds >= LONG_SECONDS;
    let is_said = is_shown || global.verbose;
    if global.quiet || !is_long && (is_said || seconds < MOMENT_SECONDS) {
        return;
    }
    let runs = counted(jobs::count(batches), "run");
    let time = long_time(seconds);
    let advice = match is_long {
        true => "An interruption (Ctrl-C or SIGTERM) keeps those that have finished.",
        false => "-v tells of each.",
    };
    let _ = writeln!(
        std::io::stderr(),
        "{runs}, estimated to take about {time} here. {advice}"
    );
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};
    use crate::samples;

    #[test]
    fn a_screen_is_for_runs_to_which_nothing_is_said() {
        let page = std::env::temp_dir().join(format!("bursar-screen-{}.html", std::process::id()));
        let page = page.to_str().expect("a temporary path is text");
        for (arguments, expected) in [
            (&[][..], "screen"),
            (&["-v"], "screen"),
            (&["-f", "table"], "screen"),
            (&["-o", page], "screen and page"),
            (&["-f", "html"], "whole"),
            (&["-f", "json"], "whole"),
            (&["--quick"], "whole"),
            (&["-m", "sim"], "whole"),
            (&["-s", "seed=2"], "whole"),
            (&["--seeds", "2"], "whole"),
            (&["memcg-flush"], "whole"),
            (&["memcg-flush", "-o", page], "whole"),
        ] {
            let all = [&["bursar-lab", "run"], arguments].concat();
            let args = Args::try_parse_from(all).expect("a command line");
            let Command::Run(run) = &args.command else {
                unreachable!("it is `run`")
            };
            let is = match shown(run, &args.global).expect("a place").0 {
                Shown::Screen => "screen",
                Shown::ScreenAndPage(_) => "screen and page",
                Shown::Whole(_) => "whole",
            };
            assert_eq!(is, expected, "{arguments:?}");
        }
    }

    #[test]
    fn the_runs_of_the_screen_exist_and_are_short() {
        let batches = screen_batches().expect("loads and variants of the files");
        assert_eq!(batches.len(), 3);
        assert!(jobs::cpu_seconds(&batches) <= 60.0);
    }

    #[test]
    fn an_interrupted_run_leaves_the_page_as_it_is() {
        let name = format!("bursar-beside-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        let page = directory.join(page::NAME);
        let mut documents = [samples::vmstat_spread(72, 18)];
        let said = beside(&directory, &documents).expect("a page");
        assert!(said.ends_with(page::NAME), "{said}");
        let whole = std::fs::read(&page).expect("the page");
        documents[0].interrupted = true;
        let said = beside(&directory, &documents).expect("no page");
        assert!(said.contains("interrupted"), "{said}");
        assert_eq!(std::fs::read(&page).expect("the page"), whole);
        std::fs::remove_dir_all(&directory).expect("a temporary directory");
    }
}
