//! A page with the pictures and the figures of results: one file that needs no network, no script and no other file.
//!
//! | part | file |
//! |---|---|
//! | summary, contents and runs | this one |
//! | tables | `tables.rs` |
//! | the page, which escapes everything but the pictures | `page.html` |
//! | its style | `bursar_term::page::HEAD` |

mod tables;

use std::fmt::Write;

use bursar_experiments::document::Document;
use bursar_experiments::experiment_named;
use bursar_experiments::machine_info::MachineKind;
use bursar_experiments::settings::LOAD;
use bursar_experiments::verdict::{Row as PublishedRow, Verdict};
use bursar_term::page;
use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

pub use self::tables::capitalised;
use self::tables::{KeyTable, Single, Spread};
use crate::findings::failures;
use crate::points::points;
use crate::published_figures;
use crate::screen;
use crate::svg::{self, Entry, Figure, Part, Sign, Sweep};
use crate::view::{self, Load};
use bursar_term::failure::Failure;

/// The content of the template.
#[derive(Serialize)]
struct Page {
    title: String,
    /// The kind of all figures; empty where they differ.
    kind: &'static str,
    /// Rules for colours on a dark page.
    dark: String,
    experiments: Vec<Experiment>,
}

#[derive(Serialize)]
struct Experiment {
    id: String,
    name: String,
    title: String,
    /// The title, or the question that the experiment answers.
    asked: String,
    /// The experiment in a few sentences; empty if it is not known.
    about: String,
    /// The discussion that it is about, and its address.
    thread: String,
    address: String,
    variants: Vec<Variant>,
    metrics: Vec<Explained>,
    /// Machine, seeds and parameters that all runs have.
    settings: Vec<String>,
    runs: Vec<Run>,
    sweeps: Vec<SweepSection>,
}

#[derive(Serialize)]
struct Variant {
    name: String,
    policy: String,
    about: String,
}

#[derive(Serialize)]
struct Explained {
    title: String,
    metric: &'static str,
    about: &'static str,
}

/// A document.
#[derive(Serialize)]
struct Run {
    id: String,
    title: String,
    kind: &'static str,
    /// Words behind the title of the figures.
    note: &'static str,
    load: String,
    /// Machine, seeds and parameters that not all runs have.
    settings: Vec<String>,
    interrupted: bool,
    failures: Vec<String>,
    /// The answer in plain words.
    headline: String,
    findings: Vec<Finding>,
    pictures: Vec<Picture>,
    variants: Vec<Variant>,
    key: Option<KeyTable>,
    spreads: Vec<Spread>,
    singles: Vec<Single>,
    published: Vec<Published>,
}

/// A sentence on a variant, or on all variants if it has no name.
#[derive(Serialize)]
struct Finding {
    name: String,
    policy: String,
    text: String,
}

#[derive(Serialize)]
struct SweepSection {
    id: String,
    title: String,
    pictures: Vec<Picture>,
}

#[derive(Serialize)]
struct Picture {
    id: String,
    title: String,
    reading: String,
    is_narrow: bool,
    drawing: String,
    legend: Vec<LegendEntry>,
}

#[derive(Serialize)]
struct LegendEntry {
    is_line: bool,
    color: &'static str,
    dash: &'static str,
    name: String,
    figures: String,
}

/// A published figure beside ours.
#[derive(Serialize)]
struct Published {
    variant: String,
    metric: String,
    load: String,
    published: String,
    measured: String,
    lo: String,
    hi: String,
    verdict: String,
    reason: String,
}

/// The page.
pub fn page(documents: &[Document]) -> Result<String, Failure> {
    let kinds = documents.iter().map(|it| svg::kind(it.machine.kind()));
    let mut kinds: Vec<_> = kinds.collect();
    kinds.dedup();
    let kind = match kinds[..] {
        [kind] => kind,
        _ => "",
    };
    let experiments = experiments(documents, kind);
    let whole = Page {
        title: match &experiments[..] {
            [only] => only.asked.clone(),
            several => format!(
                "{} questions about per-CPU memory accounting",
                several.len()
            ),
        },
        kind,
        dark: dark(),
        experiments,
    };
    rendered(("page.html", include_str!("page.html")), Serde(&whole))
}

/// Fills a template, after its head was put in. Its name says that what it is filled with is escaped.
fn rendered(
    (name, source): (&str, &str),
    content: impl Into<minijinja::Value>,
) -> Result<String, Failure> {
    let source = source.replace("{{ head }}", page::HEAD.trim_end());
    Environment::new()
        .render_named_str(name, &source, content)
        .map(|page| page::legal(page) + "\n")
        .map_err(|error| Failure::unavailable(format!("cannot write the page: {error:#}")))
}

/// Rules that replace the colours of pictures.
fn dark() -> String {
    let mut rules = String::new();
    for (light, dark) in svg::DARK {
        for property in ["fill", "stroke"] {
            let _ = writeln!(rules, "  [{property}=\"{light}\"] {{ {property}: {dark} }}");
        }
    }
    rules
}

/// The documents by experiment, in the order in which experiments first occur.
fn experiments(documents: &[Document], kind_of_page: &str) -> Vec<Experiment> {
    let mut names: Vec<&str> = Vec::new();
    for document in documents {
        if !names.contains(&document.experiment.as_str()) {
            names.push(&document.experiment);
        }
    }
    let points = points(documents);
    let sweeps = svg::sweeps(documents);
    let experiment = |(place, name): (usize, &str)| {
        let id = format!("experiment-{}", place + 1);
        let mine = documents.iter().zip(&points);
        let mine: Vec<_> = mine.filter(|(it, _)| it.experiment == name).collect();
        let all: Vec<&Document> = mine.iter().map(|(document, _)| *document).collect();
        let settings: Vec<_> = all.iter().map(|document| settings(document)).collect();
        let (common, apart) = parted(&settings);
        let runs = mine.iter().zip(apart).enumerate();
        let runs = runs.map(|(place, ((document, point), settings))| Run {
            settings,
            ..run(
                document,
                point,
                kind_of_page,
                format!("{id}-run-{}", place + 1),
            )
        });
        let sweeps = sweeps.iter().filter(|it| it.experiment() == name);
        let sweeps = sweeps.enumerate().map(|(place, sweep)| {
            let id = format!("{id}-sweep-{}", place + 1);
            of_sweep(sweep, id)
        });
        let known = experiment_named(name).ok();
        let thread = known.as_ref().map_or("", |it| &it.thread);
        let (thread, address) = thread.rsplit_once(", ").unwrap_or((thread, ""));
        Experiment {
            name: name.to_owned(),
            asked: match view::of_experiment(name).asked {
                "" => capitalised(&all[0].title),
                question => question.to_owned(),
            },
            title: capitalised(&all[0].title),
            about: known
                .as_ref()
                .map_or_else(String::new, |it| it.about.clone()),
            thread: thread.to_owned(),
            address: address.to_owned(),
            variants: variants(&all),
            metrics: metrics(&all),
            settings: common,
            runs: runs.collect(),
            sweeps: sweeps.collect(),
            id,
        }
    };
    names.into_iter().enumerate().map(experiment).collect()
}

/// Machine, seeds and parameters.
fn settings(document: &Document) -> Vec<String> {
    let parameters = document.parameters.iter();
    let parameters = parameters.map(|(key, value)| format!("{key}={value}"));
    [svg::origin(document)]
        .into_iter()
        .chain(parameters)
        .collect()
}

/// Settings that all runs have, and the others of each run.
fn parted(runs: &[Vec<String>]) -> (Vec<String>, Vec<Vec<String>>) {
    let is_common = |setting: &String| runs.iter().all(|run| run.contains(setting));
    let apart = |run: &Vec<String>| run.iter().filter(|it| !is_common(it)).cloned().collect();
    let common = runs[0].iter().filter(|it| is_common(it));
    (common.cloned().collect(), runs.iter().map(apart).collect())
}

/// The variants of all documents, once each.
fn variants(documents: &[&Document]) -> Vec<Variant> {
    let mut variants: Vec<Variant> = Vec::new();
    let mut known: Vec<&str> = Vec::new();
    for document in documents {
        for part in svg::parts(document) {
            let name = part.result.name.as_str();
            if !known.contains(&name) {
                known.push(name);
                variants.push(variant(&part));
            }
        }
    }
    variants
}

fn variant(part: &Part<'_>) -> Variant {
    let (name, policy) = part.name();
    Variant {
        name: name.to_owned(),
        policy: policy.to_owned(),
        about: part.result.summary.clone(),
    }
}

/// Explanations of the metrics of all documents.
fn metrics(documents: &[&Document]) -> Vec<Explained> {
    let Some(first) = documents.first() else {
        return Vec::new();
    };
    let is_measured = |name: &str| {
        let mut variants = documents.iter().flat_map(|it| &it.variants);
        variants.any(|variant| variant.metrics.get(name).is_some())
    };
    let glossary = view::of(first).metrics().iter();
    let glossary = glossary.filter(|info| is_measured(info.name));
    let explained = glossary.map(|info| Explained {
        title: tables::title(info.name),
        metric: info.name,
        about: info.about,
    });
    explained.collect()
}

fn run(document: &Document, point: &str, kind_of_page: &str, id: String) -> Run {
    let parts = svg::parts(document);
    let load = Load(&document.parameters);
    let words = (view::of(document).load)(load);
    let findings = findings(document, &parts);
    let published = document.verdicts.iter();
    let published = published.map(self::published);
    let kind = svg::kind(document.machine.kind());
    Run {
        title: run_title(document, point),
        kind: if kind == kind_of_page { "" } else { kind },
        note: match document.machine.kind() {
            MachineKind::Host => "",
            MachineKind::Sim => ", simulated",
        },
        // A view without words of its own lists the parameters, which stand below.
        load: if words == load.all() {
            String::new()
        } else {
            capitalised(&words)
        },
        settings: Vec::new(),
        interrupted: document.interrupted,
        failures: failures(document).collect(),
        headline: unbroken(&match screen::answer(document) {
            Some(answer) => answer,
            None => headline(&parts, &findings),
        }),
        findings,
        pictures: pictures(&svg::figures(document), &id),
        variants: parts.iter().map(variant).collect(),
        key: tables::key(document, &parts),
        spreads: tables::spreads(document, &parts),
        singles: tables::singles(document, &parts),
        published: published.collect(),
        id,
    }
}

/// The load, and other parameters that differ between the runs of the experiment.
fn run_title(document: &Document, point: &str) -> String {
    let parameters = Load(&document.parameters);
    let load = parameters.word(LOAD);
    let others = point
        .split(' ')
        .filter(|part| !part.starts_with(&format!("{LOAD}=")));
    let others: Vec<_> = others.filter(|part| !part.is_empty()).collect();
    match (load, &others[..]) {
        ("", []) => "The run".to_owned(),
        ("", others) => others.join(", "),
        (load, []) => format!("Load {load}"),
        (load, others) => format!("Load {load}, {}", others.join(", ")),
    }
}

/// The findings as one text. Of many variants, those of Bursar's and the kernel's.
fn headline(parts: &[Part<'_>], findings: &[Finding]) -> String {
    let is_few = parts.len() <= svg::MOST_LINES;
    let is_said = |it: &&Finding| {
        let mut references = parts.iter().filter(|part| part.is_reference());
        is_few || it.name.is_empty() || references.any(|part| part.name().0 == it.name)
    };
    let said = findings.iter().filter(is_said);
    let said = said.map(|it| match (it.name.as_str(), it.policy.as_str()) {
        ("", _) => format!("{}.", capitalised(&it.text)),
        (name, "") => format!("{name}: {}.", it.text),
        (owner, policy) => format!("{owner} ({policy}): {}.", it.text),
    });
    said.collect::<Vec<_>>().join(" ")
}

/// The text with numbers on the line of their units.
fn unbroken(text: &str) -> String {
    const UNITS: [&str; 5] = ["%", "ns", "us", "ms", "s"];
    let mut unbroken = String::new();
    for word in text.split(' ') {
        let is_unit = UNITS.contains(&word.trim_end_matches(['.', ',', ';']));
        if is_unit && unbroken.ends_with(|it: char| it.is_ascii_digit()) {
            unbroken.push('\u{a0}');
        } else if !unbroken.is_empty() {
            unbroken.push(' ');
        }
        unbroken.push_str(word);
    }
    unbroken
}

/// A sentence for each variant, and remarks on all of them.
fn findings(document: &Document, parts: &[Part<'_>]) -> Vec<Finding> {
    let view = view::of(document);
    let of_variants = parts.iter().filter_map(|part| {
        let text = (view.finding)(document, part.result)?;
        let prefix = format!("{}: ", part.result.name);
        let (name, policy) = part.name();
        Some(Finding {
            name: name.to_owned(),
            policy: policy.to_owned(),
            text: text.strip_prefix(&prefix).unwrap_or(&text).to_owned(),
        })
    });
    let remarks = (view.remarks)(document).into_iter().map(|text| Finding {
        name: String::new(),
        policy: String::new(),
        text,
    });
    of_variants.chain(remarks).collect()
}

fn of_sweep(sweep: &Sweep<'_>, id: String) -> SweepSection {
    SweepSection {
        title: format!("Sweep: {}", sweep.subject()),
        pictures: pictures(&svg::figures_of_sweep(sweep), &id),
        id,
    }
}

fn pictures(figures: &[Figure<'_>], id: &str) -> Vec<Picture> {
    let picture = |(place, figure): (usize, &Figure<'_>)| Picture {
        id: format!("{id}-picture-{}", place + 1),
        title: capitalised(&figure.title),
        reading: figure.reading.clone(),
        is_narrow: figure.is_narrow(),
        drawing: figure.embedded(),
        legend: figure.legend().into_iter().map(legend_entry).collect(),
    };
    figures.iter().enumerate().map(picture).collect()
}

fn legend_entry(entry: Entry) -> LegendEntry {
    let (is_line, color, dash) = match entry.sign {
        Sign::Line(stroke) => (true, stroke.color, stroke.dash),
        Sign::Published(color) => (false, color, ""),
    };
    LegendEntry {
        is_line,
        color,
        dash,
        name: entry.name,
        figures: entry.figures,
    }
}

fn published(verdict: &Verdict) -> Published {
    Published {
        variant: verdict.variant.clone(),
        metric: tables::title(&verdict.metric),
        load: verdict.load.clone(),
        published: published_figures::published(verdict),
        measured: published_figures::value(verdict, verdict.measured),
        lo: published_figures::value(verdict, verdict.lo),
        hi: published_figures::value(verdict, verdict.hi),
        verdict: match (verdict.row, verdict.verdict) {
            (PublishedRow::Calibration, _) => "none (calibration)".to_owned(),
            (PublishedRow::Prediction, ruling) => {
                ruling.map_or_else(|| "none".to_owned(), |ruling| ruling.to_string())
            }
        },
        reason: verdict.reason.clone(),
    }
}
