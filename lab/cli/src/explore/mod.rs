//! `bursar-lab explore`: the command around the explorer of `bursar-check`.
//!
//! | part | file |
//! |---|---|
//! | the command line | `args.rs` |
//! | the document, for programs | `document.rs` |
//! | the document, for people | `text.rs` |
//! | the file of the ledger | `ledger.rs` |
//! | processes for some of the schedules | `process.rs` |

mod args;
mod document;
mod ledger;
mod process;
mod text;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

pub use args::{EXAMPLES, Explore};
use bursar_check::explore::{Campaign, Document, Target, targets};

use bursar_term::failure::{EXPECTATION_FAILED, Failure, INTERRUPTED};
use bursar_term::interruption;
use bursar_term::options::Global;
use bursar_term::output::{self, Output};
use bursar_term::progress::Progress;

/// Explores, or runs one schedule again, and writes one document.
pub fn explore(explore: &Explore, global: &Global) -> Result<ExitCode, Failure> {
    let targets =
        targets(explore.group(), &explore.protocols, explore.kinds()).map_err(Failure::usage)?;
    if explore.replay.is_some() && targets.len() != 1 {
        return Err(Failure::usage(
            "a schedule belongs to one protocol and one kind of sections: name it, and say `--sections restartable` or \
             `--sections atomic`",
        ));
    }
    let is_json = global.is_json()?;
    output::refuse_to_replace(&explore.ledger, global.output.as_deref())?;
    let output = Output::open(global)?;
    let mut ledger = explore
        .ledger
        .as_deref()
        .map(ledger::File::open)
        .transpose()?;
    let (document, failure) = match explore.replay {
        Some(schedule) => {
            // One schedule has no part to show.
            interruption::catch(|| false)?;
            (Document::replay(&targets[0], schedule), None)
        }
        None => search(explore, targets, ledger.as_mut(), global)?,
    };
    let table = |form| {
        let sums = ledger
            .as_ref()
            .map_or_else(String::new, |file| file.sums(form));
        text::text(&document, form) + &sums
    };
    let text = match is_json {
        true => document::json(&document)?,
        false => table(output.terminal()),
    };
    output.write(&text, table)?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    Ok(if document.interrupted {
        ExitCode::from(INTERRUPTED)
    } else if document.is_as_expected() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXPECTATION_FAILED)
    })
}

/// Explores all targets together, or for a ledger one after the other, so that each has a time of its own.
///
/// Returns what was found, and with it the first failure of another process or of the ledger: what was found is not lost to it.
fn search(
    explore: &Explore,
    targets: Vec<Target>,
    mut ledger: Option<&mut ledger::File>,
    global: &Global,
) -> Result<(Document, Option<Failure>), Failure> {
    let seed = match &ledger {
        None => explore.seed.unwrap_or(1),
        Some(file) => file.seed(explore.seed, &targets)?,
    };
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    // Relaxed: nothing else is passed with it.
    interruption::catch(move || !flag.swap(true, Ordering::Relaxed))?;
    let of_all = Campaign::new(targets, seed, explore.from, explore.schedules);
    let progress = Progress::new(of_all.schedules(), global);
    progress.begin(&format!("seed {seed}"), "");
    let failed = OnceLock::new();
    let run = |campaign: &Campaign| {
        campaign.run(&stop, &process::explore(seed, &failed), &|ended, name| {
            progress.advance(ended, name);
        })
    };
    let mut unwritten = None;
    let document = match &mut ledger {
        None => run(&of_all),
        Some(file) => {
            let mut all = Document::new(seed, false, Vec::new());
            for campaign in of_all.apart() {
                let began_s = progress.seconds();
                let one = run(&campaign);
                // Nothing is added behind a row that may be cut off.
                if unwritten.is_none() {
                    unwritten = file.add(&one, progress.seconds() - began_s).err();
                }
                all.append(one);
            }
            all
        }
    };
    progress.say_rate("schedules");
    let failure = failed.into_inner().map(Failure::unavailable);
    Ok((document, failure.or(unwritten)))
}
