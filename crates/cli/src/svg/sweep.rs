//! A figure against a parameter that several documents differ in: what more CPUs, or more readers, cost.

use std::collections::BTreeMap;

use bursar_lab::document::Document;
use bursar_lab::machine_info::MachineKind;
use bursar_lab::measure::Unit;

use super::axis::{LogAxis, Mark};
use super::canvas::{Anchor, Canvas, px};
use super::panel::{Entry, Frame, Panel, Sign, paragraph};
use super::style::{LABEL, MARGIN, TITLE, stroke};
use super::{of_figures, origin};
use crate::points::settings;
use crate::units::in_unit;
use crate::view::{self, Of};

/// Documents that differ in one number, in ascending order of it.
pub struct Sweep<'a> {
    key: String,
    /// What the others of the experiment differ in besides.
    rest: String,
    points: Vec<(f64, &'a Document)>,
}

impl Sweep<'_> {
    /// What it is of.
    pub fn title(&self) -> String {
        let experiment = &self.points[0].1.experiment;
        let rest = match self.rest.as_str() {
            "" => String::new(),
            rest => format!(", {rest}"),
        };
        format!("{experiment}: cost against {}{rest}", self.key)
    }
}

/// For each experiment and each number that its documents differ in, those that differ in nothing else.
pub fn sweeps(documents: &[Document]) -> Vec<Sweep<'_>> {
    let mut experiments: Vec<&str> = documents.iter().map(|it| it.experiment.as_str()).collect();
    experiments.dedup();
    let of = |experiment: &str| -> Vec<_> {
        let mine = documents.iter().filter(|it| it.experiment == experiment);
        mine.map(|document| (document, settings(document).into_iter().collect()))
            .collect()
    };
    let all = experiments.into_iter().map(of);
    all.flat_map(|documents| of_experiment(&documents))
        .collect()
}

type Settings = BTreeMap<String, String>;

fn of_experiment<'a>(documents: &[(&'a Document, Settings)]) -> Vec<Sweep<'a>> {
    let keys = documents.iter().flat_map(|(_, settings)| settings.keys());
    let differs = |key: &&String| {
        let mut values = documents.iter().map(|(_, settings)| settings.get(*key));
        let first = values.next();
        *key != "seed" && values.any(|value| Some(value) != first)
    };
    let mut differing: Vec<&String> = keys.filter(differs).collect();
    differing.sort();
    differing.dedup();
    differing.retain(|key| !follows_cpus(key, documents));
    let mut sweeps = Vec::new();
    for key in &differing {
        let mut groups: BTreeMap<String, Vec<(f64, &Document)>> = BTreeMap::new();
        for (document, settings) in documents {
            let number = settings.get(*key).and_then(|value| value.parse().ok());
            let others = differing.iter().filter(|other| *other != key);
            let rest: Vec<_> = others
                .filter_map(|other| Some(format!("{other}={}", settings.get(*other)?)))
                .collect();
            // On a logarithmic axis there is no place for others.
            if let Some(number) = number.filter(|number| *number > 0.0) {
                groups
                    .entry(rest.join(" "))
                    .or_default()
                    .push((number, document));
            }
        }
        for (rest, mut points) in groups {
            points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
            if points.len() > 1 {
                let key = (*key).clone();
                sweeps.push(Sweep { key, rest, points });
            }
        }
    }
    sweeps
}

/// Whether a key of the machine is what it is because of the number of CPUs: a machine of four has no clusters of sixteen.
fn follows_cpus(key: &str, documents: &[(&Document, Settings)]) -> bool {
    const CPUS: &str = "cpus";
    let is_parameter = |(document, _): &(&Document, _)| document.parameters.contains_key(key);
    if key == CPUS || documents.iter().any(is_parameter) {
        return false;
    }
    let mut values: BTreeMap<&str, Option<&String>> = BTreeMap::new();
    documents.iter().all(|(_, settings)| {
        let (cpus, value) = (settings.get(CPUS), settings.get(key));
        cpus.is_some_and(|cpus| *values.entry(cpus).or_insert(value) == value)
    })
}

/// Draws a plot for each figure that the documents have.
pub fn draw(canvas: &mut Canvas, sweep: &Sweep<'_>) {
    let first = sweep.points[0].1;
    canvas.top += 34.0;
    canvas.text((MARGIN, canvas.top), Anchor::Start, TITLE, &sweep.title());
    canvas.top += 19.0;
    let kind = match first.machine.kind() {
        MachineKind::Host => "HOST (real threads, real time)",
        MachineKind::Sim => "SIMULATED (virtual time)",
    };
    canvas.text((MARGIN, canvas.top), Anchor::Start, LABEL, kind);
    paragraph(
        canvas,
        &format!("the first of {}: {}", sweep.points.len(), origin(first)),
    );
    for (metric, of) in view::of(first).sweeps {
        plot(canvas, sweep, metric, *of);
    }
}

/// A variant's place among them, its name, and its figures by parameter.
type Line<'a> = (usize, &'a str, Vec<(f64, f64)>);

fn plot(canvas: &mut Canvas, sweep: &Sweep<'_>, metric: &str, of: Of) {
    let mut unit = Unit::Ns;
    let mut variants: Vec<&str> = Vec::new();
    for variant in sweep.points.iter().flat_map(|(_, it)| &it.variants) {
        if !variants.contains(&variant.name.as_str()) {
            variants.push(&variant.name);
        }
    }
    let mut value = |document: &Document, variant: &str| {
        let mut results = document.variants.iter();
        let result = results.find(|result| result.name == variant)?;
        let (value, of_metric) = of.get(result, metric)?;
        unit = of_metric;
        // On a logarithmic axis there is no place for others.
        (value > 0.0).then_some(value)
    };
    let lines: Vec<Line<'_>> = variants
        .into_iter()
        .enumerate()
        .map(|(place, variant)| {
            let points = sweep.points.iter();
            let known = points.filter_map(|(at, it)| Some((*at, value(it, variant)?)));
            (place, variant, known.collect())
        })
        .filter(|(.., points): &Line<'_>| !points.is_empty())
        .collect();
    let places: Vec<f64> = sweep.points.iter().map(|(at, _)| *at).collect();
    let values = lines
        .iter()
        .flat_map(|(.., points)| points)
        .map(|(_, value)| *value);
    let (Some(across), Some(up)) = (LogAxis::tight(&places), LogAxis::of(values)) else {
        return;
    };
    let mut across_marks: Vec<Mark> = places
        .iter()
        .map(|at| Mark {
            place: across.place(*at),
            label: at.to_string(),
        })
        .collect();
    across_marks.dedup();
    let entry = |(place, name, points): &Line<'_>| Entry {
        sign: Sign::Line(stroke(*place)),
        name: (*name).to_owned(),
        figures: ends(points, unit),
    };
    let kind = sweep.points[0].1.machine.kind();
    let (title, up_name) = match of.name() {
        "" => (metric.to_owned(), metric),
        name => (format!("{metric}, {name}"), name),
    };
    let frame = Frame {
        title: &title,
        across: &sweep.key,
        up: &format!("{up_name}{}", of_figures(kind, unit)),
        across_marks,
        up_marks: up.marks(unit),
        legend: lines.iter().map(entry).collect(),
    };
    let panel = Panel::draw(canvas, &frame);
    for (place, _, points) in lines {
        let points = points
            .iter()
            .map(|(at, value)| panel.at(across.place(*at), up.place(*value)));
        let points: Vec<_> = points.collect();
        let steps = points.iter().map(|(x, y)| format!("{} {}", px(*x), px(*y)));
        let path = format!("M{}", steps.collect::<Vec<_>>().join("L"));
        canvas.path(&path, stroke(place));
        for point in points {
            canvas.dot(point, stroke(place).color);
        }
    }
}

/// The figures at both ends.
fn ends(points: &[(f64, f64)], unit: Unit) -> String {
    let shown = |(_, value): &(f64, f64)| in_unit(*value, unit);
    match points {
        [] => String::new(),
        [only] => shown(only),
        [first, .., last] => format!("{} to {}", shown(first), shown(last)),
    }
}
