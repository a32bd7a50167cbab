//! The table of `charge`, `stat` and `flush`.

use comfy_table::{Table, presets};

use crate::series::{Run, Series, Summary};

/// One row for each contender and scenario; for each number of threads the median with its range over the rounds, and
/// the ratio to the run's yardstick, again with its range.
pub fn of(run: &Run) -> Table {
    let mut threads: Vec<usize> = run.series.iter().map(|series| series.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let mut header = vec!["scenario".to_owned(), "depth".into(), "contender".into()];
    for count in &threads {
        let plural = if *count == 1 { "" } else { "s" };
        header.push(format!("{count} thread{plural}, ns/op"));
        header.push(format!("x {}", run.yardstick));
    }
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header);
    for row in rows(run) {
        let mut cells = vec![
            row.scenario.clone(),
            row.depth.to_string(),
            row.contender.clone(),
        ];
        for &count in &threads {
            let series = run.find(&row.scenario, row.depth, &row.contender, count);
            let time = series.and_then(|series| Summary::of(&series.samples));
            let ratio = series.and_then(|series| run.ratio_to_yardstick(series));
            cells.push(time.map_or_else(none, with_range));
            cells.push(ratio.map_or_else(none, with_range));
        }
        table.add_row(cells);
    }
    table
}

/// The first series of each row.
fn rows(run: &Run) -> Vec<&Series> {
    let mut rows: Vec<&Series> = Vec::new();
    for series in &run.series {
        let same = |row: &&Series| {
            row.scenario == series.scenario
                && row.depth == series.depth
                && row.contender == series.contender
        };
        if !rows.iter().any(same) {
            rows.push(series);
        }
    }
    rows
}

fn none() -> String {
    "-".to_owned()
}

/// The median, and minimum and maximum.
pub fn with_range(summary: Summary) -> String {
    let Summary { median, min, max } = summary;
    let digits = if median >= 100.0 { 0 } else { 2 };
    format!("{median:.digits$} ({min:.digits$}-{max:.digits$})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Conditions;
    use crate::series::{BARE, BURSAR};
    use crate::timing::Effort;

    #[test]
    fn losing_rows_and_missing_cells_are_shown() {
        let series = |contender: &str, threads, samples: &[f64]| Series {
            scenario: "hot".into(),
            depth: 5,
            contender: contender.into(),
            threads,
            unit: "ns/op".into(),
            samples: samples.to_vec(),
        };
        let run = Run {
            schema: 1,
            kind: "charge".into(),
            yardstick: BARE.into(),
            conditions: Conditions::here(Effort::smoke()),
            series: vec![
                series(BARE, 1, &[2.0, 2.0]),
                series(BURSAR, 1, &[400.0, 402.0]),
                series(BURSAR, 2, &[3.0]),
            ],
        };
        let text = of(&run).to_string();
        assert!(text.contains("401 (400-402)"), "{text}");
        assert!(text.contains("3.00 (3.00-3.00)"), "{text}");
        // Two rows: no bare add with two threads, so no ratio there.
        assert_eq!(text.lines().count(), 4, "{text}");
    }
}
