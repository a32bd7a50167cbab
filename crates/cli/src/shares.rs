//! How many reads took how long: what was published beside what was measured.

use bursar_lab::document::Document;
use bursar_lab::machine_info::MachineInfo;
use bursar_lab::verdict::Verdict;
use comfy_table::CellAlignment;

use crate::form::Form;
use crate::table::share;
use crate::units::percent;

/// The shares that threads publish, and their names for people.
const BUCKETS: [(&str, &str); 5] = [
    ("reads_under_100us", "under 100 us"),
    ("reads_100us_to_1ms", "100 us to 1 ms"),
    ("reads_1ms_to_10ms", "1 ms to 10 ms"),
    ("reads_10ms_to_100ms", "10 ms to 100 ms"),
    ("reads_over_100ms", "over 100 ms"),
];

/// A row for each bucket; a column for what was published for this machine and load, if anything was, and one for each
/// variant.
pub fn shares(document: &Document, form: Form) -> String {
    let of_buckets = |verdict: &&Verdict| bucket_title(&verdict.metric).is_some();
    let published = document.verdicts.iter().find(of_buckets);
    let mut header = vec![match document.machine {
        MachineInfo::Host(_) => "share of reads".to_owned(),
        MachineInfo::Sim(_) => "share of reads (simulated)".to_owned(),
    }];
    if let Some(verdict) = published {
        header.push(format!("PUBLISHED, {}", verdict.variant));
    }
    header.extend(document.variants.iter().map(|variant| variant.name.clone()));
    let header: Vec<_> = header.iter().map(String::as_str).collect();
    let mut table = form.table(&header);
    for (metric, title) in BUCKETS {
        let mut row = vec![title.to_owned()];
        if published.is_some() {
            let figure = document
                .verdicts
                .iter()
                .find(|verdict| verdict.metric == metric);
            row.push(figure.map_or_else(|| "-".to_owned(), |figure| percent(figure.published)));
        }
        let measured =
            |variant: &bursar_lab::document::VariantResult| share(&variant.metrics, metric);
        row.extend(document.variants.iter().map(measured));
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    form.render(&table)
}

/// What a bucket is called, if the metric is the share of one.
pub fn bucket_title(metric: &str) -> Option<&'static str> {
    let bucket = BUCKETS.iter().find(|(name, _)| *name == metric);
    bucket.map(|(_, title)| *title)
}
