use super::rule::{Finding, Shift, by_seed, false_alarms};
use super::*;
use crate::document::{Metrics, SCHEMA};
use crate::machine_info::SimInfo;
use crate::measure::{Samples, Share};
use crate::metrics::memcg_flush::*;
use crate::random::Random;

/// Draws of documents in each of the tests that count alarms.
const DRAWS: u64 = 1_000;

fn machine(cpus: usize) -> MachineInfo {
    MachineInfo::Sim(SimInfo {
        cpus,
        nodes: 1,
        hz: 1000,
        topology: format!("cpus={cpus}"),
        model: "fnv1a64:1".to_owned(),
    })
}

fn document(seeds: std::ops::Range<u64>, metrics: &[(&str, Metric)]) -> Document {
    let mut of_variant = Metrics::default();
    for (name, metric) in metrics {
        of_variant.push(name, metric.clone());
    }
    Document {
        schema: SCHEMA,
        experiment: "memcg-flush".to_owned(),
        title: String::new(),
        experiment_hash: String::new(),
        revision: String::new(),
        machine: machine(8),
        parameters: toml::toml! { seed = 1 readers = 10 },
        seed: seeds.start,
        seeds: seeds.end - seeds.start,
        draws: 0,
        interrupted: false,
        variants: vec![VariantResult {
            name: "combining".to_owned(),
            summary: String::new(),
            ran_seeds: seeds.collect(),
            metrics: of_variant,
        }],
        expectations: Vec::new(),
        verdicts: Vec::new(),
    }
}

/// About normal: mean 0, standard deviation 1.
fn normal(random: &mut Random) -> f64 {
    let uniform = |random: &mut Random| random.number() as f64 / u64::MAX as f64;
    (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0
}

/// A share that differs from seed to seed by its own load as much as by chance.
fn shares(random: &mut Random, seeds: std::ops::Range<u64>, around: f64) -> Share {
    let mut share = Share::default();
    for seed in seeds {
        let part = (around + 0.02 * normal(random)).clamp(0.0, 1.0);
        share.merge(&Share::of(seed, (part * 1e6) as u64, 1_000_000));
    }
    share
}

/// Times with a long tail, of a run of each seed; runs differ, and one in eight meets something slow.
fn times(random: &mut Random, seeds: std::ops::Range<u64>, scale: f64) -> Metric {
    let mut all = Metric::Distribution(Samples::new(Unit::Ns).distribution());
    for seed in seeds {
        let mut samples = Samples::new(Unit::Ns);
        let of_run = 0.02 * normal(random);
        let slow = if random.happens(8) { 20 } else { 1 };
        for nth in 0..200 {
            let tail = if nth < 10 { slow } else { 1 };
            let time = 100_000.0 * scale * (of_run + 0.3 * normal(random)).exp();
            samples.record(time as u64 * tail);
        }
        let mut of_seed = samples.distribution();
        of_seed.note_seed(seed);
        all.merge(&Metric::Distribution(of_seed))
            .expect("of one unit");
    }
    all
}

fn seeds(values: &[f64]) -> Vec<(u64, f64)> {
    (0..).zip(values.iter().copied()).collect()
}

fn found(a: &Document, b: &Document) -> Vec<(String, &'static str, Judgement)> {
    let changes = Comparison::new(a, b).changes;
    let short = |change: Change| (change.metric, change.figure, change.judgement);
    changes.into_iter().map(short).collect()
}

#[test]
fn seeds_agree_or_they_do_not() {
    let zeros = seeds(&[0.0; 20]);
    let mut values = [1.0; 20];
    assert_eq!(by_seed(&zeros, &seeds(&values)).shift, Shift::Up);
    values[7] = -1.0;
    assert_eq!(
        by_seed(&zeros, &seeds(&values)),
        Finding {
            shift: Shift::Up,
            reason: "greater in 19 of 20 seeds".to_owned(),
            seeds: 20,
        }
    );
    assert_eq!(by_seed(&seeds(&values), &zeros).shift, Shift::Down);
    // A tie agrees with neither side.
    values[8] = 0.0;
    assert_eq!(by_seed(&zeros, &seeds(&values)).shift, Shift::Unclear);
    assert_eq!(by_seed(&zeros, &zeros).shift, Shift::Unclear);
}

#[test]
fn few_seeds_say_nothing() {
    for (a, b) in [(7, 20), (20, 7), (1, 1), (0, 8)] {
        let [a, b] = [(a, 0.0), (b, 1.0)].map(|(seeds, value)| vec![value; seeds]);
        assert_eq!(by_seed(&seeds(&a), &seeds(&b)).shift, Shift::TooFew);
    }
    let mut random = Random::new(1);
    let [few, enough] = [0..7, 0..8].map(|seeds| {
        let times = times(&mut random, seeds.clone(), 1.0);
        document(seeds, &[(READ_LATENCY.name, times)])
    });
    for (other, expected) in [(&few, Judgement::TooFew), (&enough, Judgement::TooFew)] {
        let judgements = found(&few, other).into_iter().map(|(.., it)| it);
        assert_eq!(judgements.collect::<Vec<_>>(), [expected; 3]);
    }
    let itself = found(&enough, &enough).into_iter().map(|(.., it)| it);
    assert_eq!(itself.collect::<Vec<_>>(), [Judgement::Neither; 3]);
}

#[test]
fn what_has_no_values_by_seed_is_not_judged() {
    let mut samples = Samples::new(Unit::Ns);
    (0..10_000).for_each(|value| samples.record(value));
    let metrics = [
        (
            READ_LATENCY.name,
            Metric::Distribution(samples.distribution()),
        ),
        (FLUSHES.name, Metric::Count(8_000)),
    ];
    let one = document(0..8, &metrics);
    let changes = Comparison::new(&one, &one).changes;
    assert_eq!(changes.len(), 4);
    for change in changes {
        assert_eq!(change.judgement, Judgement::TooFew);
        assert_eq!(change.reason, "has no values by seed");
    }
}

#[test]
fn chance_is_what_it_is_said_to_be() {
    assert_eq!(false_alarms(256, 8), 1.0);
    let twenty = false_alarms(1, 20);
    assert!(
        (twenty - 21.0 / f64::from(1 << 20)).abs() < 1e-12,
        "{twenty}"
    );
    assert!(false_alarms(1, 1_000) < 1e-9);
    // Twenty seeds each, of which eight are in common: those alone are compared.
    let mut random = Random::new(7);
    for (others, seeds) in [(0..20, 20), (12..32, 8), (13..33, 20)] {
        let [a, b] = [0..20, others].map(|seeds| {
            let share = Metric::Ratio(shares(&mut random, seeds.clone(), 0.5));
            document(seeds, &[(BROKEN_READS.name, share)])
        });
        let compared = Comparison::new(&a, &b);
        assert_eq!(compared.by_chance(), false_alarms(1, seeds), "{compared:?}");
    }
    // Twenty seeds in common, in eight of which anything happened.
    let [a, b] = [5, 6].map(|part| {
        let mut share = Share::default();
        for seed in 0..20 {
            let whole = if seed < 8 { 10 } else { 0 };
            share.merge(&Share::of(seed, part.min(whole), whole));
        }
        document(0..20, &[(BROKEN_READS.name, Metric::Ratio(share))])
    });
    assert_eq!(Comparison::new(&a, &b).by_chance(), false_alarms(1, 8));
}

/// The rules' false alarms: at most once in 256 times by eight seeds in common, once in 1,800 by eight and eight others.
#[test]
fn shares_that_did_not_change_are_seldom_worse() {
    let mut random = Random::new(3);
    let mut alarms = [0; 2];
    for _ in 0..10 * DRAWS {
        for (others, alarms) in [0..8, 100..108].into_iter().zip(&mut alarms) {
            let [a, b] = [0..8, others].map(|seeds| {
                let share = Metric::Ratio(shares(&mut random, seeds.clone(), 0.5));
                document(seeds, &[(BROKEN_READS.name, share)])
            });
            *alarms += Comparison::new(&a, &b).count(Judgement::Worse);
        }
    }
    // 39 and 5.4 are expected; three standard deviations more are allowed.
    assert!(alarms[0] <= 58, "{} of {} draws", alarms[0], 10 * DRAWS);
    assert!(alarms[1] <= 13, "{} of {} draws", alarms[1], 10 * DRAWS);
}

/// The same rates for the figures of distributions, each, whatever runs do to the tail.
#[test]
fn times_that_did_not_change_are_seldom_worse() {
    let mut random = Random::new(4);
    let mut alarms = [0; 3];
    for _ in 0..DRAWS {
        let [a, b] = [0..8, 0..8].map(|seeds| {
            let times = times(&mut random, seeds.clone(), 1.0);
            document(seeds, &[(READ_LATENCY.name, times)])
        });
        for ((.., judgement), alarms) in found(&a, &b).into_iter().zip(&mut alarms) {
            *alarms += u32::from(judgement == Judgement::Worse);
        }
    }
    // 3.9 are expected; three standard deviations more are allowed.
    assert!(
        alarms.iter().all(|alarms| *alarms <= 10),
        "{alarms:?} of {DRAWS} draws"
    );
}

#[test]
fn a_fifth_worse_is_found() {
    let mut random = Random::new(5);
    for (seeds, others) in [(0..8, 0..8), (0..20, 0..20), (0..20, 50..70)] {
        let [before, after] =
            [(seeds, 1.0, 0.75), (others, 1.2, 0.6)].map(|(seeds, time, fast)| {
                let metrics = [
                    (READ_LATENCY.name, times(&mut random, seeds.clone(), time)),
                    (
                        READS_UNDER_100US.name,
                        Metric::Ratio(shares(&mut random, seeds.clone(), fast)),
                    ),
                ];
                document(seeds, &metrics)
            });
        for (one, other, expected) in [
            (&before, &after, Judgement::Worse),
            (&after, &before, Judgement::Better),
        ] {
            for (metric, figure, judgement) in found(one, other) {
                // A tail that one run in eight moves twentyfold is not clear by eight.
                let is_clear = metric == READS_UNDER_100US.name || figure == "p50";
                assert!(
                    judgement == expected || !is_clear,
                    "{metric} {figure}: {judgement}"
                );
            }
        }
    }
}

#[test]
fn counts_are_shown_by_seed() {
    let [eight, twenty] = [(0..8, 8_000), (0..20, 20_000)]
        .map(|(seeds, flushes)| document(seeds, &[(FLUSHES.name, Metric::Count(flushes))]));
    let change = &Comparison::new(&eight, &twenty).changes[0];
    assert_eq!(
        (change.a, change.b, change.change),
        (Some(1_000.0), Some(1_000.0), Some(0.0))
    );
    let [none, one] =
        [0, 1].map(|waits| document(0..8, &[(LOCK_WAITS.name, Metric::Count(waits))]));
    assert_eq!(Comparison::new(&none, &one).changes[0].change, None);
}

#[test]
fn nothing_is_no_better_than_something() {
    let [some, none] = [1, 0].map(|events| {
        let mut share = Share::default();
        let mut times = Metric::Distribution(Samples::new(Unit::Ns).distribution());
        for seed in 0..8 {
            share.merge(&Share::of(seed, events, 2 * events));
            let mut of_seed = Samples::new(Unit::Ns);
            of_seed.record_many(100, events);
            let mut of_seed = of_seed.distribution();
            of_seed.note_seed(seed);
            times.merge(&Metric::Distribution(of_seed)).expect("times");
        }
        let share = (BROKEN_READS.name, Metric::Ratio(share));
        document(0..8, &[share, (READ_LATENCY.name, times)])
    });
    for (a, b) in [(&some, &none), (&none, &some)] {
        let changes = Comparison::new(a, b).changes;
        assert_eq!(changes.len(), 4);
        for change in changes {
            assert_eq!(change.judgement, Judgement::TooFew, "{change:?}");
            assert!(change.a.is_none() != change.b.is_none(), "{change:?}");
            assert_eq!(change.change, None);
        }
    }
}

#[test]
fn a_seed_of_nothing_among_others_is_no_evidence() {
    let [some, few] = [20, 1].map(|full| {
        let mut times = Metric::Distribution(Samples::new(Unit::Ns).distribution());
        for seed in 0..20 {
            let mut of_seed = Samples::new(Unit::Ns);
            of_seed.record_many(100, u64::from(seed < full));
            let mut of_seed = of_seed.distribution();
            of_seed.note_seed(seed);
            times.merge(&Metric::Distribution(of_seed)).expect("times");
        }
        document(0..20, &[(READ_LATENCY.name, times)])
    });
    few.check().expect("a document");
    for change in Comparison::new(&some, &few).changes {
        assert_eq!(change.judgement, Judgement::TooFew, "{change:?}");
    }
}

#[test]
fn what_has_no_better_side_is_only_shown() {
    let [few, many] =
        [10, 1_000_000].map(|skips| document(0..8, &[(SKIPS.name, Metric::Count(skips))]));
    assert_eq!(
        Comparison::new(&few, &many).changes[0].judgement,
        Judgement::Shown
    );
}

#[test]
fn what_only_one_has_is_named() {
    let one = document(
        0..8,
        &[
            (SKIPS.name, Metric::Count(1)),
            (WAITS.name, Metric::Count(1)),
        ],
    );
    let mut other = document(0..8, &[(WAITS.name, times(&mut Random::new(6), 0..8, 1.0))]);
    let comparison = Comparison::new(&one, &other);
    assert!(comparison.changes.is_empty());
    assert_eq!(
        comparison.unmatched[0],
        ["skips of combining", "waits of combining"]
    );
    assert_eq!(comparison.unmatched[1], ["waits of combining"]);
    other.variants[0].name = "direct".to_owned();
    assert_eq!(Comparison::new(&one, &other).unmatched[1], ["direct"]);
}

#[test]
fn only_documents_of_one_point_are_compared() {
    let one = document(0..8, &[]);
    let mut other = document(5..9, &[]);
    other.parameters.insert("seed".to_owned(), 5.into());
    other.revision = "another".to_owned();
    assert!(comparable(&one, &other));
    other.parameters.insert("readers".to_owned(), 11.into());
    let (what, values) = difference(&one, &other).expect("a difference");
    assert_eq!(
        (what.as_str(), values),
        ("parameter `readers`", ["10".to_owned(), "11".to_owned()])
    );
    other.machine = machine(9);
    assert_eq!(
        difference(&one, &other).expect("a difference").0,
        "the machine"
    );
}
