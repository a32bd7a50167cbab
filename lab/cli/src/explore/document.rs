//! Results of an exploration, for programs.

use std::fmt::Write;

use bursar_check::explore::{Document, Result};
use serde::Serialize;

use crate::failure::Failure;
use crate::format;

/// Of the document's form.
const SCHEMA: u32 = 1;
/// The revision of the source, noted when this was built.
const REVISION: &str = env!("BURSAR_REVISION");

/// A document with its form and origin.
#[derive(Serialize)]
struct Stamped<T> {
    schema: u32,
    revision: &'static str,
    #[serde(flatten)]
    content: T,
}

impl<T> Stamped<T> {
    fn new(content: T) -> Self {
        Self {
            schema: SCHEMA,
            revision: REVISION,
            content,
        }
    }
}

pub fn json(document: &Document) -> std::result::Result<String, Failure> {
    format::json(&Stamped::new(document))
}

/// A line for each target.
#[derive(Serialize)]
struct Line<'a> {
    seed: u64,
    interrupted: bool,
    #[serde(flatten)]
    result: &'a Result,
}

pub fn ndjson(document: &Document) -> std::result::Result<String, Failure> {
    let line = |result| {
        format::json_line(&Stamped::new(Line {
            seed: document.seed,
            interrupted: document.interrupted,
            result,
        }))
    };
    document.results.iter().map(line).collect()
}

pub fn csv(document: &Document) -> String {
    let has_stale = document.results.iter().any(Result::is_judged);
    let stale_column = if has_stale { ",stale" } else { "" };
    let mut lines =
        format!("protocol,sections,schedules,steps,result,schedule,reason{stale_column}\n");
    for result in &document.results {
        let failed = result.failure.as_ref();
        let schedule = failed.map_or("", |failed| &failed.schedule);
        let reason = failed.map_or("", |failed| &failed.reason);
        let stale = match (has_stale, result.stale) {
            (true, Some(stale)) => format!(",{stale}"),
            (true, None) => ",".to_owned(),
            (false, _) => String::new(),
        };
        let _ = writeln!(
            lines,
            "{},{},{},{},{},{schedule},{}{stale}",
            result.protocol,
            result.sections,
            result.schedules,
            result.steps,
            result.verdict(),
            format::csv_field(reason)
        );
    }
    lines
}
