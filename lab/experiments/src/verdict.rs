//! The rules for a reproduced figure, written before any run.
//!
//! Each rule turns the runs of an ensemble (one draw of the uncertain constants and one seed each) into numbers, one
//! for each seed, and compares them with the published figure. A calibration row gets no ruling. The ruling is
//! `inconclusive` with fewer than [`SEEDS_NEEDED`] seeds, with one cost model instead of an ensemble, and on any other
//! machine or load than the file's.
//!
//! | rule | value of each seed | reproduced | not reproduced |
//! |---|---|---|---|
//! | figure | the figure | never: it serves calibration | never |
//! | share | the share | central 90 % within the tolerance | central 90 % outside of it |
//! | ratio | variant / baseline | central 90 % within the published range | outside of it; `direction only` if it is on the same side of 1 |
//! | no worse | variant / baseline - 1 | surely below the margin, and the mean of a control above | surely above the margin |
//! | equivalent | variant / baseline - 1 | never: `equivalent` if surely within the margin either way, and the mean of a control outside | surely outside |
//! | change | variant / baseline - 1 | central 90 % contains the published change, and is narrower than 30 points | does not contain it, and the sign differs or is unsure; `direction only` if it agrees in 90 % of seeds |
//!
//! "Surely" means both a 90 % confidence interval of the mean (two one-sided tests at 5 %) and the central 90 % of the
//! seeds. Seeds run with different models, so more seeds make the mean surer but not the models more alike. A control
//! is a variant that is known to be worse. Without a control, an instrument that detects nothing would find that
//! nothing got worse. If the control is surely within the margin, too, the ruling is `insensitive`: the load would show
//! no change, whichever policy it ran.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::measure::interval::{central, confidence_of_mean, mean};
use crate::measure::{Metric, Unit};

/// Least number of seeds for a ruling.
pub const SEEDS_NEEDED: usize = 20;
/// Widest interval, as a share of the baseline, for which a change is judged.
const CHANGE_WIDTH_MAX: f64 = 0.30;
/// Share of the seeds that must have a sign for the sign to be sure.
const SIGN_SURE: f64 = 0.9;

/// Use of published figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Row {
    /// The model may be fitted to them, so they say nothing about the model.
    Calibration,
    /// The model predicts them, and the prediction is judged.
    Prediction,
}

/// Basis of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The file's machine and load, and draws of the cost model's uncertain constants.
    Ensemble,
    /// The file's machine and load, and the cost model's own constants.
    OneModel,
    /// A changed machine or load. It is a question of its own, and its answer rules on nothing.
    WhatIf,
}

/// Outcome of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ruling {
    /// The published figure.
    #[serde(rename = "reproduced")]
    Reproduced,
    /// No difference, as published, where a control differs.
    #[serde(rename = "equivalent")]
    Equivalent,
    /// No difference, and none with a control either: the load shows none, whatever the policy.
    #[serde(rename = "insensitive")]
    Insensitive,
    /// Another figure, on the same side.
    #[serde(rename = "direction only")]
    DirectionOnly,
    /// Another figure.
    #[serde(rename = "not reproduced")]
    NotReproduced,
    /// The runs do not decide.
    #[serde(rename = "inconclusive")]
    Inconclusive,
}

impl fmt::Display for Ruling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reproduced => "reproduced",
            Self::Equivalent => "equivalent",
            Self::Insensitive => "insensitive",
            Self::DirectionOnly => "direction only",
            Self::NotReproduced => "not reproduced",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// Rule that judges a figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rule {
    /// A share of events.
    Share {
        /// Greatest distance of our share from it.
        tolerance: f64,
    },
    /// A figure in its own unit, for fitting only. It depends on constants that nobody published.
    Figure {
        /// Greatest distance of our figure from it, as a share of it.
        tolerance: f64,
        /// Its unit.
        unit: Unit,
    },
    /// A multiple of the baseline.
    Ratio {
        /// The variant that it is compared with.
        baseline: String,
        /// Least published value.
        from: f64,
        /// Greatest published value.
        to: f64,
    },
    /// No more than the baseline, published in words.
    NoWorse {
        /// The variant that it is compared with.
        baseline: String,
        /// Increase below which there is no regression.
        margin: f64,
        /// A variant that is known to be worse.
        control: String,
    },
    /// The same as the baseline, within the published noise.
    Equivalent {
        /// The variant that it is compared with.
        baseline: String,
        /// Greatest change that counts as none.
        margin: f64,
        /// A variant that is known to differ.
        control: String,
    },
    /// A relative change against the baseline.
    Change {
        /// The variant that it is compared with.
        baseline: String,
    },
}

impl Rule {
    /// Returns the variant that the judged one is compared with, if there is one.
    pub fn baseline(&self) -> Option<&str> {
        match self {
            Self::Share { .. } | Self::Figure { .. } => None,
            Self::Ratio { baseline, .. }
            | Self::NoWorse { baseline, .. }
            | Self::Equivalent { baseline, .. }
            | Self::Change { baseline } => Some(baseline),
        }
    }

    /// Returns the variant that must differ, if there is one.
    pub fn control(&self) -> Option<&str> {
        match self {
            Self::NoWorse { control, .. } | Self::Equivalent { control, .. } => Some(control),
            _ => None,
        }
    }
}

/// A published figure beside ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Variant that it is about.
    pub variant: String,
    /// Metric that it is about.
    pub metric: String,
    /// Use of the published figure.
    pub row: Row,
    /// Basis of our figure.
    pub basis: Basis,
    /// Machine and load, in words.
    pub load: String,
    /// Rule that judges it.
    pub rule: Rule,
    /// Published value: a share, a quotient, or a change; 0 for a published statement that nothing changed.
    pub published: f64,
    /// Our value, of the same kind.
    pub measured: f64,
    /// Lower end of our interval.
    pub lo: f64,
    /// Upper end of our interval.
    pub hi: f64,
    /// The ruling; none on a calibration row.
    pub verdict: Option<Ruling>,
    /// Reason of the ruling.
    pub reason: String,
}

/// Returns one number for each seed of a metric, by seed, but for shares of nothing; `None` for metrics that keep none.
pub fn by_seed(metric: &Metric) -> Option<Vec<(u64, f64)>> {
    match metric {
        Metric::Ratio(share) => Some(share.judged().collect()),
        Metric::Figure(figure) => Some(figure.by_seed().collect()),
        Metric::Distribution(_) | Metric::Count(_) | Metric::Timeline(_) => None,
    }
}

impl Verdict {
    /// Judges the measured values against the published one. `metric` returns a metric of a variant; `draws` is the
    /// number of different draws. Returns `false` if a needed metric was not measured.
    pub fn judge<'a>(
        &mut self,
        metric: impl Fn(&str, &str) -> Option<&'a Metric>,
        draws: usize,
    ) -> bool {
        let of = |variant: &str| metric(variant, &self.metric).and_then(by_seed);
        let Some(own) = of(&self.variant) else {
            return false;
        };
        let against = |baseline: &str| Some(quotients(&own, &of(baseline)?));
        let values = match &self.rule {
            Rule::Share { .. } | Rule::Figure { .. } => {
                Some(own.iter().map(|(_, value)| *value).collect())
            }
            Rule::Ratio { baseline, .. } => against(baseline),
            Rule::NoWorse { baseline, .. }
            | Rule::Equivalent { baseline, .. }
            | Rule::Change { baseline } => against(baseline).map(changes),
        };
        let Some(values) = values.filter(|values: &Vec<f64>| !values.is_empty()) else {
            return false;
        };
        let control = match (self.rule.control(), self.rule.baseline()) {
            (Some(control), Some(baseline)) => match (of(control), of(baseline)) {
                (Some(control), Some(baseline)) => changes(quotients(&control, &baseline)),
                _ => return false,
            },
            _ => Vec::new(),
        };
        self.measured = mean(&values);
        (self.lo, self.hi) = self.rule.interval(&values);
        let different = values.len().min(draws);
        (self.verdict, self.reason) = match (self.row, self.basis) {
            (Row::Calibration, _) => (None, "the model was fitted to this row".to_owned()),
            (_, Basis::WhatIf) => undecided("other parameters than the experiment's own"),
            (_, Basis::OneModel) => undecided("one cost model, and an ensemble is needed"),
            (_, Basis::Ensemble) if different < SEEDS_NEEDED => undecided(&format!(
                "needs {SEEDS_NEEDED} seeds with draws of their own, has {different}"
            )),
            (_, Basis::Ensemble) => self.rule.decide(self.published, &values, &control),
        };
        true
    }
}

fn undecided(reason: &str) -> (Option<Ruling>, String) {
    (Some(Ruling::Inconclusive), reason.to_owned())
}

/// Divides the values of each seed that both have. A seed whose divisor is 0 is left out.
fn quotients(one: &[(u64, f64)], other: &[(u64, f64)]) -> Vec<f64> {
    let quotient = |&(seed, value): &(u64, f64)| {
        let at = other.binary_search_by_key(&seed, |(seed, _)| *seed).ok()?;
        Some(value / other[at].1).filter(|quotient| quotient.is_finite())
    };
    one.iter().filter_map(quotient).collect()
}

fn changes(quotients: Vec<f64>) -> Vec<f64> {
    quotients.into_iter().map(|times| times - 1.0).collect()
}

impl Rule {
    /// Returns the interval that the rule looks at.
    fn interval(&self, values: &[f64]) -> (f64, f64) {
        match self {
            Self::Share { .. } | Self::Figure { .. } | Self::Ratio { .. } | Self::Change { .. } => {
                central(values)
            }
            Self::NoWorse { .. } | Self::Equivalent { .. } => surely(values),
        }
    }

    fn decide(&self, published: f64, values: &[f64], control: &[f64]) -> (Option<Ruling>, String) {
        let (lo, hi) = self.interval(values);
        let (ruling, reason) = match self {
            Self::Share { tolerance } => {
                within(lo, hi, published - tolerance, published + tolerance)
            }
            Self::Figure { .. } => (
                Ruling::Inconclusive,
                "a figure of its own depends on constants that nobody published",
            ),
            Self::Ratio { from, to, .. } => match within(lo, hi, *from, *to) {
                (Ruling::NotReproduced, _) if same_side(lo, hi, *from, *to) => (
                    Ruling::DirectionOnly,
                    "on the published side of 1, outside of the published range",
                ),
                ruling => ruling,
            },
            Self::NoWorse { margin, .. } => {
                if lo > *margin {
                    (
                        Ruling::NotReproduced,
                        "surely worse by more than the margin",
                    )
                } else if hi >= *margin {
                    (Ruling::Inconclusive, "the interval holds the margin")
                } else {
                    let is_outside = |(lo, _)| lo > *margin;
                    let is_within = |(_, hi)| hi < *margin;
                    with_control(Ruling::Reproduced, control, is_outside, is_within)
                }
            }
            Self::Equivalent { margin, .. } => {
                if -margin < lo && hi < *margin {
                    let is_outside = |(lo, hi)| *margin < lo || hi < -margin;
                    let is_within = |(lo, hi)| -margin < lo && hi < *margin;
                    with_control(Ruling::Equivalent, control, is_outside, is_within)
                } else if hi < -margin || *margin < lo {
                    (Ruling::NotReproduced, "surely outside of the margin")
                } else {
                    (
                        Ruling::Inconclusive,
                        "the interval holds an end of the margin",
                    )
                }
            }
            Self::Change { .. } => decide_change(published, values, lo, hi),
        };
        (Some(ruling), reason.to_owned())
    }
}

/// Rules on a variant that is surely within the margin: by whether its control is outside, or surely within as well. A control without
/// a mean says neither.
fn with_control(
    ruling: Ruling,
    control: &[f64],
    is_outside: impl Fn((f64, f64)) -> bool,
    is_within: impl Fn((f64, f64)) -> bool,
) -> (Ruling, &'static str) {
    match confidence_of_mean(control) {
        Some(mean) if is_outside(mean) => {
            (ruling, "surely within the margin, and the control is not")
        }
        Some(_) if is_within(surely(control)) => (
            Ruling::Insensitive,
            "the control is surely within the margin, too",
        ),
        _ => (
            Ruling::Inconclusive,
            "within the margin, and the control may be as well",
        ),
    }
}

/// Returns an interval that contains the confidence interval of the mean and the central part of the values: more seeds
/// make the mean surer, and not the models more alike.
fn surely(values: &[f64]) -> (f64, f64) {
    let (lo, hi) = central(values);
    let mean = confidence_of_mean(values).unwrap_or((lo, hi));
    (lo.min(mean.0), hi.max(mean.1))
}

/// Compares an interval with a range.
fn within(lo: f64, hi: f64, from: f64, to: f64) -> (Ruling, &'static str) {
    if from <= lo && hi <= to {
        (Ruling::Reproduced, "the central 90 % of seeds lie within")
    } else if hi < from || to < lo {
        (
            Ruling::NotReproduced,
            "the central 90 % of seeds lie outside",
        )
    } else {
        (Ruling::Inconclusive, "seeds lie within and outside")
    }
}

fn same_side(lo: f64, hi: f64, from: f64, to: f64) -> bool {
    (from > 1.0 && lo > 1.0) || (to < 1.0 && hi < 1.0)
}

fn decide_change(published: f64, values: &[f64], lo: f64, hi: f64) -> (Ruling, &'static str) {
    let agree = values
        .iter()
        .filter(|value| value.signum() == published.signum() && **value != 0.0);
    let agreement = agree.count() as f64 / values.len() as f64;
    let holds = lo <= published && published <= hi;
    if holds && hi - lo < CHANGE_WIDTH_MAX {
        (Ruling::Reproduced, "inside a narrow interval")
    } else if holds {
        (
            Ruling::Inconclusive,
            "inside an interval of 30 points or more",
        )
    } else if agreement >= SIGN_SURE {
        (
            Ruling::DirectionOnly,
            "outside of the interval, with the published sign",
        )
    } else {
        (
            Ruling::NotReproduced,
            "outside of the interval, and the sign differs or is unsure",
        )
    }
}

#[cfg(test)]
mod tests;
