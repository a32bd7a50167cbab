//! Published figures beside the lab's: one row a figure, of all documents.

use bursar_experiments::document::Document;
use bursar_experiments::machine_info::MachineKind;
use bursar_experiments::verdict::{Basis, Rule, Ruling, SEEDS_NEEDED, Verdict};

use crate::units::{counted, in_unit, percent};
use crate::view::metric_title;
use bursar_term::grid::Grid;
use bursar_term::markup::Markup;

/// The tables of all published figures that the documents have an answer to, one an experiment; nothing if there are none. All
/// are simulated: what was published was measured on machines that only the simulated one can be. Where nothing was judged, a
/// line says so, and `is_verbose` adds the tables.
pub fn published_figures(documents: &[Document], form: Markup, is_verbose: bool) -> String {
    let has_published = |document: &&Document| {
        document.machine.kind() == MachineKind::Sim && !document.verdicts.is_empty()
    };
    let documents: Vec<&Document> = documents.iter().filter(has_published).collect();
    let of_experiments: Vec<&[&Document]> = documents
        .chunk_by(|one, next| one.experiment == next.experiment)
        .collect();
    if of_experiments.is_empty() {
        return String::new();
    }
    let is_any_judged = documents.iter().any(|document| is_judged(document));
    let mut text = "\n".to_owned();
    if !is_any_judged {
        text.push_str(&form.paragraph(&not_judged(&documents, is_verbose)));
        if !is_verbose {
            return text;
        }
        text.push('\n');
    }
    text.push_str(&form.heading("Published figures and the lab's"));
    for (place, documents) in of_experiments.iter().enumerate() {
        if of_experiments.len() > 1 {
            if place > 0 {
                text.push('\n');
            }
            text.push_str(&form.subheading(&documents[0].experiment));
        }
        text.push_str(&form.table(&of_experiment(documents, form)));
    }
    text
}

/// Whether runs rule on what was published: those of the experiment in full, with enough seeds.
fn is_judged(document: &Document) -> bool {
    let mut verdicts = document.verdicts.iter();
    document.seeds.min(document.draws) >= SEEDS_NEEDED as u64
        && verdicts.any(|verdict| verdict.basis == Basis::Ensemble)
}

/// Says which command judges.
fn not_judged(documents: &[&Document], is_verbose: bool) -> String {
    let figures = documents.iter().map(|document| document.verdicts.len());
    let names: Vec<_> = documents.iter().map(|it| it.experiment.as_str()).collect();
    let name = match names[..] {
        [name, ..] if names.iter().all(|other| *other == name) => name,
        _ => "NAME",
    };
    let mut said = format!(
        "Nothing is judged here. `bursar-lab run {name} --seeds {SEEDS_NEEDED}` judges by {}.",
        counted(figures.sum::<usize>(), "published figure")
    );
    if !is_verbose {
        said.push_str(" -v shows these beside the lab's.");
    }
    said
}

/// One row a figure.
fn of_experiment(documents: &[&Document], form: Markup) -> Grid {
    let header = [
        "figure",
        "published",
        "lab (simulated)",
        "interval",
        "verdict",
        "why",
    ];
    let mut table = Grid::new(header).right(1..4).prose();
    let mut load = "";
    for document in documents {
        for verdict in &document.verdicts {
            if std::mem::replace(&mut load, &verdict.load) != verdict.load {
                table.group(&verdict.load);
            }
            table.row([
                format!("  {}", figure(verdict)),
                published(verdict),
                value(verdict, verdict.measured),
                interval(verdict),
                ruling(verdict, form),
                verdict.reason.clone(),
            ]);
        }
    }
    table
}

fn figure(verdict: &Verdict) -> String {
    let metric = metric_title(&verdict.metric);
    match verdict.rule.baseline() {
        None => format!("{}: {metric}", verdict.variant),
        Some(baseline) => format!("{} against {baseline}: {metric}", verdict.variant),
    }
}

/// Published figure, for people.
pub fn published(verdict: &Verdict) -> String {
    match &verdict.rule {
        Rule::Ratio { from, to, .. } => format!("{} to {} times", times(*from), times(*to)),
        Rule::NoWorse { margin, .. } => format!("no worse (< {})", percent(*margin)),
        Rule::Share { tolerance } => {
            format!("{} +- {}", percent(verdict.published), percent(*tolerance))
        }
        Rule::Equivalent { margin, .. } => {
            format!(
                "{}, noise (+- {})",
                change(verdict.published),
                small_margin(*margin)
            )
        }
        Rule::Change { .. } => change(verdict.published),
        Rule::Figure { tolerance, unit } => format!(
            "{} +- {}",
            in_unit(verdict.published, *unit),
            percent(*tolerance)
        ),
    }
}

/// A number of ours, as the rule means it.
pub fn value(verdict: &Verdict, value: f64) -> String {
    match verdict.rule {
        Rule::Figure { unit, .. } => in_unit(value, unit),
        Rule::Share { .. } => percent(value),
        Rule::Ratio { .. } => {
            let decimals = decimals(verdict.hi - verdict.lo, value);
            format!("{value:.decimals$} times")
        }
        Rule::NoWorse { .. } | Rule::Equivalent { .. } | Rule::Change { .. } => {
            let [value, width] = [value, verdict.hi - verdict.lo].map(|it| it * 100.0);
            let decimals = decimals(width, value);
            match format!("{value:+.decimals$}") {
                zero if zero[1..].chars().all(|digit| "0.".contains(digit)) => "0 %".to_owned(),
                value => format!("{value} %"),
            }
        }
    }
}

/// Decimals of a number of ours: a digit more than the width of its interval tells, or two digits where there is none.
fn decimals(width: f64, value: f64) -> usize {
    const DECIMALS_MAX: f64 = 4.0;
    let known = match (width, value.abs()) {
        (0.0, 0.0) => return 0,
        (0.0, value) => value,
        (width, _) => width,
    };
    (1.0 - known.log10().floor()).clamp(0.0, DECIMALS_MAX) as usize
}

/// Nothing where one seed is all there is: it has no spread. (Many may all have 0.)
fn interval(verdict: &Verdict) -> String {
    let is_one = verdict.lo == verdict.measured && verdict.hi == verdict.measured;
    if is_one && verdict.measured != 0.0 {
        return "-".to_owned();
    }
    let [lo, hi] = [verdict.lo, verdict.hi].map(|end| value(verdict, end));
    format!("{lo} to {hi}")
}

/// One decimal; three below 0.05, so that a small factor does not print as 0.0.
fn times(number: f64) -> String {
    match number {
        small if small > 0.0 && small < 0.05 => format!("{small:.3}"),
        number => format!("{number:.1}"),
    }
}

/// As exact as the change that it is around.
fn small_margin(margin: f64) -> String {
    match margin * 100.0 {
        small if small < 0.1 => format!("{small:.4} %"),
        _ => percent(margin),
    }
}

/// Published change, as exact as it is small: some are of a few parts in 100,000.
fn change(value: f64) -> String {
    let percent = value * 100.0;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        small if small < 0.1 => format!("{percent:+.4} %"),
        small if small < 1.0 => format!("{percent:+.2} %"),
        _ => format!("{percent:+.1} %"),
    }
}

fn ruling(verdict: &Verdict, form: Markup) -> String {
    match verdict.verdict {
        None => "calibration".to_owned(),
        Some(ruling @ Ruling::NotReproduced) => form.alarm(&ruling.to_string()),
        Some(ruling) => ruling.to_string(),
    }
}
