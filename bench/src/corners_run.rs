//! The rounds and the table of `corners`.

use comfy_table::{Table, presets};

use crate::corners::{Corner, Figure, Sizes, corners};
use crate::rounds;
use crate::series::{Run, Series, Summary};
use crate::table::with_range;
use crate::timing::Effort;

/// Runs all rounds; the corners take turns.
///
/// # Errors
/// Whose books do not balance, and how; or that `filter` names none.
pub fn run(
    sizes: &Sizes,
    filter: Option<&str>,
    cpus: &[usize],
    effort: Effort,
) -> Result<Vec<Series>, String> {
    let corners = corners(sizes, filter);
    if corners.is_empty() {
        return Err("--filter: no row of corners contains that".to_owned());
    }
    let mut samples: Vec<Vec<Vec<f64>>> = corners.iter().map(|_| Vec::new()).collect();
    for round in 0..effort.rounds {
        rounds::progress(round, effort.rounds);
        for turn in 0..corners.len() {
            let at = (turn + round) % corners.len();
            if round < corners[at].rounds_max() {
                samples[at].push(corners[at].turn(cpus, effort.slice));
            }
        }
    }
    rounds::progress(effort.rounds, effort.rounds);
    let mut series = Vec::new();
    for (corner, samples) in corners.iter().zip(samples) {
        let (scenario, beside) = (corner.scenario(), corner.beside());
        let checked = corner.check();
        checked.map_err(|error| format!("{scenario}, beside {beside}: {error}"))?;
        series.extend(series_of(&**corner, &samples));
    }
    Ok(series)
}

/// One series for each figure.
fn series_of(corner: &dyn Corner, samples: &[Vec<f64>]) -> Vec<Series> {
    let figures = corner.figures().iter().enumerate();
    let series = |(at, Figure { name, unit }): (usize, &Figure)| Series {
        scenario: format!("{}: {name}", corner.scenario()),
        depth: 2,
        contender: corner.beside().to_owned(),
        threads: 1,
        unit: (*unit).to_owned(),
        samples: samples.iter().map(|turn| turn[at]).collect(),
    };
    figures.map(series).collect()
}

/// The table: medians with their range over the rounds.
pub fn table(run: &Run) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["what", "beside", "unit", "median (range)", "rounds"]);
    for series in &run.series {
        let summary = Summary::of(&series.samples);
        table.add_row([
            series.scenario.clone(),
            series.contender.clone(),
            series.unit.clone(),
            summary.map_or_else(|| "-".to_owned(), with_range),
            series.samples.len().to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_machine::host;

    #[test]
    fn the_books_of_all_corners_balance() {
        let cpus = host::allowed_cpus();
        let series = run(&Sizes::quick(), None, &cpus, Effort::smoke()).unwrap();
        assert_eq!(series.len(), 11);
        assert!(series.iter().all(|series| series.samples[0] > 0.0));
    }

    #[test]
    fn a_filter_names_a_corner() {
        let quick = |filter| run(&Sizes::quick(), Some(filter), &[0], Effort::smoke());
        assert_eq!(quick("refuse 100").unwrap().len(), 1);
        assert!(quick("nothing").is_err());
    }
}
