//! Results of one experiment before and after a change: which figures are clearly better, which clearly worse.
//!
//! Two documents are compared where experiment, machine and parameters are the same, the seed aside. Figures of a host and
//! simulated ones, of two cost models or of two hosts, are never compared: their difference would not be that of the code.
//!
//! What "clearly" means is in [`rule`], which side is the better one in [`direction`]. Both were written before any result was
//! compared.

pub mod direction;
pub mod rule;

use std::fmt;

use serde::Serialize;

use self::direction::{Better, better};
use self::rule::{Finding, Shift};
use crate::document::{Document, ParameterTable, VariantResult};
use crate::machine_info::MachineInfo;
use crate::measure::{Metric, SeedFigures, Summary, Unit};

/// How a figure of the second document stands to that of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judgement {
    /// Clearly better.
    Better,
    /// Clearly worse.
    Worse,
    /// Neither is clear.
    Neither,
    /// Too few seeds, or no values by seed, to say anything.
    TooFew,
    /// Neither side is the better one.
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
    /// Of which variant.
    pub variant: String,
    /// Of which metric.
    pub metric: String,
    /// Which figure of the metric: `p50`, `p99`, `mean`, `value` or `per_seed`.
    pub figure: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// In the first document.
    pub a: f64,
    /// In the second one.
    pub b: f64,
    /// The second one's part more than the first; none where the first is 0 and the second is not.
    pub change: Option<f64>,
    /// What it means.
    pub judgement: Judgement,
    /// Why.
    pub reason: String,
}

/// Two documents of one experiment, machine and parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The experiment.
    pub experiment: String,
    /// Where both ran.
    pub machine: MachineInfo,
    /// With what both ran; the seed is the first one's.
    pub parameters: ParameterTable,
    /// Number of seeds of either.
    pub seeds: [u64; 2],
    /// Revision of either.
    pub revisions: [String; 2],
    /// Figures that both have, in the order of the first.
    pub changes: Vec<Change>,
    /// What one of them has and the other has not, or not as the same thing: `variant`, or `metric of variant`.
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

    /// How many figures the rule could judge.
    pub fn judged(&self) -> usize {
        [Judgement::Better, Judgement::Worse, Judgement::Neither]
            .into_iter()
            .map(|judgement| self.count(judgement))
            .sum()
    }

    /// How many figures were judged so.
    pub fn count(&self, judgement: Judgement) -> usize {
        let such = |change: &&Change| change.judgement == judgement;
        self.changes.iter().filter(such).count()
    }
}

/// Whether two documents are of one experiment, machine and set of parameters, the seed aside.
pub fn comparable(a: &Document, b: &Document) -> bool {
    difference(a, b).is_none()
}

/// The first thing that keeps two documents from being compared: what, in the first, in the second.
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

/// The figures of one metric; none if it is not the same thing in both.
fn judge(name: &str, a: &Metric, b: &Metric, seeds: [usize; 2]) -> Vec<Change> {
    let better = better(name, a.unit());
    let unit = a.unit();
    let change = |figure, [a, b]: [f64; 2], finding: Finding| Change {
        variant: String::new(),
        metric: name.to_owned(),
        figure,
        unit,
        a,
        b,
        change: match (a, b) {
            (a, b) if a == b => Some(0.0),
            (0.0, _) => None,
            (a, b) => Some(b / a - 1.0),
        },
        judgement: judgement(better, finding.shift),
        reason: finding.reason,
    };
    match (a, b) {
        (Metric::Ratio(a), Metric::Ratio(b)) => {
            let [one, other]: [Vec<_>; 2] = [a.by_seed().collect(), b.by_seed().collect()];
            let finding = rule::by_seed(&one, &other);
            vec![change("value", [a.value(), b.value()], finding)]
        }
        (Metric::Figure(a), Metric::Figure(b)) if a.unit() == b.unit() => {
            let [one, other]: [Vec<_>; 2] = [a.by_seed().collect(), b.by_seed().collect()];
            let finding = rule::by_seed(&one, &other);
            vec![change("value", [a.value(), b.value()], finding)]
        }
        (Metric::Distribution(a), Metric::Distribution(b)) if a.unit() == b.unit() => {
            let figures = FIGURES.iter().map(|(figure, of_all, of_seed)| {
                let [one, other] = [a, b].map(|it| {
                    let of_seed = |(seed, figures)| (seed, of_seed(&figures));
                    it.by_seed().map(of_seed).collect::<Vec<_>>()
                });
                let finding = match (one.is_empty(), other.is_empty()) {
                    (false, false) => rule::by_seed(&one, &other),
                    _ => rule::without_seeds(),
                };
                change(figure, [a, b].map(|it| of_all(&it.summary())), finding)
            });
            figures.collect()
        }
        (Metric::Count(a), Metric::Count(b)) => {
            let [a, b] = [(a, seeds[0]), (b, seeds[1])]
                .map(|(count, seeds)| *count as f64 / (seeds as f64).max(1.0));
            vec![change("per_seed", [a, b], rule::without_seeds())]
        }
        _ => Vec::new(),
    }
}

/// A figure of a distribution: its name, and what it is of all seeds and of one.
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
