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
use minijinja::{Environment, Value, context};

pub use self::tables::capitalised;
use crate::findings::failures;
use crate::points::points;
use crate::published_figures;
use crate::screen;
use crate::svg::{self, Entry, Figure, Part, Sign};
use crate::view::{self, Load};
use bursar_term::failure::Failure;

/// The page.
pub fn page(documents: &[Document]) -> Result<String, Failure> {
    let kinds = documents.iter().map(|it| svg::kind(it.machine.kind()));
    let mut kinds: Vec<_> = kinds.collect();
    kinds.dedup();
    // The kind of all figures; none where they differ.
    let kind = match kinds[..] {
        [kind] => kind,
        _ => "",
    };
    let experiments = experiments(documents, kind);
    let title = match &experiments[..] {
        [only] => only.get_attr("asked").unwrap_or_default().to_string(),
        several => format!(
            "{} questions about per-CPU memory accounting",
            several.len()
        ),
    };
    // The name of the template says that what it is filled with is escaped.
    let source = include_str!("page.html").replace("{{ head }}", page::HEAD.trim_end());
    Environment::new()
        .render_named_str(
            "page.html",
            &source,
            context! { title, kind, dark => dark(), experiments },
        )
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
fn experiments(documents: &[Document], kind_of_page: &str) -> Vec<Value> {
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
        let runs = runs.map(|(place, ((document, point), settings))| {
            let id = format!("{id}-run-{}", place + 1);
            context! { settings, ..run(document, point, kind_of_page, id) }
        });
        let runs: Vec<_> = runs.collect();
        let sweeps = sweeps.iter().filter(|it| it.experiment() == name);
        let sweeps = sweeps.enumerate().map(|(place, sweep)| {
            let id = format!("{id}-sweep-{}", place + 1);
            context! {
                title => format!("Sweep: {}", sweep.subject()),
                pictures => pictures(&svg::figures_of_sweep(sweep), &id),
                id,
            }
        });
        let sweeps: Vec<_> = sweeps.collect();
        // The experiment in a few sentences, and the discussion that it is about with its address; nothing if it is not known.
        let known = experiment_named(name).ok();
        let thread = known.as_ref().map_or("", |it| &it.thread);
        let (thread, address) = thread.rsplit_once(", ").unwrap_or((thread, ""));
        let title = capitalised(&all[0].title);
        context! {
            name,
            asked => match view::of_experiment(name).asked {
                "" => &title,
                question => question,
            },
            title => &title,
            about => known.as_ref().map(|it| &it.about),
            thread,
            address,
            variants => variants(&all),
            metrics => metrics(&all),
            settings => common,
            runs,
            sweeps,
            id => &id,
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
fn variants(documents: &[&Document]) -> Vec<Value> {
    let mut known: Vec<&str> = Vec::new();
    let mut variants = Vec::new();
    for document in documents {
        for part in svg::parts(document) {
            if !known.contains(&part.result.name.as_str()) {
                known.push(&part.result.name);
                variants.push(variant(&part));
            }
        }
    }
    variants
}

fn variant(part: &Part<'_>) -> Value {
    let (name, policy) = part.name();
    context! { name, policy, about => &part.result.summary }
}

/// Explanations of the metrics of all documents.
fn metrics(documents: &[&Document]) -> Vec<Value> {
    let is_measured = |name: &str| {
        let mut variants = documents.iter().flat_map(|it| &it.variants);
        variants.any(|variant| variant.metrics.get(name).is_some())
    };
    let glossary = documents
        .first()
        .map_or(&[][..], |it| view::of(it).metrics());
    let glossary = glossary.iter().filter(|info| is_measured(info.name));
    let explained = glossary.map(|info| {
        context! { title => tables::title(info.name), metric => info.name, about => info.about }
    });
    explained.collect()
}

fn run(document: &Document, point: &str, kind_of_page: &str, id: String) -> Value {
    let parts = svg::parts(document);
    let load = Load(&document.parameters);
    let words = (view::of(document).load)(load);
    let findings = findings(document, &parts);
    let published: Vec<_> = document.verdicts.iter().map(published).collect();
    let kind = svg::kind(document.machine.kind());
    let headline = match screen::answer(document) {
        Some(answer) => answer,
        None => headline(&parts, &findings),
    };
    context! {
        title => run_title(document, point),
        kind => if kind == kind_of_page { "" } else { kind },
        note => match document.machine.kind() {
            MachineKind::Host => "",
            MachineKind::Sim => ", simulated",
        },
        // A view without words of its own lists the parameters, which stand below.
        load => if words == load.all() { String::new() } else { capitalised(&words) },
        interrupted => document.interrupted,
        failures => failures(document).collect::<Vec<_>>(),
        headline => unbroken(&headline),
        findings => findings.iter().map(|(name, policy, text)| context! { name, policy, text }).collect::<Vec<_>>(),
        pictures => pictures(&svg::figures(document), &id),
        variants => parts.iter().map(variant).collect::<Vec<_>>(),
        key => tables::key(document, &parts),
        spreads => tables::spreads(document, &parts),
        singles => tables::singles(document, &parts),
        published,
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

/// Of a finding: the variant's name and its policy, both empty if it is on all variants, and the sentence.
type Finding = (String, String, String);

/// The findings as one text. Of many variants, those of Bursar's and the kernel's.
fn headline(parts: &[Part<'_>], findings: &[Finding]) -> String {
    let is_few = parts.len() <= svg::MOST_LINES;
    let is_said = |(name, _, _): &&Finding| {
        let mut references = parts.iter().filter(|part| part.is_reference());
        is_few || name.is_empty() || references.any(|part| part.name().0 == name)
    };
    let said = findings.iter().filter(is_said);
    let said = said.map(
        |(name, policy, text)| match (name.as_str(), policy.as_str()) {
            ("", _) => format!("{}.", capitalised(text)),
            (name, "") => format!("{name}: {text}."),
            (owner, policy) => format!("{owner} ({policy}): {text}."),
        },
    );
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
        let text = text.strip_prefix(&prefix).unwrap_or(&text).to_owned();
        Some((name.to_owned(), policy.to_owned(), text))
    });
    let remarks = (view.remarks)(document).into_iter();
    let remarks = remarks.map(|text| (String::new(), String::new(), text));
    of_variants.chain(remarks).collect()
}

fn pictures(figures: &[Figure], id: &str) -> Vec<Value> {
    let picture = |(place, figure): (usize, &Figure)| {
        context! {
            id => format!("{id}-picture-{}", place + 1),
            title => capitalised(&figure.title),
            reading => &figure.reading,
            drawing => &figure.drawing,
            legend => figure.legend.iter().map(legend_entry).collect::<Vec<_>>(),
        }
    };
    figures.iter().enumerate().map(picture).collect()
}

fn legend_entry(entry: &Entry) -> Value {
    let (is_line, color, dash) = match entry.sign {
        Sign::Line(stroke) => (true, stroke.color, stroke.dash),
        Sign::Published(color) => (false, color, ""),
    };
    context! { is_line, color, dash, name => &entry.name, figures => &entry.figures }
}

/// A published figure beside ours.
fn published(verdict: &Verdict) -> Value {
    let figure = |value| published_figures::value(verdict, value);
    context! {
        variant => &verdict.variant,
        metric => tables::title(&verdict.metric),
        load => &verdict.load,
        published => published_figures::published(verdict),
        measured => figure(verdict.measured),
        lo => figure(verdict.lo),
        hi => figure(verdict.hi),
        verdict => match (verdict.row, verdict.verdict) {
            (PublishedRow::Calibration, _) => "none (calibration)".to_owned(),
            (PublishedRow::Prediction, None) => "none".to_owned(),
            (PublishedRow::Prediction, Some(ruling)) => ruling.to_string(),
        },
        reason => &verdict.reason,
    }
}
