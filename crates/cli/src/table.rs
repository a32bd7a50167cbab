//! The table of a run, for people.

use std::fmt::Write;

use bursar_lab::document::{Document, Metrics, VariantResult};
use bursar_lab::measure::{Distribution, Metric};
use comfy_table::{CellAlignment, Table, TableComponent, presets};

use crate::picture::picture;
use crate::units::{nanoseconds, percent, thousands};

/// Where the table is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Terminal { color: bool },
    Markdown,
}

impl Form {
    /// A line that stands above what it names.
    pub fn heading(self, text: &str) -> String {
        match self {
            Form::Terminal { color: true } => format!("\x1b[1m{text}\x1b[0m\n"),
            Form::Terminal { color: false } => format!("{text}\n"),
            Form::Markdown => format!("## {text}\n\n"),
        }
    }

    /// An empty table.
    pub fn table(self, header: &[&str]) -> Table {
        let mut table = Table::new();
        match self {
            Form::Terminal { .. } => table
                .load_preset(presets::NOTHING)
                .set_style(TableComponent::HeaderLines, '─'),
            Form::Markdown => table.load_preset(presets::ASCII_MARKDOWN),
        };
        table.set_header(header);
        table
    }

    /// The table as text.
    pub fn render(self, table: &Table) -> String {
        let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
        lines.collect()
    }

    /// Text whose columns must stay as they are.
    fn verbatim(self, text: &str) -> String {
        match self {
            Form::Terminal { .. } => text.to_owned(),
            Form::Markdown => format!("```text\n{text}```\n"),
        }
    }

    fn item(self, text: &str) -> String {
        match self {
            Form::Terminal { .. } => format!("  {text}\n"),
            Form::Markdown => format!("- {text}\n"),
        }
    }

    fn alarm(self, text: &str) -> String {
        match self {
            Form::Terminal { color: true } => format!("\x1b[31m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }
}

/// Everything a run found, for a reader who knows neither the thread nor the kernel.
pub fn run(documents: &[Document], form: Form) -> String {
    let texts: Vec<_> = documents
        .iter()
        .map(|document| one(document, form))
        .collect();
    texts.join("\n")
}

fn one(document: &Document, form: Form) -> String {
    let mut text = form.heading(&format!("{}: {}", document.experiment, document.title));
    text.push_str(&machine_line(document));
    text.push_str(&load_line(document));
    text.push('\n');
    text.push_str(&form.render(&figures(document, form)));
    for (metric, title) in PICTURES {
        let of = |variant| Some((name(variant), distribution(variant, metric)?));
        let rows: Vec<_> = document.variants.iter().filter_map(of).collect();
        let drawn = picture(&rows);
        if !drawn.is_empty() {
            let _ = write!(text, "\n{title}\n{}", form.verbatim(&drawn));
        }
    }
    text.push('\n');
    text.push_str(&legend(document, form));
    text.push('\n');
    text.push_str(&findings(document, form));
    text
}

const PICTURES: [(&str, &str); 3] = [
    (
        "read_latency",
        "How long reads took (bars grow with the logarithm of the number of reads):",
    ),
    (
        "staleness",
        "How old what they missed was (0 ns: nothing was missed):",
    ),
    ("worker_runtime", "How long workers took for a page:"),
];

fn machine_line(document: &Document) -> String {
    let machine = &document.machine;
    let label = match machine.kind {
        "host" => "host figures (this machine, real threads, real time)",
        other => other,
    };
    let seeds = match document.seeds {
        1 => format!("seed {}", document.seed),
        seeds => format!(
            "seeds {}-{}",
            document.seed,
            document.seed.wrapping_add(seeds - 1)
        ),
    };
    format!(
        "{label}: {} CPUs, {} node(s), {}, {}, per-CPU words by {}; {seeds}\n",
        machine.cpus, machine.nodes, machine.model, machine.system, machine.backend
    )
}

fn load_line(document: &Document) -> String {
    let parameter = |key: &str| {
        document
            .parameters
            .get(key)
            .and_then(|value| value.as_integer())
            .unwrap_or(0)
    };
    format!(
        "{} readers, a read each {} ms; {} workers map, touch and free pages in {} tenants x {} queries; periodic flush \
         each {} ms; {} ms a variant\n",
        parameter("readers"),
        parameter("read_interval_ms"),
        parameter("workers"),
        parameter("tenants"),
        parameter("queries"),
        parameter("flush_period_ms"),
        parameter("duration_ms"),
    )
}

fn figures(document: &Document, form: Form) -> Table {
    let mut table = form.table(&[
        "variant",
        "read p50",
        "p99",
        "max",
        "broken reads",
        "staleness p99",
        "page p50",
        "mean",
        "flushes",
        "skips",
        "waits",
        "lock waits",
    ]);
    for variant in &document.variants {
        let metrics = &variant.metrics;
        let broken = share(metrics, "broken_reads");
        let failed = document
            .expectations
            .iter()
            .any(|expectation| !expectation.holds && expectation.variant == variant.name);
        let broken = if failed { form.alarm(&broken) } else { broken };
        table.add_row([
            variant.name.clone(),
            time(metrics, "read_latency", |all| all.p50 as f64),
            time(metrics, "read_latency", |all| all.p99 as f64),
            time(metrics, "read_latency", |all| all.max as f64),
            broken,
            time(metrics, "staleness", |all| all.p99 as f64),
            time(metrics, "worker_runtime", |all| all.p50 as f64),
            time(metrics, "worker_runtime", |all| all.mean),
            number(metrics, "flushes"),
            number(metrics, "skips"),
            number(metrics, "waits"),
            number(metrics, "lock_waits"),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn legend(document: &Document, form: Form) -> String {
    let mut text = "What the variants do:\n".to_owned();
    for variant in &document.variants {
        text.push_str(&form.item(&format!("{}: {}", variant.name, variant.summary)));
    }
    text.push_str("\nWhat the columns say:\n");
    for line in [
        "read: from asking for a group's statistics to having them, including any flush on the way",
        "broken reads: missed an update that had completed before the read began",
        "staleness: age of the oldest update that a read missed, at least; 0 if it missed none",
        "page: from one page of a worker to its next: charge, account, touch, free the oldest",
        "flushes bring per-CPU numbers together; skips went without one that was due; waits are reads that waited for a \
         flush of another; lock waits found the one flush lock taken (-: there is none)",
    ] {
        text.push_str(&form.item(line));
    }
    text
}

fn findings(document: &Document, form: Form) -> String {
    let mut text = form.heading("Findings");
    for variant in &document.variants {
        if let Some(finding) = finding(variant) {
            text.push_str(&form.item(&finding));
        }
    }
    for expectation in document
        .expectations
        .iter()
        .filter(|expectation| !expectation.holds)
    {
        let said = format!(
            "FAILED: {} of {} is {}, and must be at most {}, because {}",
            expectation.metric,
            expectation.variant,
            expectation.measured,
            expectation.at_most,
            expectation.reason
        );
        text.push_str(&form.item(&form.alarm(&said)));
    }
    text.push_str(&form.item(
        "These are figures of this machine. The thread's are of 384 CPUs; no verdict on them is claimed here.",
    ));
    text
}

fn finding(variant: &VariantResult) -> Option<String> {
    let Some(Metric::Ratio { value, .. }) = variant.metrics.get("broken_reads") else {
        return None;
    };
    let reads = distribution(variant, "read_latency")?;
    let stale = distribution(variant, "staleness")?;
    let samples = thousands(reads.samples);
    Some(if *value == 0.0 {
        format!(
            "{}: none of {samples} reads missed a completed update",
            variant.name
        )
    } else {
        format!(
            "{}: {} of {samples} reads missed completed updates, up to {} old",
            variant.name,
            percent(*value),
            nanoseconds(stale.max as f64)
        )
    })
}

fn name(variant: &VariantResult) -> &str {
    &variant.name
}

fn distribution<'a>(variant: &'a VariantResult, metric: &str) -> Option<&'a Distribution> {
    match variant.metrics.get(metric) {
        Some(Metric::Distribution(distribution)) => Some(distribution),
        _ => None,
    }
}

fn time(metrics: &Metrics, metric: &str, field: impl Fn(&Distribution) -> f64) -> String {
    match metrics.get(metric) {
        Some(Metric::Distribution(distribution)) => nanoseconds(field(distribution)),
        _ => "-".to_owned(),
    }
}

fn share(metrics: &Metrics, metric: &str) -> String {
    match metrics.get(metric) {
        Some(Metric::Ratio { value, .. }) => percent(*value),
        _ => "-".to_owned(),
    }
}

fn number(metrics: &Metrics, metric: &str) -> String {
    match metrics.get(metric) {
        Some(Metric::Count { value, .. }) => thousands(*value),
        _ => "-".to_owned(),
    }
}
