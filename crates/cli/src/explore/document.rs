//! What an exploration gave, for programs.

use std::fmt::Write;

use bursar_sim::{Decision, Explored, Found, ScheduleId};
use serde::Serialize;

use super::subject::{Group, Target};
use crate::failure::Failure;
use crate::format;

/// Of the document's form.
const SCHEMA: u32 = 1;
/// The revision of the source, noted when this was built.
const REVISION: &str = env!("BURSAR_REVISION");

/// The document.
#[derive(Debug, Serialize)]
pub struct Document {
    schema: u32,
    revision: &'static str,
    pub seed: u64,
    pub interrupted: bool,
    pub results: Vec<Result>,
}

/// What one target gave.
#[derive(Debug, Serialize)]
pub struct Result {
    pub protocol: &'static str,
    pub summary: &'static str,
    pub sections: &'static str,
    /// A bug was planted, and must be found.
    pub planted: bool,
    pub schedules: u64,
    pub steps: u64,
    pub failure: Option<Failed>,
}

/// How a target is broken.
#[derive(Debug, Serialize)]
pub struct Failed {
    pub schedule: String,
    pub reason: String,
    /// How many choices it takes.
    pub choices: usize,
    /// Which task went on at them: `0x5 1 (1 to CPU 0) 2x3` is task 0 at five choices, then task 1, which was moved to
    /// another CPU when task 2 went on at the next three.
    pub order: String,
    /// The command that shows it again.
    pub replay: String,
}

impl Document {
    pub fn new(seed: u64, interrupted: bool, results: Vec<Result>) -> Self {
        Self {
            schema: SCHEMA,
            revision: REVISION,
            seed,
            interrupted,
            results,
        }
    }

    /// Runs one schedule again.
    pub fn replay(target: &Target, schedule: ScheduleId) -> Self {
        let explorer = target.explorer(schedule.seed);
        let mut result = Result::new(target);
        result.schedules = 1;
        if let Err(found) = explorer.replay(&target.scenario(), schedule) {
            result.fail(&found);
        }
        // That a planted bug shows again is no success, but what was asked to be seen.
        result.planted = false;
        Self::new(schedule.seed, false, vec![result])
    }

    /// Whether protocols hold and planted bugs were found.
    pub fn is_as_expected(&self) -> bool {
        self.results.iter().all(Result::is_as_expected)
    }
}

impl Result {
    pub fn new(target: &Target) -> Self {
        Self {
            protocol: target.subject.name,
            summary: target.subject.summary,
            sections: target.sections_name(),
            planted: target.subject.group == Group::Planted,
            schedules: 0,
            steps: 0,
            failure: None,
        }
    }

    /// Some more schedules.
    pub fn add(&mut self, explored: &Explored) {
        self.schedules += explored.schedules;
        self.steps += explored.steps;
        if let Some(found) = &explored.found {
            self.fail(found);
        }
    }

    fn fail(&mut self, found: &Found) {
        let planted = if self.planted { " --planted" } else { "" };
        self.failure = Some(Failed {
            schedule: found.schedule.to_string(),
            reason: found.failure.to_string(),
            choices: found.choices.len(),
            order: order(&found.choices),
            replay: format!(
                "bursar explore {}{planted} --sections {} --replay {}",
                self.protocol, self.sections, found.schedule
            ),
        });
    }

    pub fn is_as_expected(&self) -> bool {
        self.failure.is_some() == self.planted
    }

    /// The result in two words at most.
    pub fn verdict(&self) -> &'static str {
        match (self.planted, &self.failure) {
            // Interrupted before.
            (_, None) if self.schedules == 0 => "not explored",
            (false, None) => "holds",
            (false, Some(_)) => "BROKEN",
            (true, Some(_)) => "found",
            (true, None) => "NOT FOUND",
        }
    }
}

/// See [`Failed::order`].
fn order(choices: &[Decision]) -> String {
    let task = |choice: Decision| choice & 0xff;
    let mut words: Vec<String> = Vec::new();
    let mut before = None;
    let mut left = choices;
    while let [first, rest @ ..] = left {
        if let (Some(mover), Some(cpu)) = (before, (first >> 8).checked_sub(1)) {
            words.push(format!("({mover} to CPU {cpu})"));
        }
        let next = task(*first);
        let same = rest.iter().take_while(|choice| **choice == next).count();
        words.push(match same {
            0 => next.to_string(),
            same => format!("{next}x{}", same + 1),
        });
        before = Some(next);
        left = &rest[same..];
    }
    words.join(" ")
}

/// A line for each target.
#[derive(Serialize)]
struct Line<'a> {
    schema: u32,
    revision: &'a str,
    seed: u64,
    interrupted: bool,
    #[serde(flatten)]
    result: &'a Result,
}

pub fn ndjson(document: &Document) -> std::result::Result<String, Failure> {
    let line = |result| {
        format::json_line(&Line {
            schema: document.schema,
            revision: document.revision,
            seed: document.seed,
            interrupted: document.interrupted,
            result,
        })
    };
    document.results.iter().map(line).collect()
}

pub fn csv(document: &Document) -> String {
    let mut lines = "protocol,sections,schedules,steps,result,schedule,reason\n".to_owned();
    for result in &document.results {
        let failed = result.failure.as_ref();
        let schedule = failed.map_or("", |failed| &failed.schedule);
        let reason = failed.map_or("", |failed| &failed.reason);
        let _ = writeln!(
            lines,
            "{},{},{},{},{},{schedule},{}",
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

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn choices_in_a_row_are_counted() {
        assert_eq!(
            order(&[0, 0, 1, 0x0202, 2, 2, 0]),
            "0x2 1 (1 to CPU 1) 2x3 0"
        );
        assert_eq!(order(&[]), "");
    }
}
