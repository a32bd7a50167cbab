//! Parts of a view, and its parameters.

use bursar_experiments::document::{Document, ParameterTable, VariantResult};
use bursar_experiments::metrics::{self, MetricInfo, Of};

use crate::units::thousands;

/// View of an experiment: the words that are not those of a single metric.
#[derive(Debug)]
pub struct View {
    /// Whose it is.
    pub experiment: &'static str,
    /// The question that it answers; empty if there is none.
    pub asked: &'static str,
    /// Bursar's variant.
    pub own: &'static str,
    /// The variant of the kernel before the thread.
    pub upstream: &'static str,
    /// Variants that a kernel has or that a thread proposed: the variant, and whose it is.
    pub owners: &'static [(&'static str, &'static str)],
    /// The load, in words.
    pub load: fn(Load<'_>) -> String,
    /// Figures that are means over several seeds.
    pub counted: &'static str,
    /// The distribution with published shares, and its values, for a table of these shares.
    pub ranges: Option<(MetricInfo, &'static str)>,
    /// Moments on CPUs, on the terminal and on a picture.
    pub timeline: Option<Moments>,
    /// Finding of a variant's run, in a sentence.
    pub finding: fn(&Document, &VariantResult) -> Option<String>,
    /// Remarks on all variants together, in sentences.
    pub remarks: fn(&Document) -> Vec<String>,
    /// The published figures' machine; nothing if there are none.
    pub published_of: &'static str,
}

/// A column of the main table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub title: &'static str,
    pub metric: &'static str,
    pub of: Of,
}

/// Text of most experiments on several seeds.
pub const COUNTED: &str = "all that is counted is a mean over the seeds";

pub const fn column(title: &'static str, metric: &'static str, of: Of) -> Column {
    Column { title, metric, of }
}

/// A timeline.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    pub metric: &'static str,
    pub title: &'static str,
    /// Length, microseconds.
    pub span_us: fn(Load<'_>) -> u64,
    /// Figures beside each variant's, with what they are called.
    pub beside: &'static [Column],
}

impl View {
    pub const PLAIN: Self = Self {
        experiment: "",
        asked: "",
        own: "",
        upstream: "",
        owners: &[],
        load: |load| load.all(),
        counted: COUNTED,
        ranges: None,
        timeline: None,
        finding: |_, _| None,
        remarks: |_| Vec::new(),
        published_of: "",
    };

    /// Whose policy a variant is, and the policy; of a variant without an owner its name, and nothing.
    pub fn name<'a>(&self, variant: &'a str) -> (&'a str, &'a str) {
        if self.own == variant && !variant.is_empty() {
            return ("Bursar", variant);
        }
        let owner = self.owners.iter().find(|(policy, _)| *policy == variant);
        owner.map_or((variant, ""), |(_, owner)| (*owner, variant))
    }

    /// The name on screens, pages and in documents: `Linux 6.8 (per-group)`.
    pub fn label(&self, variant: &str) -> String {
        match self.name(variant) {
            (name, "") => name.to_owned(),
            (owner, policy) => format!("{owner} ({policy})"),
        }
    }

    /// The experiment's metrics.
    pub fn metrics(&self) -> &'static [MetricInfo] {
        metrics::of_experiment(self.experiment)
    }

    /// The main table's columns, after the variant's name. Without any there is no such table.
    pub fn columns(&self) -> Vec<Column> {
        let of = |info: &'static MetricInfo| {
            let columns = info.columns.iter();
            columns.map(|(title, of)| column(title, info.name, *of))
        };
        self.metrics().iter().flat_map(of).collect()
    }

    /// Whether a metric has a place outside of the table of further figures.
    pub fn has(&self, metric: &str) -> bool {
        let info = self.metrics().iter().find(|info| info.name == metric);
        info.is_some_and(|it| !it.columns.is_empty() || it.repeats || it.range_ns.is_some())
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

    /// The text with the number of each `{parameter}` in its place.
    pub fn said(self, text: &str) -> String {
        let mut parts = text.split('{');
        let mut said = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (key, rest) = part.split_once('}').unwrap_or((part, ""));
            said.push_str(&thousands(self.number(key)));
            said.push_str(rest);
        }
        said
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
