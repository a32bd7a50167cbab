//! Views: the words around the figures of each experiment, as values, one a file. The layout is the same for all.
//!
//! The registry of metrics (`bursar_experiments::metrics`) names the columns and pictures. A metric that was not measured is left
//! out of pictures, and is `-` in tables. Metrics without a column are in the table of further figures.

mod arbitration;
mod layout;
mod memcg_flush;
mod memcg_stock;
mod number;
mod pcp_batch_free;
mod vmstat_spread;

use bursar_experiments::document::Document;
use bursar_experiments::metrics::{MetricInfo, named};

pub use self::layout::{Column, Load, Moments, View};
pub use self::number::{distribution, distribution_of, name_with_seeds, one_value, shown};

/// All that are not plain.
const VIEWS: [&View; 5] = [
    &memcg_flush::VIEW,
    &vmstat_spread::VIEW,
    &pcp_batch_free::VIEW,
    &memcg_stock::VIEW,
    &arbitration::VIEW,
];

/// The view of a document's experiment; a plain one, which has everything in one table, if it has none.
pub fn of(document: &Document) -> &'static View {
    of_experiment(&document.experiment)
}

/// The view of an experiment.
pub fn of_experiment(experiment: &str) -> &'static View {
    let own = VIEWS.into_iter().find(|view| view.experiment == experiment);
    own.unwrap_or(&View::PLAIN)
}

/// Name of a metric in a sentence.
pub fn metric_title(metric: &str) -> String {
    named(metric).map_or_else(|| metric.replace('_', " "), MetricInfo::title)
}
