//! Results of an exploration, for people.

use bursar_check::explore::{Document, Failed, Result};

use crate::units::{percent, thousands};
use bursar_term::grid::Grid;
use bursar_term::markup::Markup;
use bursar_term::width::wrapped;

/// With more results than this, a table is all that is printed of stale reads.
const STALE_SHOWN: usize = 3;

/// A table of all targets, and how those fail that do.
pub fn text(document: &Document, form: Markup) -> String {
    let mut text = form.heading(&title(document));
    let is_judged = document.results.iter().any(Result::is_judged);
    let header = ["protocol", "sections", "schedules", "steps", "result"];
    let stale_header = is_judged.then_some("stale in");
    let header = header.into_iter().chain(stale_header);
    let mut table = Grid::new(header).right(2..4);
    for result in &document.results {
        let verdict = verdict(result);
        let verdict = if result.is_as_expected() {
            verdict
        } else {
            form.alarm(&verdict)
        };
        let mut row = vec![
            result.protocol.clone(),
            result.sections.to_owned(),
            thousands(result.schedules),
            thousands(result.steps),
            verdict,
        ];
        if is_judged {
            let stale = result.stale.map(|stale| share(stale, result.schedules));
            row.push(stale.unwrap_or_default());
        }
        table.row(row);
    }
    text.push_str(&form.table(&table));
    let are_many = document.results.len() > STALE_SHOWN;
    let mut left_out = None;
    for result in &document.results {
        let Some(failed) = &result.failure else {
            continue;
        };
        if are_many && result.is_published() && result.is_as_expected() {
            left_out = left_out.or(Some(failed));
            continue;
        }
        text.push('\n');
        text.push_str(&failure(result, failed, form));
    }
    if let Some(failed) = left_out {
        text.push_str("\nTo see a schedule, for example the first that is stale here:\n");
        text.push_str(&form.verbatim(&format!("  {}\n", failed.replay)));
    }
    if document.interrupted {
        text.push_str("\nInterrupted: the rest was not explored.\n");
    }
    text
}

/// The result, and for published policies also its evidence.
fn verdict(result: &Result) -> String {
    let verdict = result.verdict();
    match (&result.failure, verdict) {
        (Some(failed), "stale") => format!("stale: {}", failed.schedule),
        (None, "fresh") => format!("fresh in {} schedules", thousands(result.schedules)),
        _ => verdict.to_owned(),
    }
}

/// So many of all, in percent.
fn share(some: u64, all: u64) -> String {
    if all == 0 {
        return "-".to_owned();
    }
    percent(some as f64 / all as f64)
}

fn title(document: &Document) -> String {
    let schedules = document.results.iter().map(|result| result.schedules).sum();
    let is_planted = document.results.iter().any(|result| result.planted);
    let is_judged = document.results.iter().any(Result::is_judged);
    let count = |is: &dyn Fn(&Result) -> bool| {
        let results = document.results.iter();
        results.filter(|result| is(result)).count()
    };
    let unexpected = count(&|result| !result.is_as_expected());
    let verdict = match (is_planted, unexpected) {
        (false, 0) if is_judged => {
            let of = |verdict| count(&|result| result.verdict() == verdict);
            let judged = format!("{} fresh, {} stale", of("fresh"), of("stale"));
            match of("holds") {
                0 => judged,
                others => format!("{judged}, {others} unbroken"),
            }
        }
        (false, 0) => "none broken".to_owned(),
        (false, broken) => format!("{broken} broken"),
        (true, 0) => "each planted bug found".to_owned(),
        (true, missed) => format!("{missed} planted bugs not found"),
    };
    format!(
        "{} schedules from seed {}: {verdict}",
        thousands(schedules),
        document.seed
    )
}

fn failure(result: &Result, failed: &Failed, form: Markup) -> String {
    let mut text = form.heading(&format!(
        "{} with {} sections, schedule {}",
        result.protocol, result.sections, failed.schedule
    ));
    text.push_str(&form.paragraph(&result.summary));
    text.push_str(&form.paragraph(&form.alarm(&failed.reason)));
    text.push('\n');
    if failed.choices > 0 {
        text.push_str(&form.paragraph(&format!(
            "Which task went on, and at how many choices in a row ({} in all):",
            failed.choices
        )));
        let order = wrapped(&failed.order, form.width().or(Some(100)), "  ", "  ");
        text.push_str(&form.verbatim(&order));
        text.push('\n');
    }
    text.push_str("To see it again:\n");
    text.push_str(&form.verbatim(&format!("  {}\n", failed.replay)));
    text
}
