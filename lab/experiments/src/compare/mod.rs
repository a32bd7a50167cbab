//! Comparison of results of one experiment before and after a change: figures that are clearly better, and figures that
//! are clearly worse.
//!
//! Two documents are compared where experiment, machine and parameters are the same, except for the seed. Figures of a
//! host and simulated ones, of two cost models or of two hosts are never compared, because the code would not be the
//! cause of their difference.
//!
//! [`rule`] defines "clearly", and [`crate::metrics`] the better side of a figure. Both were written before any result was
//! compared.

pub mod rule;

use std::fmt;

use serde::Serialize;

use self::rule::{Finding, Shift};
use crate::document::{Document, ParameterTable, VariantResult};
use crate::machine_info::MachineInfo;
use crate::measure::{Distribution, Metric, SeedFigures, Summary, Unit};
use crate::metrics::{Better, better};
use crate::verdict;

/// Judgement on a figure of the second document beside that of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// Clearly better.
    Better,
    /// Clearly worse.
    Worse,
    /// Neither clearly better nor clearly worse.
    Neither,
    /// Not judged: too few seeds, or no values by seed.
    TooFew,
    /// Not judged: the figure has no better side.
    Shown,
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Neither => "neither",
            Self::TooFew => "too-few",
            Self::Shown => "shown",
        })
    }
}

/// One figure in both documents.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Variant that it is about.
    pub variant: String,
    /// Metric that it is about.
    pub metric: String,
    /// Figure of the metric: `p50`, `p99`, `mean`, `value` or `per_seed`.
    pub figure: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Value in the first document; none if nothing was measured.
    pub a: Option<f64>,
    /// Value in the second document; none if nothing was measured.
    pub b: Option<f64>,
    /// Relative change from the first to the second; none where one has no value, or the first is 0 and the second is not.
    pub change: Option<f64>,
    /// Judgement on the change.
    pub judgement: Judgement,
    /// Reason of the judgement.
    pub reason: String,
    /// Number of seeds of either document that the rule looked at.
    #[serde(skip)]
    pub seeds: usize,
}

/// Two documents of one experiment, machine and parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The experiment.
    pub experiment: String,
    /// Machine that both ran on.
    pub machine: MachineInfo,
    /// Parameters that both ran with; the seed is the first document's.
    pub parameters: ParameterTable,
    /// Number of seeds of each.
    pub seeds: [u64; 2],
    /// Revision of each.
    pub revisions: [String; 2],
    /// Figures that both have, in the order of the first.
    pub changes: Vec<Change>,
    /// Entries that only one of them has, or that are of different kinds: `variant`, or `metric of variant`.
    pub unmatched: [Vec<String>; 2],
}

impl Comparison {
    /// Compares every figure that both documents have.
    pub fn new(a: &Document, b: &Document) -> Self {
        let mut changes = Vec::new();
        for one in &a.variants {
            let Some(other) = variant(b, &one.name) else {
                continue;
            };
            for (name, metric) in one.metrics.iter() {
                let seeds = [one, other].map(|variant| variant.ran_seeds.len());
                if let Some(matching) = other.metrics.get(name) {
                    changes.extend(judge(name, metric, matching, seeds).into_iter().map(
                        |change| Change {
                            variant: one.name.clone(),
                            ..change
                        },
                    ));
                }
            }
        }
        Self {
            experiment: a.experiment.clone(),
            machine: a.machine.clone(),
            parameters: a.parameters.clone(),
            seeds: [a.seeds, b.seeds],
            revisions: [a.revision.clone(), b.revision.clone()],
            changes,
            unmatched: [unmatched(a, b), unmatched(b, a)],
        }
    }

    /// Returns how many figures would be clearly worse by chance, on average and at most, if nothing had changed.
    pub fn by_chance(&self) -> f64 {
        let is_judged =
            |it: &&Change| !matches!(it.judgement, Judgement::TooFew | Judgement::Shown);
        let judged = self.changes.iter().filter(is_judged);
        judged.map(|it| rule::false_alarms(1, it.seeds)).sum()
    }

    /// Returns the number of figures with a judgement.
    pub fn count(&self, judgement: Judgement) -> usize {
        let such = |change: &&Change| change.judgement == judgement;
        self.changes.iter().filter(such).count()
    }
}

/// Returns whether two documents are of one experiment, machine and set of parameters, except for the seed.
pub fn comparable(a: &Document, b: &Document) -> bool {
    difference(a, b).is_none()
}

/// Returns the first difference that prevents a comparison: its name, its value in the first, its value in the second.
pub fn difference(a: &Document, b: &Document) -> Option<(String, [String; 2])> {
    let differs = |what: &str, values: [String; 2]| {
        (values[0] != values[1]).then(|| (what.to_owned(), values))
    };
    let both = [a, b];
    differs("the experiment", both.map(|it| it.experiment.clone()))
        .or_else(|| {
            differs(
                "the kind of machine",
                both.map(|it| it.machine.kind().to_string()),
            )
        })
        .or_else(|| {
            let model = |it: &Document| it.machine.cost_model().unwrap_or("none").to_owned();
            differs("the cost model", both.map(model))
        })
        .or_else(|| differs("the machine", both.map(|it| it.machine.to_string())))
        .or_else(|| {
            let keys = a.parameters.keys().chain(b.parameters.keys());
            let key = keys
                .filter(|key| *key != "seed")
                .find(|key| a.parameters.get(*key) != b.parameters.get(*key))?;
            let value = |it: &Document| {
                let value = it.parameters.get(key).map(ToString::to_string);
                value.unwrap_or_else(|| "not there".to_owned())
            };
            Some((format!("parameter `{key}`"), both.map(value)))
        })
}

fn variant<'a>(document: &'a Document, name: &str) -> Option<&'a VariantResult> {
    let mut variants = document.variants.iter();
    // One that was asked for and has not run yet has no figures.
    variants.find(|variant| variant.name == name && !variant.ran_seeds.is_empty())
}

fn unmatched(of: &Document, other: &Document) -> Vec<String> {
    let mut names = Vec::new();
    for one in of.variants.iter().filter(|it| !it.ran_seeds.is_empty()) {
        let Some(other) = variant(other, &one.name) else {
            names.push(one.name.clone());
            continue;
        };
        let alone = one.metrics.iter().filter(|(name, metric)| {
            let matching = other.metrics.get(name);
            matching.is_none_or(|matching| judge(name, metric, matching, [1, 1]).is_empty())
        });
        names.extend(alone.map(|(name, _)| format!("{name} of {}", one.name)));
    }
    names
}

/// Compares the figures of one metric; none if its kind or unit differs.
fn judge(name: &str, a: &Metric, b: &Metric, seeds: [usize; 2]) -> Vec<Change> {
    let better = better(name, a.unit());
    let unit = a.unit();
    let change = |figure, [a, b]: [Option<f64>; 2], finding: Finding| Change {
        variant: String::new(),
        metric: name.to_owned(),
        figure,
        unit,
        a,
        b,
        change: a.zip(b).and_then(|(a, b)| match (a, b) {
            (a, b) if a == b => Some(0.0),
            (0.0, _) => None,
            (a, b) => Some(b / a - 1.0),
        }),
        judgement: judgement(better, finding.shift),
        reason: finding.reason,
        seeds: finding.seeds,
    };
    match (a, b) {
        (Metric::Ratio(_), Metric::Ratio(_)) | (Metric::Figure(_), Metric::Figure(_))
            if unit == b.unit() =>
        {
            let [one, other] = [a, b].map(|metric| verdict::by_seed(metric).unwrap_or_default());
            let values = [a, b].map(Metric::value);
            vec![change("value", values, rule::by_seed(&one, &other))]
        }
        (Metric::Distribution(a), Metric::Distribution(b)) if a.unit() == b.unit() => {
            let figures = FIGURES.iter().map(|(figure, of_all, of_seed)| {
                let [one, other] = [a, b].map(|it| {
                    let of_seed = |(seed, figures)| (seed, of_seed(&figures));
                    // Documents of earlier revisions have figures of nothing, which are 0. Where only some seeds are so, they still count.
                    let of_seeds = it.by_seed().filter(|_| it.samples() > 0);
                    of_seeds.map(of_seed).collect::<Vec<_>>()
                });
                let finding = match (one.is_empty(), other.is_empty()) {
                    (false, false) => rule::by_seed(&one, &other),
                    _ => rule::without_seeds(),
                };
                let of_all = |it: &Distribution| (it.samples() > 0).then(|| of_all(&it.summary()));
                change(figure, [a, b].map(of_all), finding)
            });
            figures.collect()
        }
        (Metric::Count(a), Metric::Count(b)) => {
            let [a, b] = [(a, seeds[0]), (b, seeds[1])]
                .map(|(count, seeds)| *count as f64 / (seeds as f64).max(1.0));
            vec![change(
                "per_seed",
                [Some(a), Some(b)],
                rule::without_seeds(),
            )]
        }
        _ => Vec::new(),
    }
}

/// A figure of a distribution: its name, and how to take it from all seeds and from one.
type DistributionFigure = (&'static str, fn(&Summary) -> f64, fn(&SeedFigures) -> f64);
const FIGURES: [DistributionFigure; 3] = [
    ("p50", |all| all.p50 as f64, |one| one.p50 as f64),
    ("p99", |all| all.p99 as f64, |one| one.p99 as f64),
    ("mean", |all| all.mean, |one| one.mean),
];

fn judgement(better: Better, shift: Shift) -> Judgement {
    match (better, shift) {
        (Better::Neither, _) => Judgement::Shown,
        (_, Shift::TooFew) => Judgement::TooFew,
        (_, Shift::Unclear) => Judgement::Neither,
        (Better::Lower, Shift::Down) | (Better::Higher, Shift::Up) => Judgement::Better,
        (Better::Lower, Shift::Up) | (Better::Higher, Shift::Down) => Judgement::Worse,
    }
}

#[cfg(test)]
mod tests;
