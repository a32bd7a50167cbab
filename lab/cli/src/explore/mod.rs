//! `bursar-lab explore`: the command around the explorer of `bursar-check`.
//!
//! | part | file |
//! |---|---|
//! | the command line | `args.rs` |
//! | the document, for programs | `document.rs` |
//! | the document, for people | `text.rs` |

mod args;
mod document;
mod text;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use args::{EXAMPLES, Explore};
use bursar_check::explore::{Campaign, Document, targets};

use bursar_term::failure::{EXPECTATION_FAILED, Failure, INTERRUPTED};
use bursar_term::interruption;
use bursar_term::options::Global;
use bursar_term::output::Output;
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
            let document = campaign.run(&stop, &|ended, name| progress.advance(ended, name));
            progress.say_rate("schedules");
            document
        }
    };
    let text = match is_json {
        true => document::json(&document)?,
        false => text::text(&document, output.terminal()),
    };
    output.write(&text, |form| text::text(&document, form))?;
    Ok(if document.interrupted {
        ExitCode::from(INTERRUPTED)
    } else if document.is_as_expected() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXPECTATION_FAILED)
    })
}
