//! What counts as reproduced: the rules, written before any run.
//!
//! For shares: the published share with its tolerance is one interval, what single seeds gave is another. If the second
//! lies inside the first, the share is reproduced; if they do not meet, it is not; else the runs do not say. With fewer
//! than [`SEEDS_NEEDED`] seeds, with one cost model instead of an ensemble, and on any other machine or load than the
//! file's they never do, and of a calibration row nothing is said at all.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::measure::Share;

/// Fewer seeds than this decide nothing.
pub const SEEDS_NEEDED: usize = 20;

/// What is done with published figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Row {
    /// The model may be fitted to them, so that they say nothing about it.
    Calibration,
    /// They are predicted, and the prediction is judged.
    Prediction,
}

/// With what a prediction was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The file's machine and load, and draws of the cost model's uncertain constants.
    Ensemble,
    /// The file's machine and load, and the cost model's own constants.
    OneModel,
    /// Something was changed that the file sets: a question of its own, whose answer rules on nothing.
    WhatIf,
}

/// How a prediction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ruling {
    /// It is what was published.
    #[serde(rename = "reproduced")]
    Reproduced,
    /// It is something else, to the same side. Of changes, not of shares.
    #[serde(rename = "direction only")]
    DirectionOnly,
    /// It is something else.
    #[serde(rename = "not reproduced")]
    NotReproduced,
    /// The runs do not say.
    #[serde(rename = "inconclusive")]
    Inconclusive,
}

impl fmt::Display for Ruling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reproduced => "reproduced",
            Self::DirectionOnly => "direction only",
            Self::NotReproduced => "not reproduced",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// A published figure beside ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verdict {
    /// Of which variant.
    pub variant: String,
    /// Of which metric.
    pub metric: String,
    /// What the published figure is used for.
    pub row: Row,
    /// With what ours was found.
    pub basis: Basis,
    /// Machine and load of the published figure, in words.
    pub load: String,
    /// What the thread published.
    pub published: f64,
    /// How far ours may be from it.
    pub tolerance: f64,
    /// What we found.
    pub measured: f64,
    /// Lower end of our interval.
    pub lo: f64,
    /// Upper end of our interval.
    pub hi: f64,
    /// The ruling; none on a calibration row.
    pub verdict: Option<Ruling>,
    /// Why.
    pub reason: String,
}

impl Verdict {
    /// Holds the share against the published one, by the rules.
    pub fn judge(&mut self, share: &Share) {
        (self.measured, self.lo, self.hi) = (share.value(), share.lo(), share.hi());
        let (from, to) = (
            self.published - self.tolerance,
            self.published + self.tolerance,
        );
        let seeds = share.seeds().count();
        let (verdict, reason) = match self.row {
            Row::Calibration => (None, "the model may be fitted to this row".to_owned()),
            Row::Prediction if seeds < SEEDS_NEEDED => (
                Some(Ruling::Inconclusive),
                format!("{seeds} seed(s), and {SEEDS_NEEDED} are needed"),
            ),
            Row::Prediction if self.basis == Basis::WhatIf => (
                Some(Ruling::Inconclusive),
                "other parameters than the experiment's own".to_owned(),
            ),
            Row::Prediction if self.basis == Basis::OneModel => {
                let within = from <= self.lo && self.hi <= to;
                let place = if within { "within" } else { "not all within" };
                let reason = format!(
                    "seeds {place} the tolerance, but of one cost model, and an ensemble is needed"
                );
                (Some(Ruling::Inconclusive), reason)
            }
            Row::Prediction if from <= self.lo && self.hi <= to => (
                Some(Ruling::Reproduced),
                "every seed within the tolerance".to_owned(),
            ),
            Row::Prediction if self.hi < from || to < self.lo => (
                Some(Ruling::NotReproduced),
                "every seed outside the tolerance, to one side".to_owned(),
            ),
            Row::Prediction => (
                Some(Ruling::Inconclusive),
                "seeds within and outside the tolerance".to_owned(),
            ),
        };
        (self.verdict, self.reason) = (verdict, reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(row: Row, published: f64) -> Verdict {
        Verdict {
            variant: String::new(),
            metric: String::new(),
            row,
            basis: Basis::Ensemble,
            load: String::new(),
            published,
            tolerance: 0.02,
            measured: 0.0,
            lo: 0.0,
            hi: 0.0,
            verdict: None,
            reason: String::new(),
        }
    }

    /// `seeds` seeds, half of them with each share in a thousand.
    fn share(seeds: u64, lo: u64, hi: u64) -> Share {
        let mut share = Share::default();
        for seed in 0..seeds {
            share.merge(&Share::of(seed, if seed % 2 == 0 { lo } else { hi }, 1_000));
        }
        share
    }

    fn ruling(row: Row, published: f64, share: &Share) -> Option<Ruling> {
        let mut verdict = verdict(row, published);
        verdict.judge(share);
        verdict.verdict
    }

    #[test]
    fn shares_are_judged_by_both_intervals() {
        for (lo, hi, expected) in [
            (815, 830, Ruling::Reproduced),
            (700, 800, Ruling::NotReproduced),
            (850, 990, Ruling::NotReproduced),
            (815, 850, Ruling::Inconclusive),
            (700, 990, Ruling::Inconclusive),
        ] {
            let found = ruling(Row::Prediction, 0.823, &share(20, lo, hi));
            assert_eq!(found, Some(expected), "{lo}-{hi}");
        }
    }

    #[test]
    fn few_seeds_decide_nothing() {
        let found = ruling(Row::Prediction, 0.823, &share(19, 820, 825));
        assert_eq!(found, Some(Ruling::Inconclusive));
        let found = ruling(Row::Prediction, 0.823, &share(19, 1, 2));
        assert_eq!(found, Some(Ruling::Inconclusive));
    }

    #[test]
    fn one_model_or_another_load_decides_nothing() {
        for basis in [Basis::OneModel, Basis::WhatIf] {
            for (lo, hi) in [(823, 823), (1, 2)] {
                let mut verdict = verdict(Row::Prediction, 0.823);
                verdict.basis = basis;
                verdict.judge(&share(20, lo, hi));
                assert_eq!(verdict.verdict, Some(Ruling::Inconclusive), "{basis:?}");
            }
        }
    }

    #[test]
    fn a_calibration_row_has_no_verdict() {
        assert_eq!(ruling(Row::Calibration, 0.823, &share(20, 823, 823)), None);
        assert_eq!(ruling(Row::Calibration, 0.823, &share(20, 1, 2)), None);
    }
}
