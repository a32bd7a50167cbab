//! `bursar-lab list`: the experiments, and what can be set of each, from what the program has in it.

use std::fmt::Write;
use std::process::ExitCode;
use std::thread;

use bursar_experiments::describe;
use bursar_experiments::experiment::Load;
use serde::Serialize;

use crate::args::List;
use crate::format;
use crate::jobs::{self, Batch};
use crate::run::{self, Wanted};
use crate::units::long_time;
use bursar_term::failure::Failure;
use bursar_term::markup::Markup;
use bursar_term::options::Global;
use bursar_term::output::Output;
use bursar_term::width::{reflowed, wrapped};

/// An experiment.
#[derive(Serialize)]
struct Described {
    schema: u32,
    name: String,
    title: String,
    /// The discussion that it is about: its subject, author, date and address.
    thread: String,
    about: String,
    machine: String,
    loads: Vec<DescribedLoad>,
    variants: Vec<Variant>,
    parameters: Vec<Parameter>,
}

#[derive(Serialize)]
struct DescribedLoad {
    name: String,
    about: String,
    /// Whether it runs where no load is named.
    usual: bool,
    /// About how long one seed takes on the experiment's own machine, seconds of one CPU: in full, and in the quick form.
    cpu_seconds: f64,
    quick_cpu_seconds: f64,
}

#[derive(Serialize)]
struct Variant {
    name: String,
    about: String,
}

#[derive(Serialize)]
struct Parameter {
    name: String,
    default: String,
    least: Option<u64>,
    most: Option<u64>,
    about: String,
}

/// Lists and writes.
pub fn list(list: &List, global: &Global) -> Result<ExitCode, Failure> {
    let is_json = global.is_json()?;
    let all = match &list.experiment {
        Some(name) => vec![described(name)?],
        None => bursar_experiments::names()
            .map(described)
            .collect::<Result<_, _>>()?,
    };
    let output = Output::open(global)?;
    let people = |form| match &list.experiment {
        Some(_) => details(&all[0], form),
        None => overview(&all, form),
    };
    let text = match (is_json, &list.experiment) {
        (false, _) => people(output.terminal()),
        (true, Some(_)) => format::json(&all[0])?,
        (true, None) => format::json(&all)?,
    };
    output.write(&text, people)?;
    Ok(ExitCode::SUCCESS)
}

fn described(name: &str) -> Result<Described, Failure> {
    let experiment = bursar_experiments::experiment_named(name).map_err(Failure::usage)?;
    let usual = usual_loads(name)?;
    let load = |load: &Load| {
        let set = [format!("load={}", load.name)];
        let cpu_seconds = |is_quick| -> Result<f64, Failure> {
            let batch = run::batch(name, &Wanted::usual(&set, is_quick))?;
            Ok(jobs::cpu_seconds(&[batch]))
        };
        Ok(DescribedLoad {
            name: load.name.clone(),
            about: load.about.clone(),
            usual: usual.contains(&load.name),
            cpu_seconds: cpu_seconds(false)?,
            quick_cpu_seconds: cpu_seconds(true)?,
        })
    };
    let variant = |variant: &String| {
        let about = describe::variant(name, variant).map_err(Failure::usage)?;
        Ok(Variant {
            name: variant.clone(),
            about: about.to_owned(),
        })
    };
    let parameters = describe::parameters(name).map_err(Failure::usage)?;
    let parameters = parameters.into_iter().map(|info| Parameter {
        name: info.name,
        default: info.default,
        least: info.range.map(|(least, _)| least),
        most: info.range.map(|(_, most)| most),
        about: info.about,
    });
    Ok(Described {
        schema: 1,
        name: name.to_owned(),
        loads: experiment
            .loads
            .iter()
            .map(load)
            .collect::<Result<_, Failure>>()?,
        variants: experiment
            .variants
            .iter()
            .map(variant)
            .collect::<Result<_, _>>()?,
        parameters: parameters.collect(),
        title: experiment.title,
        thread: experiment.thread,
        about: experiment.about.trim().to_owned(),
        machine: experiment.machine,
    })
}

/// The loads that run where none is named.
fn usual_loads(name: &str) -> Result<Vec<String>, Failure> {
    let Batch { plan, .. } = run::batch(name, &Wanted::usual(&[], false))?;
    let loads = plan.points().map(|point| point.load.clone());
    Ok(loads.collect())
}

fn overview(all: &[Described], form: Markup) -> String {
    let mut text = form.heading("Experiments");
    for one in all {
        let usual = || one.loads.iter().filter(|load| load.usual);
        let seconds = usual().map(|load| load.cpu_seconds).sum();
        let quick = usual().map(|load| load.quick_cpu_seconds).sum();
        let about = format!("{} ({})", one.title, times(seconds, quick));
        text.push_str(&entry(&one.name, &about, form));
    }
    let more = "`bursar-lab list EXPERIMENT` lists loads, variants and parameters. `bursar-lab run EXPERIMENT` runs it. Times are for one \
                seed on this machine.";
    text + "\n" + &reflowed(more, Some(width(form)))
}

fn details(one: &Described, form: Markup) -> String {
    let mut text = form.heading(&format!("{}: {}", one.name, one.title));
    let about = one.about.split_whitespace().collect::<Vec<_>>().join(" ");
    text.push_str(&reflowed(&about, Some(width(form))));
    let thread = wrapped(&one.thread, Some(width(form)), "  ", "  ");
    let _ = write!(text, "\nIts thread:\n{thread}");
    let _ = write!(text, "\nIts machine:\n  {}\n\n", one.machine);
    text.push_str(
        &form.subheading("Loads (-s load=NAME,NAME), with the time of one seed on this machine"),
    );
    for load in &one.loads {
        let times = times(load.cpu_seconds, load.quick_cpu_seconds);
        let usual = if load.usual { "; runs by default" } else { "" };
        text.push_str(&entry(
            &load.name,
            &format!("{} ({times}{usual})", load.about),
            form,
        ));
    }
    text.push('\n');
    text.push_str(&form.subheading("Variants (-s variants=NAME,NAME)"));
    for variant in &one.variants {
        text.push_str(&entry(&variant.name, &variant.about, form));
    }
    text.push('\n');
    text.push_str(&form.subheading("Parameters (-s NAME=VALUE), with their defaults and ranges"));
    for parameter in &one.parameters {
        let range = match (parameter.least, parameter.most) {
            (Some(least), Some(most)) => format!(" ({least} to {most})"),
            _ => String::new(),
        };
        let name = format!("{} = {}{range}", parameter.name, parameter.default);
        text.push_str(&entry(&name, &parameter.about, form));
    }
    text
}

/// Time that something takes here, in full and in the quick form.
fn times(cpu_seconds: f64, quick_cpu_seconds: f64) -> String {
    let cpus = thread::available_parallelism().map_or(1, usize::from) as f64;
    let [full, quick] = [cpu_seconds, quick_cpu_seconds].map(|it| long_time(it / cpus));
    format!("about {full}, quick {quick}")
}

/// A name, and below it what it is.
fn entry(name: &str, about: &str, form: Markup) -> String {
    const INDENT: &str = "      ";
    match form {
        Markup::Terminal { .. } => {
            form.item(name) + &wrapped(about, Some(width(form)), INDENT, INDENT)
        }
        Markup::Html => form.item(&format!("`{name}`: {about}")),
    }
}

/// Lists are for people also where they go to a file.
fn width(form: Markup) -> usize {
    const COLUMNS: usize = 80;
    form.width().unwrap_or(COLUMNS)
}
