//! Views: the figures that are shown of each experiment, as values, one a file. Their layout is the same for all.
//!
//! A view names metrics. A metric that was not measured is left out of pictures, and is `-` in tables. Metrics that no view names
//! are in the table of further figures.

mod figure;
mod memcg_flush;
mod pcp_batch_free;
mod plain;
mod vmstat_spread;

use bursar_experiments::document::{Document, ParameterTable, VariantResult};

pub use self::figure::{Of, a_seed, distribution, distribution_of, one_value, shown};

/// View of an experiment.
#[derive(Debug)]
pub struct View {
    /// Whose it is.
    experiment: &'static str,
    /// The load, in words.
    pub load: fn(Load<'_>) -> String,
    /// The main table's, after the variant's name. Without any there is no such table.
    pub columns: &'static [Column],
    /// Descriptions of the columns, a line each.
    pub legend: &'static [&'static str],
    /// Figures that are means over several seeds.
    pub counted: &'static str,
    /// Metrics that are neither in a column nor in the table of what was also measured: others say the same.
    pub elsewhere: &'static [&'static str],
    /// Shares of a distribution that are published, in a table of their own.
    pub buckets: Option<Buckets>,
    /// Distributions as bars on the terminal.
    pub bars: &'static [Bars],
    /// Distributions as lines on a picture; of a document with none of them, every one has a line.
    pub lines: &'static [Lines],
    /// Moments on CPUs, on the terminal and on a picture.
    pub timeline: Option<Moments>,
    /// Metrics with a plot against a parameter.
    pub sweeps: &'static [(&'static str, Of)],
    /// Finding of a variant's run, in a sentence.
    pub finding: fn(&Document, &VariantResult) -> Option<String>,
    /// Remarks on all variants together, in sentences.
    pub remarks: fn(&Document) -> Vec<String>,
    /// The published figures' machine; nothing if there are none.
    pub published_of: &'static str,
    /// Descriptions of metrics, for a reader who knows neither the thread nor the kernel.
    pub glossary: &'static [(&'static str, &'static str)],
}

/// A column of the main table.
#[derive(Debug)]
pub struct Column {
    pub title: &'static str,
    pub metric: &'static str,
    pub of: Of,
}

/// Text of most experiments on several seeds.
const COUNTED: &str = "all that is counted is a mean over the seeds";

const fn column(title: &'static str, metric: &'static str, of: Of) -> Column {
    Column { title, metric, of }
}

/// Shares of one distribution.
#[derive(Clone, Copy, Debug)]
pub struct Buckets {
    /// The distribution.
    pub of: &'static str,
    /// Its values.
    pub things: &'static str,
    pub all: &'static [Bucket],
}

/// One share.
#[derive(Debug)]
pub struct Bucket {
    pub metric: &'static str,
    pub title: &'static str,
    /// Upper end, nanoseconds; none if it is open.
    pub below_ns: Option<f64>,
}

/// A distribution, as bars.
#[derive(Debug)]
pub struct Bars {
    pub metric: &'static str,
    pub title: &'static str,
}

/// A distribution, as a line.
#[derive(Debug)]
pub struct Lines {
    pub metric: &'static str,
    pub title: &'static str,
    pub share_of: &'static str,
}

/// A timeline.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    pub metric: &'static str,
    pub title: &'static str,
    /// How long it is, microseconds.
    pub span_us: fn(Load<'_>) -> u64,
    /// Figures beside each variant's, with what they are called.
    pub beside: &'static [Column],
}

/// All that are not plain.
const VIEWS: [&View; 3] = [
    &memcg_flush::VIEW,
    &vmstat_spread::VIEW,
    &pcp_batch_free::VIEW,
];

/// The view of a document's experiment; a plain one, which has everything in one table, if it has none.
pub fn of(document: &Document) -> &'static View {
    let mut views = VIEWS.into_iter();
    let own = views.find(|view| view.experiment == document.experiment);
    own.unwrap_or(&plain::VIEW)
}

impl View {
    /// Whether a metric has a place outside of the table of what was also measured.
    pub fn has(&self, metric: &str) -> bool {
        self.columns.iter().any(|column| column.metric == metric)
            || self.elsewhere.contains(&metric)
            || self.bucket(metric).is_some()
    }

    /// The bucket of which the metric is the share.
    pub fn bucket(&self, metric: &str) -> Option<&'static Bucket> {
        let mut all = self.buckets?.all.iter();
        all.find(|bucket| bucket.metric == metric)
    }

    /// Name of a metric in a sentence.
    pub fn metric_title(&self, metric: &str) -> String {
        match (self.buckets, self.bucket(metric)) {
            (Some(buckets), Some(bucket)) => format!("{} {}", buckets.things, bucket.title),
            _ => metric.replace('_', " "),
        }
    }
}

/// The parameters that a document's runs had.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a>(pub &'a ParameterTable);

impl Load<'_> {
    /// A number; 0 if it is not there.
    pub fn number(self, key: &str) -> u64 {
        let number = self.0.get(key).and_then(toml::Value::as_integer);
        number.map_or(0, |number| u64::try_from(number).unwrap_or(0))
    }

    /// A word; an empty one if it is not there.
    pub fn word(&self, key: &str) -> &str {
        let word = self.0.get(key).and_then(toml::Value::as_str);
        word.unwrap_or_default()
    }

    /// Whether something is so; it is not if it is not there.
    pub fn is(self, key: &str) -> bool {
        let flag = self.0.get(key).and_then(toml::Value::as_bool);
        flag.unwrap_or(false)
    }

    /// All but the seed, as they are set.
    pub fn all(self) -> String {
        let parameters = self.0.iter().filter(|(key, _)| *key != "seed");
        let parameters: Vec<_> = parameters
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        parameters.join(" ")
    }
}
