//! Shares of reads by duration: the published ones beside the measured ones.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::machine_info::MachineInfo;
use bursar_experiments::verdict::Verdict;

use crate::units::percent;
use crate::view::{View, shown};
use bursar_experiments::metrics::Of;
use bursar_term::grid::Grid;
use bursar_term::markup::Markup;

/// A row for each bucket; a column for what was published for this machine and load, if anything was, and one for each
/// variant. Nothing if the experiment has no buckets.
pub fn latency_ranges(document: &Document, view: &View, form: Markup) -> String {
    let Some((_, things)) = view.ranges else {
        return String::new();
    };
    let ranges = || view.metrics().iter().filter(|info| info.range_ns.is_some());
    let is_range = |verdict: &&Verdict| ranges().any(|info| info.name == verdict.metric);
    let published = document.verdicts.iter().find(is_range);
    let mut header = vec![match document.machine {
        MachineInfo::Host(_) => format!("share of {things}"),
        MachineInfo::Sim(_) => format!("share of {things} (simulated)"),
    }];
    if let Some(verdict) = published {
        header.push(format!("PUBLISHED, {}", verdict.variant));
    }
    header.extend(document.variants.iter().map(|variant| variant.name.clone()));
    let columns = header.len();
    let mut table = Grid::new(header).right(1..columns);
    for info in ranges() {
        let title = info.title.strip_prefix(things).unwrap_or(info.title);
        let mut row = vec![title.trim_start().to_owned()];
        if published.is_some() {
            let figure = document
                .verdicts
                .iter()
                .find(|verdict| verdict.metric == info.name);
            row.push(figure.map_or_else(|| "-".to_owned(), |figure| percent(figure.published)));
        }
        let measured = |variant: &VariantResult| shown(variant, info.name, Of::Value);
        row.extend(document.variants.iter().map(measured));
        table.row(row);
    }
    form.table(&table)
}
