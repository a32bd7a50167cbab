//! What an exploration gave, for people.

use std::fmt::Write;

use comfy_table::CellAlignment;

use super::document::{Document, Failed, Result};
use crate::form::Form;
use crate::units::thousands;

/// A table of all targets, and how those fail that do.
pub fn text(document: &Document, form: Form) -> String {
    let mut text = form.heading(&title(document));
    let mut table = form.table(&["protocol", "sections", "schedules", "steps", "result"]);
    for result in &document.results {
        let verdict = result.verdict();
        let verdict = if result.is_as_expected() {
            verdict.to_owned()
        } else {
            form.alarm(verdict)
        };
        table.add_row([
            result.protocol.to_owned(),
            result.sections.to_owned(),
            thousands(result.schedules),
            thousands(result.steps),
            verdict,
        ]);
    }
    for column in table.column_iter_mut().skip(2).take(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    text.push_str(&form.render(&table));
    for result in &document.results {
        if let Some(failed) = &result.failure {
            text.push('\n');
            text.push_str(&failure(result, failed, form));
        }
    }
    if document.interrupted {
        text.push_str("\nInterrupted: the rest was not explored.\n");
    }
    text
}

fn title(document: &Document) -> String {
    let schedules = document.results.iter().map(|result| result.schedules).sum();
    let is_planted = document.results.iter().any(|result| result.planted);
    let unexpected = document
        .results
        .iter()
        .filter(|result| !result.is_as_expected())
        .count();
    let verdict = match (is_planted, unexpected) {
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

fn failure(result: &Result, failed: &Failed, form: Form) -> String {
    let mut text = form.heading(&format!(
        "{} with {} sections, schedule {}",
        result.protocol, result.sections, failed.schedule
    ));
    let _ = writeln!(text, "{}\n{}\n", result.summary, form.alarm(&failed.reason));
    if failed.choices > 0 {
        let _ = writeln!(
            text,
            "Which task went on, and at how many choices in a row ({} in all):",
            failed.choices
        );
        text.push_str(&form.verbatim(&folded(&failed.order)));
        text.push('\n');
    }
    text.push_str("To see it again:\n");
    text.push_str(&form.verbatim(&format!("  {}\n", failed.replay)));
    text
}

/// Words on lines of a readable width.
fn folded(words: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in words.split(' ') {
        if width + word.len() > 100 {
            text.push('\n');
            width = 0;
        }
        text.push_str(if width == 0 { "  " } else { " " });
        text.push_str(word);
        width += word.len() + 1;
    }
    text.push('\n');
    text
}
