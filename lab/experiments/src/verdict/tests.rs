use super::*;
use crate::measure::{Figure, Share, Unit};

const SEEDS: u64 = SEEDS_NEEDED as u64;

fn baseline() -> String {
    "old".to_owned()
}

fn all_rules() -> Vec<(Rule, f64)> {
    vec![
        (Rule::Share { tolerance: 0.05 }, 0.823),
        (
            Rule::Ratio {
                baseline: baseline(),
                from: 2.0,
                to: 3.0,
            },
            2.5,
        ),
        (
            Rule::NoWorse {
                baseline: baseline(),
                margin: 0.05,
                control: "bad".to_owned(),
            },
            0.0,
        ),
        (
            Rule::Equivalent {
                baseline: baseline(),
                margin: 0.07,
                control: "bad".to_owned(),
            },
            0.07,
        ),
        (
            Rule::Change {
                baseline: baseline(),
            },
            0.83,
        ),
    ]
}

fn verdict(rule: Rule, published: f64) -> Verdict {
    Verdict {
        variant: "new".to_owned(),
        metric: "metric".to_owned(),
        row: Row::Prediction,
        basis: Basis::Ensemble,
        load: String::new(),
        rule,
        published,
        measured: 0.0,
        lo: 0.0,
        hi: 0.0,
        verdict: None,
        reason: String::new(),
    }
}

fn figure(value: impl Fn(u64) -> f64, seeds: u64) -> Metric {
    let mut figure = Figure::of(Unit::Ns, 0, value(0));
    for seed in 1..seeds {
        figure.merge(&Figure::of(Unit::Ns, seed, value(seed)));
    }
    Metric::Figure(figure)
}

/// Judges `new` and `bad` against `old`, each a function of the seed.
fn judged(mut verdict: Verdict, seeds: u64, [new, old, bad]: [&dyn Fn(u64) -> f64; 3]) -> Verdict {
    let [new, old, bad] = [new, old, bad].map(|value| figure(value, seeds));
    let metric = |variant: &str, _: &str| match variant {
        "new" => Some(&new),
        "old" => Some(&old),
        "bad" => Some(&bad),
        _ => None,
    };
    assert!(verdict.judge(metric, 1_000));
    verdict
}

fn ruling(rule: usize, new: impl Fn(u64) -> f64) -> Ruling {
    let (rule, published) = all_rules().swap_remove(rule);
    let old = |seed: u64| 100.0 + seed as f64;
    let judged = judged(
        verdict(rule, published),
        SEEDS,
        [&|seed| new(seed) * old(seed), &old, &|seed| 1.5 * old(seed)],
    );
    judged.verdict.expect("a ruling of a prediction")
}

/// `seeds` seeds, half of them with each share in a thousand.
fn share(lo: u64, hi: u64) -> Metric {
    let mut share = Share::default();
    for seed in 0..SEEDS {
        share.merge(&Share::of(seed, if seed % 2 == 0 { lo } else { hi }, 1_000));
    }
    Metric::Ratio(share)
}

#[test]
fn shares_are_judged_by_both_intervals() {
    for (lo, hi, expected) in [
        (815, 830, Ruling::Reproduced),
        (700, 750, Ruling::NotReproduced),
        (900, 990, Ruling::NotReproduced),
        (815, 950, Ruling::Inconclusive),
        (700, 990, Ruling::Inconclusive),
    ] {
        let (rule, published) = all_rules().swap_remove(0);
        let mut verdict = verdict(rule, published);
        let share = share(lo, hi);
        assert!(verdict.judge(|_, _| Some(&share), 1_000));
        assert_eq!(verdict.verdict, Some(expected), "{lo}-{hi}");
    }
}

#[test]
fn one_seed_at_either_end_may_be_an_outlier() {
    let (rule, published) = all_rules().swap_remove(0);
    let mut verdict = verdict(rule, published);
    let mut share = Share::default();
    for seed in 0..SEEDS {
        let parts = match seed {
            3 => 1,
            7 => 999,
            _ => 823,
        };
        share.merge(&Share::of(seed, parts, 1_000));
    }
    let share = Metric::Ratio(share);
    assert!(verdict.judge(|_, _| Some(&share), 1_000));
    assert_eq!(verdict.verdict, Some(Ruling::Reproduced));
}

#[test]
fn a_share_of_nothing_is_no_evidence() {
    let rule = Rule::Share { tolerance: 0.05 };
    for (seeds_of_nothing, expected) in [
        (0, Some(Ruling::Reproduced)),
        (1, Some(Ruling::Inconclusive)),
        (SEEDS, None),
    ] {
        let mut share = Share::default();
        for seed in 0..SEEDS {
            let whole = if seed < seeds_of_nothing { 0 } else { 1_000 };
            share.merge(&Share::of(seed, 0, whole));
        }
        let share = Metric::Ratio(share);
        let mut verdict = verdict(rule.clone(), 0.01);
        let is_judged = verdict.judge(|_, _| Some(&share), 1_000);
        assert_eq!(is_judged, expected.is_some());
        assert_eq!(verdict.verdict, expected, "{seeds_of_nothing}");
    }
}

#[test]
fn ratios_are_judged_by_their_range() {
    assert_eq!(ruling(1, |_| 2.4), Ruling::Reproduced);
    assert_eq!(ruling(1, |_| 1.4), Ruling::DirectionOnly);
    assert_eq!(ruling(1, |_| 4.0), Ruling::DirectionOnly);
    assert_eq!(ruling(1, |_| 0.9), Ruling::NotReproduced);
    assert_eq!(
        ruling(1, |seed| if seed % 2 == 0 { 1.4 } else { 2.4 }),
        Ruling::Inconclusive
    );
    assert_eq!(
        ruling(1, |seed| if seed % 2 == 0 { 0.9 } else { 1.4 }),
        Ruling::NotReproduced,
        "its side of 1 is unsure"
    );
}

#[test]
fn no_regression_needs_a_control_that_shows_one() {
    assert_eq!(
        ruling(2, |seed| 1.0 + seed as f64 / 1e3),
        Ruling::Reproduced
    );
    assert_eq!(ruling(2, |_| 1.1), Ruling::NotReproduced);
    assert_eq!(
        ruling(2, |seed| if seed % 2 == 0 { 0.8 } else { 1.3 }),
        Ruling::Inconclusive
    );
}

#[test]
fn a_load_on_which_the_control_changes_nothing_is_insensitive() {
    for (rule, expected) in [(2, Ruling::Reproduced), (3, Ruling::Equivalent)] {
        for (control, expected) in [
            (&(|_| 1.01) as &dyn Fn(u64) -> f64, Ruling::Insensitive),
            (&|seed| [0.99, 1.1][seed as usize % 2], Ruling::Inconclusive),
            // No quotient is finite: a control without values.
            (&|_| f64::INFINITY, Ruling::Inconclusive),
            (&|_| 1.2, expected),
        ] {
            let (rule, published) = all_rules().swap_remove(rule);
            let judged = judged(
                verdict(rule, published),
                SEEDS,
                [&|_| 1.0, &|_| 1.0, control],
            );
            assert_eq!(judged.verdict, Some(expected), "{judged:?}");
        }
    }
}

#[test]
fn equivalence_is_shown_and_never_assumed() {
    assert_eq!(
        ruling(3, |seed| 1.0 + seed as f64 / 1e3),
        Ruling::Equivalent
    );
    assert_eq!(ruling(3, |_| 1.2), Ruling::NotReproduced);
    assert_eq!(
        ruling(3, |seed| if seed % 2 == 0 { 0.5 } else { 1.5 }),
        Ruling::Inconclusive,
        "too wide to say"
    );
}

#[test]
fn models_that_disagree_are_not_sure_however_many_seeds_there_are() {
    let split = |seed: u64| 100.0 * if seed.is_multiple_of(2) { 1.2 } else { 0.8 };
    for rule in [2, 3] {
        let (rule, published) = all_rules().swap_remove(rule);
        let judged = judged(
            verdict(rule, published),
            200,
            [&split, &|_| 100.0, &|_| 150.0],
        );
        assert_eq!(judged.verdict, Some(Ruling::Inconclusive), "{judged:?}");
    }
}

#[test]
fn changes_follow_the_order_of_precedence() {
    assert_eq!(
        ruling(4, |seed| 1.8 + seed as f64 / 200.0),
        Ruling::Reproduced
    );
    assert_eq!(
        ruling(4, |seed| 1.0 + seed as f64 / 10.0),
        Ruling::Inconclusive,
        "the published change inside 1.8 wide"
    );
    assert_eq!(ruling(4, |_| 1.3), Ruling::DirectionOnly);
    assert_eq!(ruling(4, |_| 0.9), Ruling::NotReproduced);
    assert_eq!(
        ruling(4, |seed| if seed % 4 == 0 { 0.9 } else { 1.2 }),
        Ruling::NotReproduced,
        "a sign that is unsure"
    );
}

#[test]
fn no_effect_scores_reproduced_by_no_rule() {
    let nothing = |_: u64| 100.0;
    for noise in [0.0, 0.01, 0.3] {
        // The same noise for all, not the same values: seeds are shuffled.
        let noisy = |shift: u64| {
            move |seed: u64| {
                100.0 * (1.0 + noise * (((seed * 7 + shift) % 20) as f64 / 10.0 - 0.95))
            }
        };
        for (rule, published) in all_rules() {
            if matches!(rule, Rule::Share { .. }) {
                // Of shares, no effect is that all reads are fast, or none.
                for null in [0, 1_000] {
                    let mut verdict = verdict(rule.clone(), published);
                    let share = share(null, null);
                    assert!(verdict.judge(|_, _| Some(&share), 1_000));
                    assert_ne!(verdict.verdict, Some(Ruling::Reproduced), "{rule:?}");
                }
                continue;
            }
            for seeds in [SEEDS, 200] {
                let null = judged(
                    verdict(rule.clone(), published),
                    seeds,
                    [&noisy(1), &nothing, &noisy(2)],
                );
                assert_ne!(null.verdict, Some(Ruling::Reproduced), "{null:?}");
            }
        }
    }
}

#[test]
fn few_seeds_few_draws_one_model_or_another_load_decide_nothing() {
    let constant: [&dyn Fn(u64) -> f64; 3] = [&|_| 2.5, &|_| 1.0, &|_| 3.0];
    for (rule, published) in all_rules() {
        let few = judged(verdict(rule.clone(), published), SEEDS - 1, constant);
        assert_eq!(few.verdict, Some(Ruling::Inconclusive), "{rule:?}");
        for basis in [Basis::OneModel, Basis::WhatIf] {
            let mut other = verdict(rule.clone(), published);
            other.basis = basis;
            let other = judged(other, SEEDS, constant);
            assert_eq!(other.verdict, Some(Ruling::Inconclusive), "{rule:?}");
        }
        let mut few_draws = verdict(rule, published);
        let value = figure(|_| 2.5, SEEDS);
        assert!(few_draws.judge(|_, _| Some(&value), SEEDS_NEEDED - 1));
        assert_eq!(few_draws.verdict, Some(Ruling::Inconclusive));
    }
}

#[test]
fn a_calibration_row_has_no_verdict() {
    for (rule, published) in all_rules() {
        let mut verdict = verdict(rule, published);
        verdict.row = Row::Calibration;
        let judged = judged(verdict, SEEDS, [&|_| 0.823, &|_| 1.0, &|_| 3.0]);
        assert_eq!(judged.verdict, None);
    }
}

#[test]
fn what_was_not_measured_is_not_judged() {
    let (rule, published) = all_rules().swap_remove(2);
    let mut verdict = verdict(rule, published);
    let value = figure(|_| 1.0, SEEDS);
    assert!(!verdict.judge(|variant, _| (variant != "bad").then_some(&value), 1_000));
    assert!(!verdict.judge(|_, _| Some(&Metric::Count(1)), 1_000));
}
