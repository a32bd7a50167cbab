//! A page with the pictures and the figures of results: one file that needs no network, no script and no other file.
//!
//! The page is `page.html`, which escapes everything but the pictures; they have escaped their own texts.

use bursar_lab::document::{Document, VariantResult};
use bursar_lab::machine_info::MachineKind;
use bursar_lab::measure::Metric;
use bursar_lab::verdict::{Row as PublishedRow, Verdict};
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

use crate::failure::Failure;
use crate::points::points;
use crate::rulings;
use crate::svg;
use crate::units::{in_unit, percent, quantity, thousands};
use crate::view::{self, a_seed};

/// What the template is filled with.
#[derive(Serialize)]
struct Page<'a> {
    sections: Vec<Section<'a>>,
    sweeps: Vec<String>,
}

/// One document on the page.
#[derive(Serialize)]
struct Section<'a> {
    title: String,
    kind: &'static str,
    origin: String,
    load: String,
    interrupted: bool,
    picture: String,
    failures: Vec<String>,
    variants: Vec<Named<'a>>,
    rows: Vec<Row<'a>>,
    published: Vec<Published<'a>>,
    metrics: Vec<Named<'a>>,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    about: &'a str,
}

/// A figure of all variants.
#[derive(Serialize)]
struct Row<'a> {
    metric: &'a str,
    figure: &'static str,
    cells: Vec<String>,
}

/// A published figure beside ours.
#[derive(Serialize)]
struct Published<'a> {
    variant: &'a str,
    metric: &'a str,
    load: &'a str,
    published: String,
    measured: String,
    lo: String,
    hi: String,
    verdict: String,
    reason: &'a str,
}

/// The page.
pub fn page(documents: &[Document]) -> Result<String, Failure> {
    let sections = documents.iter().zip(points(documents));
    let sections: Vec<_> = sections
        .map(|(document, point)| section(document, &point))
        .collect();
    let whole = Page {
        sections,
        sweeps: svg::of_sweeps(documents),
    };
    let mut environment = Environment::new();
    environment
        .add_template("page.html", include_str!("page.html"))
        .and_then(|()| environment.get_template("page.html"))
        .and_then(|page| page.render(Serde(&whole)))
        .map(|page| svg::legal(page) + "\n")
        .map_err(|error| Failure::unavailable(format!("cannot write the page: {error:#}")))
}

fn section<'a>(document: &'a Document, point: &str) -> Section<'a> {
    let failures = document.expectations.iter().filter(|it| !it.holds);
    let failures = failures.map(|it| {
        format!(
            "{} of {} is {}, and must be at most {}, because {}",
            it.metric, it.variant, it.measured, it.at_most, it.reason
        )
    });
    let variants = document.variants.iter();
    let rows = rows(document);
    let is_shown = |name: &str| rows.iter().any(|row| row.metric == name);
    let metrics = view::of(document)
        .glossary
        .iter()
        .filter(|(name, _)| is_shown(name));
    Section {
        title: svg::title(document, point),
        kind: match document.machine.kind() {
            MachineKind::Host => "HOST (real threads, real time)",
            MachineKind::Sim => "SIMULATED (virtual time)",
        },
        origin: svg::origin(document),
        load: svg::load(document),
        interrupted: document.interrupted,
        picture: svg::of_document(document, point),
        failures: failures.collect(),
        variants: variants
            .map(|variant| Named {
                name: &variant.name,
                about: &variant.summary,
            })
            .collect(),
        published: document.verdicts.iter().map(published).collect(),
        metrics: metrics.map(|(name, about)| Named { name, about }).collect(),
        rows,
    }
}

/// A row for each figure of each metric, in the order in which the variants have them; `-` where one has none.
fn rows(document: &Document) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (place, variant) in document.variants.iter().enumerate() {
        for (metric, value) in variant.metrics.iter() {
            for (figure, shown) in figures(variant, value) {
                let is_it = |row: &Row<'_>| row.metric == metric && row.figure == figure;
                let at = rows.iter().position(is_it).unwrap_or_else(|| {
                    let cells = vec!["-".to_owned(); document.variants.len()];
                    rows.push(Row {
                        metric,
                        figure,
                        cells,
                    });
                    rows.len() - 1
                });
                rows[at].cells[place] = shown;
            }
        }
    }
    rows
}

fn figures(variant: &VariantResult, metric: &Metric) -> Vec<(&'static str, String)> {
    match metric {
        Metric::Distribution(distribution) => {
            let all = distribution.summary();
            let shown = |value: f64| in_unit(value, distribution.unit());
            vec![
                ("p50", shown(all.p50 as f64)),
                ("p99", shown(all.p99 as f64)),
                ("p99.9", shown(all.p999 as f64)),
                ("max", shown(all.max as f64)),
                ("mean", shown(all.mean)),
                ("samples", thousands(all.samples)),
            ]
        }
        Metric::Ratio(share) if share.seeds().count() > 1 => vec![
            ("", percent(share.value())),
            (
                "by seed",
                format!("{} to {}", percent(share.lo()), percent(share.hi())),
            ),
        ],
        Metric::Ratio(share) => vec![("", percent(share.value()))],
        Metric::Count(value) => vec![("", quantity(a_seed(variant, *value)))],
        // A picture's.
        Metric::Timeline(_) => Vec::new(),
        Metric::Figure(figure) => {
            let shown = |value: f64| in_unit(value, figure.unit());
            let mut figures = vec![("", shown(figure.value()))];
            if figure.seeds().count() > 1 {
                let range = format!("{} to {}", shown(figure.lo()), shown(figure.hi()));
                figures.push(("by seed", range));
            }
            figures
        }
    }
}

fn published(verdict: &Verdict) -> Published<'_> {
    Published {
        variant: &verdict.variant,
        metric: &verdict.metric,
        load: &verdict.load,
        published: rulings::published(verdict),
        measured: rulings::value(verdict, verdict.measured),
        lo: rulings::value(verdict, verdict.lo),
        hi: rulings::value(verdict, verdict.hi),
        verdict: match (verdict.row, verdict.verdict) {
            (PublishedRow::Calibration, _) => "none (calibration)".to_owned(),
            (PublishedRow::Prediction, ruling) => {
                ruling.map_or_else(|| "none".to_owned(), |ruling| ruling.to_string())
            }
        },
        reason: &verdict.reason,
    }
}
