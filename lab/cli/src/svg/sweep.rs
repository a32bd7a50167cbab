//! A figure against a parameter that several documents differ in: the cost of more CPUs, or of more readers.

use std::collections::BTreeMap;

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::machine_info::MachineKind;
use bursar_experiments::measure::Unit;
use bursar_experiments::metrics::{MetricInfo, Of};

use super::axis::{LogAxis, Mark};
use super::cast::{Part, of_variants};
use super::figure::{Drawing, Figure, of_figures};
use super::lines::{Line, Lines, Shape};
use crate::points::settings;
use crate::units::in_unit;
use crate::view;

/// Documents that differ in one number, in ascending order of it.
pub struct Sweep<'a> {
    key: String,
    /// Other parameters that differ in the experiment, with their values here.
    rest: String,
    points: Vec<(f64, &'a Document)>,
}

impl Sweep<'_> {
    /// The experiment that its documents are of.
    pub fn experiment(&self) -> &str {
        &self.points[0].1.experiment
    }

    /// The parameter, and what else differs.
    pub fn subject(&self) -> String {
        let rest = match self.rest.as_str() {
            "" => String::new(),
            rest => format!(", {rest}"),
        };
        format!("cost against {}{rest}", self.key)
    }
}

/// Sweeps: for each experiment and each number in which its documents differ, the documents that differ in nothing else.
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

/// The kind of a sweep's figures.
fn kind(sweep: &Sweep<'_>) -> MachineKind {
    sweep.points[0].1.machine.kind()
}

/// A figure for each quantity that the documents have.
pub fn figures<'a>(sweep: &Sweep<'a>) -> Vec<Figure<'a>> {
    let first = sweep.points[0].1;
    let of = |info: &'static MetricInfo| info.sweeps.iter().map(|of| (&info.name, of));
    let quantities = view::of(first).metrics().iter().flat_map(of);
    let figures = quantities.filter_map(|(metric, of)| {
        let title = view::metric_title(metric);
        let name = match of.name() {
            "" => title,
            name => format!("{title}, {name}"),
        };
        Some(Figure {
            title: name,
            is_answer: false,
            reading: format!(
                "How to read: each point is one run, with its {} below it. On both scales the same distance is the same factor.",
                sweep.key
            ),
            drawing: Drawing::Lines(lines(sweep, metric, *of)?),
        })
    });
    figures.collect()
}

fn lines<'a>(sweep: &Sweep<'a>, metric: &str, of: Of) -> Option<Lines<'a>> {
    let mut unit = Unit::Ns;
    let mut variants: Vec<&VariantResult> = Vec::new();
    for variant in sweep.points.iter().flat_map(|(_, it)| &it.variants) {
        if !variants.iter().any(|known| known.name == variant.name) {
            variants.push(variant);
        }
    }
    let mut value = |document: &Document, variant: &str| {
        let mut results = document.variants.iter();
        let result = results.find(|result| result.name == variant)?;
        let (value, of_metric) = result.number(metric, of)?;
        unit = of_metric;
        // On a logarithmic axis there is no place for others.
        (value > 0.0).then_some(value)
    };
    let experiment = &sweep.points[0].1.experiment;
    let known: Vec<(Part<'a>, Vec<(f64, f64)>)> = of_variants(experiment, variants.into_iter())
        .into_iter()
        .map(|part| {
            let points = sweep.points.iter();
            let known = points.filter_map(|(at, it)| Some((*at, value(it, &part.result.name)?)));
            (part, known.collect())
        })
        .filter(|(_, points): &(_, Vec<_>)| !points.is_empty())
        .collect();
    let places: Vec<f64> = sweep.points.iter().map(|(at, _)| *at).collect();
    let values = known.iter().flat_map(|(_, points)| points);
    let across = LogAxis::tight(&places)?;
    let up = LogAxis::of(values.map(|(_, value)| *value))?;
    let mut across_marks: Vec<Mark> = places
        .iter()
        .map(|at| Mark {
            place: across.place(*at),
            label: at.to_string(),
        })
        .collect();
    across_marks.dedup();
    let line = |(part, points): (Part<'a>, Vec<(f64, f64)>)| Line {
        part,
        figures: ends(&points, unit),
        points: points
            .into_iter()
            .map(|(at, value)| (across.place(at), up.place(value)))
            .collect(),
        published: Vec::new(),
    };
    let up_name = match of.name() {
        "" => view::metric_title(metric),
        name => name.to_owned(),
    };
    Some(Lines {
        across: sweep.key.clone(),
        up: format!("{up_name}{}", of_figures(kind(sweep), unit)),
        across_marks,
        up_marks: up.marks(unit),
        shape: Shape::Straight,
        lines: known.into_iter().map(line).collect(),
    })
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
