//! Table of the figures that the main table lacks: a row for each figure, a column for each variant.

use crate::units::in_unit;
use crate::view::View;
use crate::view::name_with_seeds;
use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::machine_info::MachineInfo;
use bursar_experiments::measure::{Metric, Of};
use bursar_term::grid::Grid;
use bursar_term::markup::Markup;

/// The table; nothing if there is nothing more.
pub fn further_figures(document: &Document, view: &View, form: Markup) -> String {
    let mut rows: Vec<String> = Vec::new();
    for variant in &document.variants {
        for (name, metric) in variant.metrics.iter() {
            for (row, _) in cells(view, variant, name, metric) {
                if !rows.contains(&row) {
                    rows.push(row);
                }
            }
        }
    }
    // A figure that is 0 for every variant says nothing about the load.
    let value = |variant: &VariantResult, row: &str| {
        let metrics = variant.metrics.iter();
        let mut all = metrics.flat_map(|(name, metric)| cells(view, variant, name, metric));
        all.find(|(name, _)| name == row).map(|(_, value)| value)
    };
    rows.retain(|row| {
        let mut values = document.variants.iter().filter_map(|it| value(it, row));
        values.any(|value| !value.is_zero)
    });
    if rows.is_empty() {
        return String::new();
    }
    let mut header = vec![match document.machine {
        MachineInfo::Host(_) => "also measured",
        MachineInfo::Sim(_) => "also measured (simulated)",
    }];
    let names = document.variants.iter();
    let names: Vec<_> = names
        .map(|variant| name_with_seeds(variant, document))
        .collect();
    header.extend(names.iter().map(String::as_str));
    let mut table = Grid::new(header).right(1..names.len() + 1);
    for row in &rows {
        let shown = |variant| value(variant, row).map_or_else(|| "-".to_owned(), |it| it.text);
        let cells = document.variants.iter().map(shown);
        table.row([row.replace('_', " ")].into_iter().chain(cells));
    }
    format!("\n{}", form.table(&table))
}

struct Shown {
    text: String,
    is_zero: bool,
}

/// The rows of a metric, with what it has in them.
fn cells(
    view: &View,
    variant: &VariantResult,
    name: &str,
    metric: &Metric,
) -> Vec<(String, Shown)> {
    if view.has(name) {
        return Vec::new();
    }
    let shown = |value: f64| Shown {
        text: in_unit(value, metric.unit()),
        is_zero: value == 0.0,
    };
    match metric {
        Metric::Distribution(distribution) => {
            let all = distribution.summary();
            let figures = [("p50", Of::P50), ("p99", Of::P99)].map(|(figure, of)| {
                let number = all.number(of)?;
                Some((format!("{name} {figure}"), shown(number)))
            });
            figures.into_iter().flatten().collect()
        }
        Metric::Count(count) => vec![(name.to_owned(), shown(variant.mean_count(*count)))],
        // Of nothing, and of a timeline, there is no number.
        Metric::Ratio(_) | Metric::Figure(_) | Metric::Timeline(_) => {
            let value = metric.value().map(|value| (name.to_owned(), shown(value)));
            value.into_iter().collect()
        }
    }
}
