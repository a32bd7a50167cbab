//! Two files as pairs of documents.

use bursar_experiments::compare::{Comparison, Judgement, comparable, difference};
use bursar_experiments::document::Document;
use serde::Serialize;

use crate::points::points;
use crate::result_file::Source;
use bursar_term::failure::Failure;

/// Two files, compared.
#[derive(Serialize)]
pub struct Compared {
    pub schema: u32,
    pub files: [String; 2],
    /// Figures that are clearly better, and those that are clearly worse.
    pub better: usize,
    pub worse: usize,
    pub comparisons: Vec<Comparison>,
    /// Documents of one file without one of the other.
    pub unmatched: [Vec<String>; 2],
    /// Point of a sweep to which each comparison belongs.
    #[serde(skip)]
    pub points: Vec<String>,
}

impl Compared {
    pub fn new(a: &Source, b: &Source) -> Result<Self, Failure> {
        let matching = |document: &Document, others: &Source| {
            let mut others = others.documents.iter();
            others.find(|other| comparable(document, other)).cloned()
        };
        let pairs: Vec<(Document, Document)> = a
            .documents
            .iter()
            .filter_map(|one| Some((one.clone(), matching(one, b)?)))
            .collect();
        if pairs.is_empty() {
            return Err(nothing_in_common(a, b));
        }
        let comparisons: Vec<_> = pairs.iter().map(|(a, b)| Comparison::new(a, b)).collect();
        if comparisons.iter().all(|it| it.changes.is_empty()) {
            return Err(no_figures_in_common([a, b]));
        }
        let count = |judgement| comparisons.iter().map(|it| it.count(judgement)).sum();
        let alone = |source: &Source, others: &Source| {
            let points = points(&source.documents);
            let named = source.documents.iter().zip(points);
            named
                .filter(|(document, _)| matching(document, others).is_none())
                .map(|(document, point)| {
                    let name = format!("{} on {} {point}", document.experiment, document.machine);
                    name.trim_end().to_owned()
                })
                .collect()
        };
        let firsts: Vec<_> = pairs.iter().map(|(a, _)| a.clone()).collect();
        Ok(Self {
            schema: 1,
            files: [a, b].map(|source| source.name.clone()),
            better: count(Judgement::Better),
            worse: count(Judgement::Worse),
            unmatched: [alone(a, b), alone(b, a)],
            points: points(&firsts),
            comparisons,
        })
    }
}

/// Says what keeps those two documents apart that are nearest to each other.
fn nothing_in_common(a: &Source, b: &Source) -> Failure {
    let pairs = a
        .documents
        .iter()
        .flat_map(|one| b.documents.iter().map(move |other| (one, other)));
    let nearness = |(one, other): &(&Document, &Document)| {
        let (ours, theirs) = (&one.machine, &other.machine);
        [
            one.experiment == other.experiment,
            ours.kind() == theirs.kind(),
            ours.cost_model() == theirs.cost_model(),
            ours == theirs,
        ]
    };
    let files = [&a.name, &b.name];
    let what = pairs
        .rev()
        .max_by_key(nearness)
        .and_then(|(one, other)| difference(one, other));
    let Some((what, values)) = what else {
        return Failure::usage(format!("{} and {} hold no results", a.name, b.name));
    };
    let never = match what.as_str() {
        "the kind of machine" => " (figures of a host and simulated ones are never compared)",
        _ => "",
    };
    Failure::usage(format!(
        "{} and {} have nothing in common: {what} is\n  {} in {}\n  {} in {}{never}",
        files[0], files[1], values[0], files[0], values[1], files[1]
    ))
}

fn no_figures_in_common(files: [&Source; 2]) -> Failure {
    let [one, other] = files.map(|source| {
        let variants = source.documents.iter().flat_map(|it| &it.variants);
        let mut names: Vec<_> = variants.map(|variant| variant.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        format!("  {} in {}", names.join(", "), source.name)
    });
    Failure::usage(format!(
        "{} and {} have no figures of one variant in common: the variants are\n{one}\n{other}",
        files[0].name, files[1].name
    ))
}
