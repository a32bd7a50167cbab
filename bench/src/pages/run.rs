//! All measurements in turns, each in a process of its own.

use std::process::{Child, Command, Stdio};

use crate::pages::job::{Figure, Report};
use crate::pages::row::{self, Row};
use crate::pages::scenario::Scenario;
use crate::rounds;
use crate::series::Series;

/// Most rounds: the targets are medians of ten.
pub const ROUNDS_MAX: usize = 10;
/// Most rounds of *retained*, which waits for half a minute and varies little.
const RETAINED_ROUNDS_MAX: usize = 3;

/// Measurements, and contenders that could not take part.
pub struct Results {
    pub series: Vec<Series>,
    /// Name and reason.
    pub absent: Vec<(&'static str, String)>,
}

/// One row and what its processes said.
struct Entry {
    row: Row,
    turns: Vec<Vec<Figure>>,
    absent: Option<String>,
}

/// Runs all rounds of the rows whose name, "scenario size threads contender", contains `filter`.
///
/// # Errors
/// Which measurement failed, and why.
pub fn run(
    cpus: usize,
    count: usize,
    quick: bool,
    filter: Option<&str>,
) -> Result<Results, String> {
    let wanted = |row: &Row| filter.is_none_or(|filter| row.to_string().contains(filter));
    let entry = |row| Entry {
        row,
        turns: Vec::new(),
        absent: None,
    };
    let mut entries: Vec<Entry> = row::rows(cpus).filter(wanted).map(entry).collect();
    if entries.is_empty() {
        return Err("--filter: no row of pages contains that".to_owned());
    }
    for round in 0..count {
        rounds::progress(round, count);
        for heat in entries.chunk_by_mut(|one, other| one.row.is_heat_of(&other.row)) {
            match heat[0].row.scenario {
                // They sleep most of the time.
                Scenario::Retained if round < RETAINED_ROUNDS_MAX => together(heat, quick)?,
                Scenario::Retained => (),
                _ => in_turn(heat, round, quick)?,
            }
        }
    }
    rounds::progress(count, count);
    Ok(results(&entries))
}

fn in_turn(heat: &mut [Entry], round: usize, quick: bool) -> Result<(), String> {
    let entrants = heat.len();
    for at in 0..entrants {
        let entry = &mut heat[(at + round) % entrants];
        if entry.absent.is_none() {
            let child = start(&entry.row, quick)?;
            entry.finish(child)?;
        }
    }
    Ok(())
}

fn together(heat: &mut [Entry], quick: bool) -> Result<(), String> {
    let start = |entry: &Entry| match entry.absent {
        None => start(&entry.row, quick).map(Some),
        Some(_) => Ok(None),
    };
    let children: Vec<_> = heat.iter().map(start).collect();
    let mut outcome = Ok(());
    // All are waited for, even if one failed.
    for (entry, child) in heat.iter_mut().zip(children) {
        let finished = child.and_then(|child| child.map_or(Ok(()), |child| entry.finish(child)));
        outcome = outcome.and(finished);
    }
    outcome
}

fn start(row: &Row, quick: bool) -> Result<Child, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["pages", "--row", &row.to_string()]);
    if quick {
        command.arg("--quick");
    }
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.stderr(Stdio::piped()).spawn();
    child.map_err(|error| format!("pages, {row}: {error}"))
}

impl Entry {
    fn finish(&mut self, child: Child) -> Result<(), String> {
        let row = self.row;
        let report = said(child).map_err(|error| format!("pages, {row}: {error}"))?;
        match report {
            Report::Measured(figures) => self.turns.push(figures),
            Report::Absent(why) => self.absent = Some(why),
        }
        Ok(())
    }
}

fn said(child: Child) -> Result<Report, String> {
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("{}: {complaint}", output.status));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

fn results(entries: &[Entry]) -> Results {
    let mut absent: Vec<(&'static str, String)> = Vec::new();
    for entry in entries {
        let known = absent.iter().any(|(name, _)| *name == entry.row.contender);
        if let (Some(why), false) = (&entry.absent, known) {
            absent.push((entry.row.contender, why.clone()));
        }
    }
    let series = entries.iter().flat_map(series).collect();
    Results { series, absent }
}

/// One series for each figure of a row.
fn series(entry: &Entry) -> Vec<Series> {
    let Row {
        scenario,
        size,
        threads,
        contender,
    } = entry.row;
    let first = entry.turns.first();
    let of = |figure: &Figure| Series {
        scenario: Row::series_name(scenario, size, &figure.what),
        depth: 0,
        contender: contender.to_owned(),
        threads,
        unit: figure.unit.clone(),
        samples: entry
            .turns
            .iter()
            .flatten()
            .filter(|other| other.what == figure.what)
            .map(|other| other.value)
            .collect(),
    };
    first.into_iter().flatten().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::row::Size;

    #[test]
    fn figures_become_series() {
        let figure = |what: &str, value| Figure {
            what: what.to_owned(),
            unit: "ns".to_owned(),
            value,
        };
        let entry = |contender, turns, absent: Option<&str>| Entry {
            row: Row {
                scenario: Scenario::Churn,
                size: Size::Small,
                threads: 2,
                contender,
            },
            turns,
            absent: absent.map(str::to_owned),
        };
        let turn = |value| vec![figure("alloc p50", value), figure("free p50", value + 1.0)];
        let results = results(&[
            entry("a", vec![turn(1.0), turn(2.0)], None),
            entry("b", Vec::new(), Some("not installed")),
            entry("b", Vec::new(), Some("not installed")),
        ]);
        assert_eq!(results.absent, [("b", "not installed".to_owned())]);
        let names: Vec<&str> = results
            .series
            .iter()
            .map(|one| one.scenario.as_str())
            .collect();
        assert_eq!(names, ["churn 4K alloc p50", "churn 4K free p50"]);
        assert_eq!(results.series[1].samples, [2.0, 3.0]);
    }
}
