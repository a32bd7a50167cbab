use bursar_experiments::machine_info::{HostInfo, MachineInfo};
use bursar_experiments::measure::{Metric, Unit};
use bursar_experiments::metrics::memcg_flush::*;
use bursar_experiments::metrics::vmstat_spread::*;
use bursar_experiments::verdict::{Rule, Verdict};
use roxmltree::Document as Xml;

use super::*;
use crate::samples;

/// A name that ends elements, attributes and documents, and has what XML cannot.
const HOSTILE: &str = "<script>alert('x')</script> & \"]]>\u{0}\u{1b}[31m -->";

fn document(cpus: usize, variants: &[(&str, &[u64])]) -> Document {
    let variant = |(name, values): &(&str, &[u64])| {
        let times = |values: &[u64]| samples::many(Unit::Ns, values);
        let mean = |values: &[u64]| {
            let sum: f64 = values.iter().map(|value| *value as f64).sum();
            sum / values.len().max(1) as f64
        };
        let metrics = [
            (READ_LATENCY.name, times(values)),
            (STALENESS.name, times(&[0, 0, 0])),
            (PAGE_NS.name, samples::figure(Unit::Ns, mean(values))),
        ];
        samples::variant(name, &metrics)
    };
    samples::document("memcg-flush", cpus, variants.iter().map(variant).collect())
}

/// All pictures of some documents, and of the sweeps over them.
fn all_figures(documents: &[Document]) -> Vec<Figure> {
    let sweeps = sweeps(documents);
    let of_sweeps = sweeps.iter().flat_map(figures_of_sweep);
    documents
        .iter()
        .flat_map(figures)
        .chain(of_sweeps)
        .collect()
}

fn picture(documents: &[Document]) -> String {
    let all = all_figures(documents).into_iter();
    let drawn: String = all.map(|figure| figure.drawing).collect();
    format!("<all>{drawn}</all>")
}

fn texts(xml: &str) -> Vec<String> {
    let xml = Xml::parse(xml).expect("well-formed XML");
    let texts = xml.descendants().filter(|node| node.has_tag_name("text"));
    texts
        .filter_map(|node| node.text())
        .map(str::to_owned)
        .collect()
}

/// The words of the pictures, and those of the page around them.
fn said(documents: &[Document]) -> Vec<String> {
    let mut said = texts(&picture(documents));
    for figure in all_figures(documents) {
        let entries = figure.legend.into_iter();
        said.extend(entries.flat_map(|entry| [entry.name, entry.figures]));
        said.push(figure.title);
    }
    said
}

fn assert_said(documents: &[Document], expected: &[&str]) {
    let all = said(documents);
    for said in expected {
        assert!(all.iter().any(|text| text == said), "{said}: {all:?}");
    }
}

/// The commands of each path that begin so.
fn paths(xml: &str, is_one: impl Fn(&str) -> bool) -> Vec<String> {
    let xml = Xml::parse(xml).expect("well-formed XML");
    let commands = xml.descendants().filter_map(|node| node.attribute("d"));
    commands
        .filter(|it| is_one(it))
        .map(str::to_owned)
        .collect()
}

/// Lines, points and diamonds.
fn marks(documents: &[Document]) -> [usize; 3] {
    let drawn = picture(documents);
    let with = |command: &str| paths(&drawn, |it| it.contains(command)).len();
    [with("H"), with("h0"), with("Z")]
}

#[test]
fn each_variant_has_a_line_and_a_name() {
    let names = ["one", "two", "three"];
    let values: &[u64] = &[100, 2_000, 30_000];
    let documents = [document(8, &names.map(|name| (name, values)))];
    assert_said(&documents, &names);
    assert_said(&documents, &["How long reads took", "50 %", "10 us"]);
    // The lines' ends, and the points of the shares.
    assert_eq!(marks(&documents), [3, 3 + 3, 0]);
}

#[test]
fn hostile_names_are_texts() {
    let variants = [(HOSTILE, &[1, 2][..]); 2];
    let drawn = picture(&[document(8, &variants)]);
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
    let expected = ["read latency, p99", "page time", "one", "two", "8", "64"];
    assert_said(&points, &expected);
    // Two documents with two lines and two shares, and two figures of the sweep with four points.
    assert_eq!(marks(&points), [4, 8 + 8, 0]);
    // Another cost model is no point of it.
    let mut points = points;
    let MachineInfo::Sim(sim) = &mut points[1].machine else {
        unreachable!("it is simulated")
    };
    sim.model.push('2');
    assert_eq!(sweeps(&points).len(), 0);
}

#[test]
fn a_sweep_has_the_results_of_one_host() {
    let host = |model: &str| {
        MachineInfo::Host(HostInfo {
            cpus: 2,
            nodes: 1,
            model: model.to_owned(),
            system: "Linux".to_owned(),
            backend: "rseq".to_owned(),
        })
    };
    let mut points = [8, 64].map(|readers: i64| {
        let mut point = document(2, &[("one", &[100, 200])]);
        point.machine = host("one");
        point
            .parameters
            .insert("readers".to_owned(), readers.into());
        point
    });
    assert_eq!(sweeps(&points).len(), 1);
    points[1].machine = host("another");
    assert_eq!(sweeps(&points).len(), 0);
}

#[test]
fn what_was_published_is_marked() {
    let mut document = document(384, &[("one", &[100, 200])]);
    let published = [
        (READS_UNDER_100US.name, 0.988),
        (READS_100US_TO_1MS.name, 0.0109),
        (READS_10MS_TO_100MS.name, 0.1),
    ];
    document.verdicts = published
        .map(|(metric, published)| Verdict {
            published,
            rule: Rule::Share { tolerance: 0.02 },
            ..samples::verdict("one", metric, "")
        })
        .to_vec();
    let documents = [document];
    assert_said(&documents, &["PUBLISHED"]);
    // Two diamonds, since the third share is not known.
    assert_eq!(marks(&documents), [1, 2, 2]);
}

#[test]
fn herds_have_a_panel_a_variant() {
    let documents = [samples::vmstat_spread(72, 18)];
    let expected = [
        "When each CPU's upkeep fired, in one second",
        "max at once 18, ticks 4.00/s",
        "max at once 1, ticks 72.0/s",
        "CPU 71",
        "400 ms",
        "virtual time (simulated)",
        "CPUs on one tick, as each CPU sees it",
        "CPUs on one tick at most (simulated)",
        "p50 18, p99 18",
    ];
    assert_said(&documents, &expected);
    // As many specks as CPUs, each variant at as many places as it has instants.
    let specks = paths(&picture(&documents), |it| it.matches('M').count() == 72);
    let instants = specks.iter().map(|points| {
        let across = points
            .split('M')
            .filter_map(|point| point.split(' ').next());
        across.collect::<std::collections::BTreeSet<_>>().len() - 1
    });
    assert_eq!(instants.collect::<Vec<_>>(), [4, 72]);
}

#[test]
fn timelines_without_points_or_beyond_their_time_are_no_trouble() {
    use bursar_experiments::measure::Timeline;
    for points in [vec![], vec![(0, u64::MAX)], vec![(5, 0)]] {
        let timeline = Metric::Timeline(Timeline::of(1, points));
        let variant = samples::variant("one", &[(HERD_TIMELINE.name, timeline)]);
        let document = samples::document("vmstat-spread", 1, vec![variant]);
        texts(&picture(std::slice::from_ref(&document)));
        crate::table::run(&[document], bursar_term::markup::Markup::Html, false);
    }
}

#[test]
fn counts_are_drawn_on_axes_of_counts() {
    let expected = [
        "Pages freed under one hold of the zone's lock",
        "pages a hold at most (simulated)",
        "1,000",
        "p50 63, p99 2,016",
        "bystanders' wait, p99",
        "ops per second",
        "1,000/s",
    ];
    assert_said(&[1, 64].map(samples::pcp_batch_free), &expected);
}

#[test]
fn the_same_documents_give_the_same_bytes() {
    let points = [8, 64].map(|cpus| document(cpus, &[("one", &[100, 200])]));
    assert_eq!(picture(&points), picture(&points));
}

/// Left, top, right and bottom of a text, which are no nearer to each other than those of any font that is used.
fn edges(node: roxmltree::Node<'_, '_>) -> (f64, f64, f64, f64) {
    let number = |name: &str| -> f64 {
        let value = node.attribute(name).expect(name);
        value.parse().expect("a number")
    };
    let look = style::Type {
        size: number("font-size"),
        color: style::INK,
        bold: node.attribute("font-weight") == Some("bold"),
    };
    let width = canvas::text_width(node.text().unwrap_or_default(), look);
    let left = match node.attribute("text-anchor") {
        Some("middle") => number("x") - width / 2.0,
        Some("end") => number("x") - width,
        _ => number("x"),
    };
    let base = number("y");
    (
        left,
        base - 0.75 * look.size,
        left + width,
        base + 0.2 * look.size,
    )
}

fn assert_texts_are_apart(drawn: &str) {
    let xml = Xml::parse(drawn).expect("well-formed XML");
    let width = xml.root_element().attribute("width").expect("a width");
    let width: f64 = width.parse().expect("a number");
    let texts = xml.descendants().filter(|node| node.has_tag_name("text"));
    let texts: Vec<_> = texts.map(|node| (node, edges(node))).collect();
    for (place, (one, (left, top, right, bottom))) in texts.iter().enumerate() {
        let said = one.text();
        assert!(*left >= 0.0 && *right <= width, "{said:?} leaves the sheet");
        for (other, (their_left, their_top, their_right, their_bottom)) in &texts[place + 1..] {
            let is_apart = right <= their_left
                || their_right <= left
                || bottom <= their_top
                || their_bottom <= top;
            assert!(is_apart, "{said:?} touches {:?}", other.text());
        }
    }
}

/// Documents with long tails, long names, few and many variants, and waits that are 0.
fn various() -> Vec<Document> {
    let values: Vec<u64> = (0..300_000).map(|value| 900 + value % 997).collect();
    let ages: Vec<u64> = (0..1_000).map(|value| value / 2 * 100_000).collect();
    let names = [
        "combining",
        "unified",
        "per-group-multiplexed",
        "direct",
        "coalesced",
        "mutex-unbounded",
        "eager",
    ];
    let of = |names: &[&str], cpus| {
        let variants = names.iter().map(|name| {
            let metrics = [
                (READ_LATENCY.name, samples::many(Unit::Ns, &values)),
                (STALENESS.name, samples::many(Unit::Ns, &ages)),
            ];
            samples::variant(name, &metrics)
        });
        samples::document("memcg-flush", cpus, variants.collect())
    };
    vec![
        of(&names[..3], 8),
        of(&names, 16),
        samples::vmstat_spread(72, 18),
        samples::pcp_batch_free(0),
        samples::pcp_batch_free(63),
    ]
}

#[test]
fn no_text_touches_another() {
    let documents = various();
    let figures = all_figures(&documents);
    assert!(figures.len() > 10);
    for figure in figures {
        assert_texts_are_apart(&figure.drawing);
    }
}

#[test]
fn every_colour_has_one_for_the_dark() {
    let drawn = picture(&various());
    let xml = Xml::parse(&drawn).expect("well-formed XML");
    for node in xml.descendants() {
        for name in ["fill", "stroke"] {
            let color = node.attribute(name).unwrap_or("none");
            let is_known = color == "none" || DARK.iter().any(|(light, _)| *light == color);
            assert!(is_known, "{color}");
        }
    }
}

#[test]
fn of_many_variants_bursars_and_the_kernels_have_colours() {
    let documents = various();
    let names = |document: &Document| -> Vec<String> {
        let figures = figures(document).into_iter();
        let legends = figures.flat_map(|figure| figure.legend);
        legends.take(3).map(|entry| entry.name).collect()
    };
    let [own, kernels] = ["Bursar (combining)", "Linux 6.5 (unified)"];
    assert_eq!(
        names(&documents[0]),
        [own, kernels, "per-group-multiplexed"]
    );
    assert_eq!(names(&documents[1]), [own, kernels, "each of the others"]);
}

#[test]
fn zeros_are_counted_and_not_drawn() {
    let documents = various();
    let figures = figures(&documents[0]);
    let ages = figures.iter().find(|it| it.title.starts_with("Age of"));
    // Half of the ages are no less than 25 ms, after the two that are 0.
    let legend = &ages.expect("a figure").legend;
    assert_eq!(legend[0].figures, "p50 25.0 ms, p99 49.5 ms");
    let missed = texts(&figures[0].drawing);
    assert!(missed.contains(&"99.8 %".to_owned()), "{missed:?}");
}
