use bursar_lab::measure::{Metric, Unit};
use bursar_lab::verdict::{Basis, Row, Rule, Verdict};
use roxmltree::Document as Xml;

use super::*;
use crate::samples;

/// A name that ends elements, attributes and documents, and has what XML cannot.
const HOSTILE: &str = "<script>alert('x')</script> & \"]]>\u{0}\u{1b}[31m -->";

fn document(cpus: usize, variants: &[(&str, &[u64])]) -> Document {
    let variant = |(name, values): &(&str, &[u64])| {
        let times = |values: &[u64]| samples::many(Unit::Ns, values);
        let metrics = [
            ("read_latency", times(values)),
            ("staleness", times(&[0, 0, 0])),
            ("worker_runtime", times(values)),
        ];
        samples::variant(name, &metrics)
    };
    samples::document("memcg-flush", cpus, variants.iter().map(variant).collect())
}

fn texts(xml: &str) -> Vec<String> {
    let xml = Xml::parse(xml).expect("well-formed XML");
    let texts = xml.descendants().filter(|node| node.has_tag_name("text"));
    texts
        .filter_map(|node| node.text())
        .map(str::to_owned)
        .collect()
}

fn paths(xml: &str) -> usize {
    let xml = Xml::parse(xml).expect("well-formed XML");
    xml.descendants()
        .filter(|node| node.has_tag_name("path"))
        .count()
}

#[test]
fn each_variant_has_a_line_and_a_name() {
    let names = ["one", "two", "three"];
    let values: &[u64] = &[100, 2_000, 30_000];
    let drawn = picture(&[document(8, &names.map(|name| (name, values)))]);
    let texts = texts(&drawn);
    for name in names {
        assert!(texts.iter().any(|text| text == name), "{name}");
    }
    for said in [
        "SIMULATED (virtual time)",
        "How long reads took",
        "50 %",
        "10 us",
    ] {
        assert!(texts.iter().any(|text| text == said), "{said}: {texts:?}");
    }
    // Each line, and its sample in the legend.
    assert_eq!(paths(&drawn), 6);
}

#[test]
fn hostile_names_are_texts() {
    let mut document = document(8, &[(HOSTILE, &[1, 2])]);
    document.experiment = HOSTILE.to_owned();
    document.revision = HOSTILE.to_owned();
    let drawn = picture(&[document]);
    assert!(texts(&drawn).iter().any(|text| text.contains("<script>")));
    assert!(!drawn.contains("<script"));
    let xml = Xml::parse(&drawn).expect("well-formed XML");
    assert!(!xml.descendants().any(|node| node.has_tag_name("script")));
}

#[test]
fn what_is_empty_is_drawn_as_nothing() {
    for documents in [
        vec![],
        vec![document(8, &[])],
        vec![
            document(8, &[("nothing", &[])]),
            document(9, &[("nothing", &[])]),
        ],
        vec![
            document(8, &[("zeros", &[0, 0])]),
            document(9, &[("one", &[1])]),
        ],
        vec![
            document(8, &[("one", &[u64::MAX])]),
            document(9, &[("other", &[])]),
        ],
    ] {
        texts(&picture(&documents));
    }
}

#[test]
fn a_sweep_is_drawn_against_its_parameter() {
    let points = [8, 64].map(|cpus| document(cpus, &[("one", &[100, 200]), ("two", &[300])]));
    let drawn = picture(&points);
    let texts = texts(&drawn);
    for said in [
        "memcg-flush: cost against cpus",
        "read_latency, p99",
        "worker_runtime, mean",
        "64",
    ] {
        assert!(texts.iter().any(|text| text == said), "{said}: {texts:?}");
    }
    // Two documents with two lines, and two plots of the sweep with two lines; each with its sample.
    assert_eq!(paths(&drawn), 16);
}

#[test]
fn what_was_published_is_marked() {
    let mut document = document(384, &[("one", &[100, 200])]);
    let published = [
        ("reads_under_100us", 0.988),
        ("reads_100us_to_1ms", 0.0109),
        ("reads_10ms_to_100ms", 0.1),
    ];
    document.verdicts = published
        .map(|(metric, published)| Verdict {
            variant: "one".to_owned(),
            metric: metric.to_owned(),
            row: Row::Prediction,
            basis: Basis::OneModel,
            load: String::new(),
            published,
            rule: Rule::Share { tolerance: 0.02 },
            measured: 0.9,
            lo: 0.9,
            hi: 0.9,
            verdict: None,
            reason: String::new(),
        })
        .to_vec();
    let drawn = picture(&[document]);
    assert!(texts(&drawn).iter().any(|text| text == "PUBLISHED"));
    // The line and two diamonds, since the third share is not known, each with its sample.
    assert_eq!(paths(&drawn), 2 + 2 + 1);
}

#[test]
fn herds_have_a_panel_a_variant() {
    let document = samples::vmstat_spread(72, 18);
    let drawn = picture(std::slice::from_ref(&document));
    let all = texts(&drawn);
    for said in [
        "When each CPU's upkeep fired, in one second",
        "herd max 18",
        "herd max 1",
        "71",
        "500 ms",
        "CPUs on one tick, as each CPU sees it",
        "herd at most (simulated)",
        "p50 18, p99 18",
    ] {
        assert!(all.iter().any(|text| text == said), "{said}: {all:?}");
    }
    // As many specks as CPUs, each variant at as many places as it has instants.
    let xml = Xml::parse(&drawn).expect("well-formed XML");
    let lines = xml.descendants().filter_map(|node| node.attribute("d"));
    let specks: Vec<Vec<&str>> = lines
        .filter(|commands| commands.contains("h0"))
        .map(|commands| commands.split('M').skip(1).collect())
        .collect();
    let instants = specks.iter().map(|points| {
        let across = points.iter().filter_map(|point| point.split(' ').next());
        across.collect::<std::collections::BTreeSet<_>>().len()
    });
    assert_eq!(instants.collect::<Vec<_>>(), [4, 72]);
    assert!(specks.iter().all(|points| points.len() == 72));
}

#[test]
fn timelines_without_points_or_beyond_their_time_are_no_trouble() {
    use bursar_lab::measure::Timeline;
    for points in [vec![], vec![(0, u64::MAX)], vec![(5, 0)]] {
        let timeline = Metric::Timeline(Timeline::of(1, points));
        let variant = samples::variant("one", &[("herd_timeline", timeline)]);
        let document = samples::document("vmstat-spread", 1, vec![variant]);
        texts(&picture(std::slice::from_ref(&document)));
        crate::table::run(&[document], crate::form::Form::Markdown, false);
    }
}

#[test]
fn counts_are_drawn_on_axes_of_counts() {
    let drawn = picture(&[1, 64].map(samples::pcp_batch_free));
    let texts = texts(&drawn);
    for said in [
        "Pages freed under one hold of the zone's lock",
        "pages_per_hold at most (simulated)",
        "1,000",
        "p50 63, p99 2,016",
        "pcp-batch-free: cost against batch_pages",
        "bystander_wait, p99",
        "ops_per_second",
        "1,000/s to 1,000/s",
    ] {
        assert!(texts.iter().any(|text| text == said), "{said}: {texts:?}");
    }
}

#[test]
fn the_same_documents_give_the_same_bytes() {
    let points = [8, 64].map(|cpus| document(cpus, &[("one", &[100, 200])]));
    assert_eq!(picture(&points), picture(&points));
}
