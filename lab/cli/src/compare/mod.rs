//! `bursar compare`: a result before a change and one after it.
//!
//! | part | file |
//! |---|---|
//! | pairs of documents and variants | this one |
//! | the document, for people | `text.rs` |
//! | the document, for programs | `data.rs` |
//!
//! `bursar_experiments::compare::rule` decides which figures are clearly better or worse.

mod data;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bursar_experiments::Source;
use bursar_experiments::compare::{Comparison, Judgement, comparable, difference};
use bursar_experiments::document::Document;
use clap::Args as ClapArgs;
use serde::Serialize;

use crate::failure::{EXPECTATION_FAILED, Failure};
use crate::format;
use crate::markup::Markup;
use crate::options::Global;
use crate::options::TextFormat;
use crate::output::{self, Output};
use crate::points::points;
use crate::result_file;

pub const EXAMPLES: &str = "\
Examples:
  bursar run memcg-flush --seeds 20 -o before.json    then change and build
  bursar run memcg-flush --seeds 20 -o after.json
  bursar compare before.json after.json
  bursar compare before.json after.json -o changes.csv

Two results are compared where experiment, machine, cost model and parameters
are the same, except for the seed.

A figure is clearly better or worse if it is so in 95 % of the seeds of both
results. At least 8 seeds are needed. If B has other seeds than A, 95 % of all
pairs of a seed of A and one of B decide. Shares are compared, and p50, p99 and
mean of distributions.

By chance one figure in 256 is clearly worse with 8 seeds, and one in 50,000
with 20. There are many figures, so take 20 seeds. Counts of events are sums
over all seeds, and metrics without a better side are only shown.

Exit codes:
  0  nothing is clearly worse
  1  something is
  2  no results, or nothing in common";

#[derive(Debug, ClapArgs)]
pub struct Compare {
    /// File that `bursar run -f json` wrote, before the change
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// File that `bursar run -f json` wrote, after the change
    #[arg(value_name = "B")]
    pub b: PathBuf,
}

/// Two files, compared.
#[derive(Serialize)]
struct Compared {
    schema: u32,
    files: [String; 2],
    /// Figures that are clearly better, and those that are clearly worse.
    better: usize,
    worse: usize,
    comparisons: Vec<Comparison>,
    /// Documents of one file without one of the other.
    unmatched: [Vec<String>; 2],
    /// Which point of a sweep each comparison is of.
    #[serde(skip)]
    points: Vec<String>,
}

/// Reads, compares and writes.
pub fn compare(compare: &Compare, global: &Global) -> Result<ExitCode, Failure> {
    let format = global.text_format()?;
    output::refuse_to_replace([&compare.a, &compare.b], global.output.as_deref())?;
    let a = read(&compare.a)?;
    let b = read(&compare.b)?;
    let compared = Compared::new(&a, &b)?;
    let output = Output::open(global)?;
    let text = match format {
        TextFormat::Table => text::text(&compared, output.terminal()),
        TextFormat::Markdown => text::text(&compared, Markup::Markdown),
        TextFormat::Json => format::json(&compared)?,
        TextFormat::Ndjson => data::ndjson(&compared)?,
        TextFormat::Csv => data::csv(&compared)?,
    };
    output.write(&text)?;
    Ok(match compared.worse {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(EXPECTATION_FAILED),
    })
}

/// The documents of a file, one for each experiment and point.
fn read(path: &Path) -> Result<Source, Failure> {
    let source = result_file::read(path)?;
    for (place, document) in source.documents.iter().enumerate() {
        let mut before = source.documents[..place].iter();
        if before.any(|other| comparable(document, other)) {
            return Err(Failure::usage(format!(
                "{}: has one experiment with the same machine and parameters twice; `bursar report` merges parts of one run",
                source.name
            )));
        }
    }
    Ok(source)
}

impl Compared {
    fn new(a: &Source, b: &Source) -> Result<Self, Failure> {
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
