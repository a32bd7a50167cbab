//! The table of a run, for people.

use std::fmt::Write;

use bursar_lab::document::{Document, Metrics, VariantResult};
use bursar_lab::machine_info::MachineInfo;
use bursar_lab::measure::{Distribution, Metric, Summary};
use comfy_table::{CellAlignment, Table};

use crate::findings::findings;
use crate::form::Form;
use crate::more::more;
use crate::picture::picture;
use crate::points::points;
use crate::rulings::rulings;
use crate::shares::shares;
use crate::units::{nanoseconds, percent, quantity};

/// Everything a run found, for a reader who knows neither the thread nor the kernel.
pub fn run(documents: &[Document], form: Form) -> String {
    let points = points(documents);
    let mut text = rulings(documents, form);
    for (place, (document, point)) in documents.iter().zip(&points).enumerate() {
        if place > 0 {
            text.push('\n');
        }
        text.push_str(&one(document, point, form));
        let next = documents.get(place + 1);
        if next.is_none_or(|next| next.experiment != document.experiment) {
            text.push('\n');
            text.push_str(&legend(document, form));
        }
    }
    text
}

fn one(document: &Document, point: &str, form: Form) -> String {
    let mut title = format!("{}: {}", document.experiment, document.title);
    if !point.is_empty() {
        let _ = write!(title, ", {point}");
    }
    let mut text = form.heading(&title);
    text.push_str(&machine_line(document));
    text.push_str(&load_line(document));
    if document.interrupted {
        text.push_str(
            &form.alarm("INTERRUPTED: only the runs that had finished are in these figures.\n"),
        );
    }
    text.push('\n');
    text.push_str(&form.render(&figures(document, form)));
    text.push('\n');
    text.push_str(&shares(document, form));
    text.push_str(&more(document, form));
    for (metric, title) in PICTURES {
        let of = |variant| Some((name(variant), distribution(variant, metric)?));
        let rows: Vec<_> = document.variants.iter().filter_map(of).collect();
        let drawn = picture(&rows);
        if !drawn.is_empty() {
            let time = match document.machine {
                MachineInfo::Host(_) => "",
                MachineInfo::Sim(_) => ", in virtual time",
            };
            let _ = write!(text, "\n{title}{time}:\n{}", form.verbatim(&drawn));
        }
    }
    text.push('\n');
    text.push_str(&findings(document, form));
    text
}

const PICTURES: [(&str, &str); 3] = [
    (
        "read_latency",
        "How long reads took (bars grow with the logarithm of the number of reads)",
    ),
    (
        "staleness",
        "How old what they missed was (0 ns: nothing was missed)",
    ),
    ("worker_runtime", "How long workers took for a page"),
];

fn machine_line(document: &Document) -> String {
    let seeds = match document.seeds {
        1 => format!("seed {}", document.seed),
        seeds => format!("{seeds} seeds from {}", document.seed),
    };
    match &document.machine {
        MachineInfo::Host(host) => format!(
            "host figures (this machine, real threads, real time): {} CPUs, {} node(s), {}, {}, per-CPU words by {}; {seeds}\n",
            host.cpus, host.nodes, host.model, host.system, host.backend
        ),
        MachineInfo::Sim(sim) => format!(
            "SIMULATED figures (virtual time, cost model {}): {} CPUs, {} node(s), {} ticks a second; {seeds}\n{}\n",
            sim.model, sim.cpus, sim.nodes, sim.hz, document.machine
        ),
    }
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
        "{} readers, a read each {} ms; {} workers access and reclaim pages in {} tenants x {} queries; periodic flush \
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
        match document.machine {
            MachineInfo::Host(_) => "variant",
            MachineInfo::Sim(_) => "variant (simulated)",
        },
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
        let [reads, staleness, pages] =
            ["read_latency", "staleness", "worker_runtime"].map(|metric| summary(variant, metric));
        table.add_row([
            name_with_seeds(variant, document),
            time(reads, |all| all.p50 as f64),
            time(reads, |all| all.p99 as f64),
            time(reads, |all| all.max as f64),
            broken,
            time(staleness, |all| all.p99 as f64),
            time(pages, |all| all.p50 as f64),
            time(pages, |all| all.mean),
            number(variant, "flushes"),
            number(variant, "skips"),
            number(variant, "waits"),
            number(variant, "lock_waits"),
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
        "page: from one page that a worker faulted in to its next: compute, charge, reclaim, read, touch, account",
        "flushes bring per-CPU numbers together; skips went without one that was due; waits are reads that waited for a \
         flush of another; lock waits found the one flush lock taken (-: there is none)",
    ] {
        text.push_str(&form.item(line));
    }
    if document.seeds > 1 {
        text.push_str(&form.item("numbers of flushes, skips and waits, and all that is counted, are means over the seeds"));
    }
    text
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

/// The summary of a distribution of a variant, if it has run.
pub fn summary(variant: &VariantResult, metric: &str) -> Option<Summary> {
    distribution(variant, metric).map(Distribution::summary)
}

fn time(summary: Option<Summary>, field: impl Fn(&Summary) -> f64) -> String {
    summary.map_or_else(|| "-".to_owned(), |all| nanoseconds(field(&all)))
}

/// A share of a variant, for people.
pub fn share(metrics: &Metrics, metric: &str) -> String {
    match metrics.get(metric) {
        Some(Metric::Ratio(share)) => percent(share.value()),
        _ => "-".to_owned(),
    }
}

fn number(variant: &VariantResult, metric: &str) -> String {
    match variant.metrics.get(metric) {
        Some(Metric::Count(value)) => quantity(a_seed(variant, *value)),
        _ => "-".to_owned(),
    }
}

/// How many there were with each seed, in the mean.
pub fn a_seed(variant: &VariantResult, count: u64) -> f64 {
    count as f64 / variant.ran_seeds.len().max(1) as f64
}

/// The name, with what makes its figures less sure than those beside it.
pub fn name_with_seeds(variant: &VariantResult, document: &Document) -> String {
    let seeds = variant.ran_seeds.len() as u64;
    match seeds < document.seeds {
        true => format!(
            "{} ({seeds} seed{})",
            variant.name,
            if seeds == 1 { "" } else { "s" }
        ),
        false => variant.name.clone(),
    }
}
