//! The tables of `pages`.

use comfy_table::{Table, presets};

use crate::pages::row::{Row, Size};
use crate::pages::scenario::Scenario;
use crate::series::{Run, Series, Summary};
use crate::table::with_range;

/// One column: a heading, which figure of which scenario, and the number of threads.
struct Column(&'static str, Scenario, &'static str, usize);

const SPEED: [Column; 5] = [
    Column("pair, 1 thread", Scenario::Pair, "", 1),
    Column("pair, 2 threads", Scenario::Pair, "", 2),
    Column("1,024 deep, 1 thread", Scenario::Deep, "", 1),
    Column("1,024 deep, 2 threads", Scenario::Deep, "", 2),
    Column("remote free", Scenario::Remote, "", 2),
];

const LATENCY: [Column; 8] = [
    Column("alloc p50", Scenario::Churn, "alloc p50", 2),
    Column("p99", Scenario::Churn, "alloc p99", 2),
    Column("p99.9", Scenario::Churn, "alloc p99.9", 2),
    Column("max", Scenario::Churn, "alloc max", 2),
    Column("free p50", Scenario::Churn, "free p50", 2),
    Column("p99", Scenario::Churn, "free p99", 2),
    Column("p99.9", Scenario::Churn, "free p99.9", 2),
    Column("max", Scenario::Churn, "free max", 2),
];

const MEMORY: [Column; 5] = [
    Column(
        "worst by the clock, us",
        Scenario::Worst,
        "by the clock",
        32,
    ),
    Column(
        "on a CPU or asleep, us",
        Scenario::Worst,
        "on a CPU or asleep",
        32,
    ),
    Column("kept at once, MiB", Scenario::Retained, "at once", 64),
    Column("idle, MiB", Scenario::Retained, "idle", 64),
    Column("one busy, MiB", Scenario::Retained, "busy", 64),
];

/// Speed, latencies, and memory, with a heading each; then who could not take part. A table without a figure is left out.
pub fn tables(run: &Run, absent: &[(&'static str, String)]) -> String {
    let parts = [
        ("An allocation and its free, ns", &SPEED[..]),
        (
            "Single operations of two threads beyond the caches, ns",
            &LATENCY,
        ),
        (
            "The longest operation of 32 threads on two CPUs, and memory",
            &MEMORY,
        ),
    ];
    let tables = parts.iter().filter_map(|(heading, columns)| {
        let table = table(run, columns)?;
        Some(format!("{heading}\n\n{table}"))
    });
    let mut text: Vec<String> = tables.collect();
    let absent = absent.iter().map(|(name, why)| format!("{name}: {why}"));
    text.extend(absent);
    text.join("\n\n")
}

fn table(run: &Run, columns: &[Column]) -> Option<Table> {
    let ratios = columns.iter().any(|column| {
        Size::ALL
            .iter()
            .any(|&size| find(run, column, size, &run.yardstick).is_some())
    });
    // Latencies and memory have bounds of their own; only speed is measured by the yardstick.
    let ratios = ratios && columns.iter().all(|column| column.2.is_empty());
    let mut header = vec!["size".to_owned(), "contender".to_owned()];
    for column in columns {
        header.push(column.0.to_owned());
        if ratios {
            header.push(format!("x {}", run.yardstick));
        }
    }
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header);
    for size in Size::ALL {
        for contender in contenders(run, columns, size) {
            let mut cells = vec![size.name().to_owned(), contender.to_owned()];
            for column in columns {
                let series = find(run, column, size, contender);
                cells.push(cell(series.and_then(|series| Summary::of(&series.samples))));
                if ratios {
                    cells.push(cell(
                        series.and_then(|series| run.ratio_to_yardstick(series)),
                    ));
                }
            }
            table.add_row(cells);
        }
    }
    (table.row_count() > 0).then_some(table)
}

fn cell(summary: Option<Summary>) -> String {
    summary.map_or_else(|| "-".to_owned(), with_range)
}

fn find<'a>(run: &'a Run, column: &Column, size: Size, contender: &str) -> Option<&'a Series> {
    let Column(_, scenario, what, threads) = *column;
    run.find(
        &Row::series_name(scenario, size, what),
        0,
        contender,
        threads,
    )
}

/// Returns the contenders with a figure in some column, in the order of the run.
fn contenders<'a>(run: &'a Run, columns: &[Column], size: Size) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for series in &run.series {
        let name = series.contender.as_str();
        let has = |column: &Column| find(run, column, size, name).is_some();
        if !names.contains(&name) && columns.iter().any(has) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Conditions;
    use crate::pages::BARE_STACK;
    use crate::timing::Effort;

    fn run(contenders: &[(&str, f64)]) -> Run {
        let series = |&(contender, ns): &(&str, f64)| Series {
            scenario: "pair 4K".into(),
            depth: 0,
            contender: contender.into(),
            threads: 1,
            unit: "ns/pair".into(),
            samples: vec![ns],
        };
        Run {
            schema: 1,
            kind: "pages".into(),
            yardstick: BARE_STACK.into(),
            conditions: Conditions::here(Effort::smoke()),
            series: contenders.iter().map(series).collect(),
        }
    }

    #[test]
    fn only_what_was_measured_is_shown() {
        let text = tables(
            &run(&[("glibc", 44.0)]),
            &[("jemalloc", "not built".into())],
        );
        assert!(text.contains("44.00 (44.00-44.00)"), "{text}");
        assert!(text.ends_with("jemalloc: not built"), "{text}");
        assert!(
            !text.contains("p99.9") && !text.contains(BARE_STACK),
            "{text}"
        );
    }

    #[test]
    fn speed_is_compared_with_the_yardstick() {
        let text = tables(&run(&[(BARE_STACK, 2.0), ("glibc", 44.0)]), &[]);
        assert!(text.contains("22.00 (22.00-22.00)"), "{text}");
    }
}
