//! A figure against a parameter that several documents differ in: the cost of more CPUs, or of more readers.

use std::collections::BTreeMap;

use bursar_experiments::document::{Document, VariantResult};
use bursar_experiments::machine_info::MachineInfo;
use bursar_experiments::measure::Unit;
use bursar_experiments::metrics::{MetricInfo, Of};

use super::axis::Axis;
use super::cast::of_variants;
use super::points::{self, Row};
use super::{Figure, of_figures};
use crate::points::settings;
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

/// Sweeps: for each experiment and each number in which its documents differ, the documents that differ in nothing else. Those of
/// other hosts or cost models are not points of one sweep.
pub fn sweeps(documents: &[Document]) -> Vec<Sweep<'_>> {
    let origin = |it: &Document| match &it.machine {
        MachineInfo::Host(_) => (it.experiment.clone(), it.machine.to_string()),
        MachineInfo::Sim(sim) => (it.experiment.clone(), sim.model.clone()),
    };
    let mut origins: Vec<_> = Vec::new();
    for document in documents {
        if !origins.contains(&origin(document)) {
            origins.push(origin(document));
        }
    }
    let of = |of_these: (String, String)| -> Vec<_> {
        let mine = documents.iter().filter(|it| origin(it) == of_these);
        mine.map(|document| (document, settings(document).into_iter().collect()))
            .collect()
    };
    let all = origins.into_iter().map(of);
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

/// A figure for each quantity that the documents have.
pub fn figures(sweep: &Sweep<'_>) -> Vec<Figure> {
    let first = sweep.points[0].1;
    let of = |info: &'static MetricInfo| info.sweeps.iter().map(|of| (info.name, *of));
    let quantities = view::of(first).metrics().iter().flat_map(of);
    let figures = quantities.filter_map(|(metric, of)| figure(sweep, metric, of));
    figures.collect()
}

fn figure(sweep: &Sweep<'_>, metric: &str, of: Of) -> Option<Figure> {
    let mut variants: Vec<&VariantResult> = Vec::new();
    for variant in sweep.points.iter().flat_map(|(_, it)| &it.variants) {
        if !variants.iter().any(|known| known.name == variant.name) {
            variants.push(variant);
        }
    }
    let mut unit = Unit::Ns;
    let mut rows = Vec::new();
    let first = sweep.points[0].1;
    for part in of_variants(&first.experiment, variants.into_iter()) {
        for (at, document) in &sweep.points {
            let mut results = document.variants.iter();
            let result = results.find(|result| result.name == part.result.name);
            if let Some((value, of_metric)) = result.and_then(|it| it.number(metric, of)) {
                unit = of_metric;
                let range = result.and_then(|it| it.range(metric));
                rows.push(Row {
                    part,
                    at: at.to_string(),
                    value,
                    range: range.unwrap_or((value, value)),
                });
            }
        }
    }
    let ends = rows
        .iter()
        .flat_map(|row| [row.value, row.range.0, row.range.1]);
    let axis = Axis::log(ends)?;
    let title = match of.name() {
        "" => view::metric_title(metric),
        name => format!("{}, {name}", view::metric_title(metric)),
    };
    let name = format!("{title}{}", of_figures(first, unit));
    Some(Figure {
        reading: format!(
            "How to read: each point is one run, with its {} before it. The same distance is the same factor. A line goes from the least seed to the most.",
            sweep.key
        ),
        is_answer: false,
        drawing: points::draw(&title, &rows, (axis, unit), &name),
        legend: Vec::new(),
        title,
    })
}
