//! `bursar explore`: the protocols of the library, and others to compare with, under many schedules of a machine without time.
//!
//! | part | file |
//! |---|---|
//! | the command line | `args.rs` |
//! | the subjects: protocols of all kinds | `subject.rs` |
//! | threads that explore, and which failure is the first | `campaign.rs` |
//! | the document, for programs | `document.rs` |
//! | the document, for people | `text.rs` |

mod args;
mod campaign;
mod document;
mod subject;
mod text;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use args::{EXAMPLES, Explore};

use self::campaign::Campaign;
use self::document::Document;
use self::subject::{Subject, Target};
use crate::failure::{EXPECTATION_FAILED, Failure, INTERRUPTED};
use crate::format;
use crate::interruption;
use crate::markup::Markup;
use crate::options::Global;
use crate::options::TextFormat;
use crate::output::Output;
use crate::progress::Progress;

/// Explores, or runs one schedule again, and writes one document.
pub fn explore(explore: &Explore, global: &Global) -> Result<ExitCode, Failure> {
    let targets = targets(explore)?;
    let format = global.text_format()?;
    let output = Output::open(global)?;
    let document = match explore.replay {
        Some(schedule) => {
            // One schedule has no part to show.
            interruption::catch(|| false)?;
            Document::replay(&targets[0], schedule)
        }
        None => {
            let campaign = Campaign::new(targets, explore.seed, explore.schedules);
            let stop = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&stop);
            // Relaxed: nothing else is passed with it.
            interruption::catch(move || !flag.swap(true, Ordering::Relaxed))?;
            let progress = Progress::new(campaign.schedules(), global);
            progress.begin(&format!("seed {}", explore.seed), "");
            let document = campaign.run(&stop, &progress);
            progress.say_rate("schedules");
            document
        }
    };
    let text = match format {
        TextFormat::Table => text::text(&document, output.terminal()),
        TextFormat::Markdown => text::text(&document, Markup::Markdown),
        TextFormat::Json => format::json(&document)?,
        TextFormat::Ndjson => document::ndjson(&document)?,
        TextFormat::Csv => document::csv(&document),
    };
    output.write(&text)?;
    Ok(if document.interrupted {
        ExitCode::from(INTERRUPTED)
    } else if document.is_as_expected() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXPECTATION_FAILED)
    })
}

/// The targets that are asked for, each once, in the order in which it was named, with each kind of sections.
fn targets(explore: &Explore) -> Result<Vec<Target>, Failure> {
    let all = subject::all(explore.group());
    let mut subjects: Vec<Subject> = Vec::new();
    for name in &explore.protocols {
        let subject = subject::named(&all, name)?;
        if !subjects.iter().any(|other| other.name == subject.name) {
            subjects.push(subject.clone());
        }
    }
    if subjects.is_empty() {
        subjects = all;
    }
    let kinds = explore.kinds();
    let with_kinds = |subject: Subject| {
        kinds.iter().map(move |&sections| Target {
            subject: subject.clone(),
            sections,
        })
    };
    let targets: Vec<Target> = subjects.into_iter().flat_map(with_kinds).collect();
    if explore.replay.is_some() && targets.len() != 1 {
        return Err(Failure::usage(
            "a schedule belongs to one protocol and one kind of sections: name it, and say `--sections restartable` or \
             `--sections atomic`",
        ));
    }
    Ok(targets)
}
