//! How many reads took how long: what was published beside what was measured.

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::machine_info::MachineInfo;
use bursar_experiments::verdict::Verdict;

use crate::form::Form;
use crate::grid::Grid;
use crate::units::percent;
use crate::view::{Of, View, shown};

/// A row for each bucket; a column for what was published for this machine and load, if anything was, and one for each
/// variant. Nothing if the experiment has no buckets.
pub fn shares(document: &Document, view: &View, form: Form) -> String {
    let Some(buckets) = view.buckets else {
        return String::new();
    };
    let of_buckets = |verdict: &&Verdict| view.bucket(&verdict.metric).is_some();
    let published = document.verdicts.iter().find(of_buckets);
    let mut header = vec![match document.machine {
        MachineInfo::Host(_) => format!("share of {}", buckets.things),
        MachineInfo::Sim(_) => format!("share of {} (simulated)", buckets.things),
    }];
    if let Some(verdict) = published {
        header.push(format!("PUBLISHED, {}", verdict.variant));
    }
    header.extend(document.variants.iter().map(|variant| variant.name.clone()));
    let columns = header.len();
    let mut table = Grid::new(header).right(1..columns);
    for bucket in buckets.all {
        let mut row = vec![bucket.title.to_owned()];
        if published.is_some() {
            let figure = document
                .verdicts
                .iter()
                .find(|verdict| verdict.metric == bucket.metric);
            row.push(figure.map_or_else(|| "-".to_owned(), |figure| percent(figure.published)));
        }
        let measured = |variant: &VariantResult| shown(variant, bucket.metric, Of::Value);
        row.extend(document.variants.iter().map(measured));
        table.row(row);
    }
    form.table(&table)
}
