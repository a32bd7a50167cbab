//! `bursar list`: the experiments, and what can be set of each, from what the program has in it.

use std::fmt::Write;
use std::process::ExitCode;

use bursar_lab::describe;
use clap::Args;
use serde::Serialize;

use crate::args::Global;
use crate::choice::TextFormat;
use crate::failure::Failure;
use crate::form::Form;
use crate::format;
use crate::output::Output;

pub const EXAMPLES: &str = "\
Examples:
  bursar list                        the experiments, a line each
  bursar list memcg-flush            its loads, variants and parameters
  bursar list memcg-flush -f json    the same for programs";

#[derive(Debug, Args)]
pub struct List {
    /// The experiment to describe; without it, all are listed
    #[arg(value_name = "EXPERIMENT")]
    pub experiment: Option<String>,
}

/// An experiment.
#[derive(Serialize)]
struct Described {
    schema: u32,
    name: String,
    title: String,
    about: String,
    machine: String,
    loads: Vec<Item>,
    variants: Vec<Item>,
    parameters: Vec<Parameter>,
}

/// A load or a variant.
#[derive(Serialize)]
struct Item {
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
    let format = global.text_format()?;
    let all = match &list.experiment {
        Some(name) => vec![described(name)?],
        None => bursar_lab::names()
            .map(described)
            .collect::<Result<_, _>>()?,
    };
    let output = Output::open(global)?;
    let people = |form| match &list.experiment {
        Some(_) => details(&all[0], form),
        None => overview(&all, form),
    };
    let text = match format {
        TextFormat::Table => people(output.terminal()),
        TextFormat::Markdown => people(Form::Markdown),
        TextFormat::Json if list.experiment.is_some() => format::json(&all[0])?,
        TextFormat::Json => format::json(&all)?,
        TextFormat::Ndjson => all
            .iter()
            .map(format::json_line)
            .collect::<Result<_, _>>()?,
        TextFormat::Csv => csv(&all),
    };
    output.write(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn described(name: &str) -> Result<Described, Failure> {
    let experiment = bursar_lab::experiment_named(name).map_err(Failure::usage)?;
    let loads = experiment.loads.iter().map(|load| Item {
        name: load.name.clone(),
        about: load.about.clone(),
    });
    let variant = |variant: &String| {
        let about = describe::variant(name, variant).map_err(Failure::usage)?;
        Ok(Item {
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
        loads: loads.collect(),
        variants: experiment
            .variants
            .iter()
            .map(variant)
            .collect::<Result<_, _>>()?,
        parameters: parameters.collect(),
        title: experiment.title,
        about: experiment.about.trim().to_owned(),
        machine: experiment.machine,
    })
}

fn overview(all: &[Described], form: Form) -> String {
    let mut text = form.heading("Experiments");
    for one in all {
        text.push_str(&form.item(&format!("{:<16} {}", one.name, one.title)));
    }
    text + "\n`bursar list EXPERIMENT` lists loads, variants and parameters; `bursar run EXPERIMENT` runs it.\n"
}

fn details(one: &Described, form: Form) -> String {
    let mut text = form.heading(&format!("{}: {}", one.name, one.title));
    text.push_str(&wrapped(&one.about, ""));
    let _ = write!(text, "\nIts machine:\n  {}\n\n", one.machine);
    for (title, items) in [
        ("Loads (-s load=NAME,NAME)", &one.loads),
        ("Variants (-s variants=NAME,NAME)", &one.variants),
    ] {
        text.push_str(&form.subheading(title));
        for item in items {
            text.push_str(&entry(&item.name, &item.about, form));
        }
        text.push('\n');
    }
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

/// A name, and below it what it is.
fn entry(name: &str, about: &str, form: Form) -> String {
    match form {
        Form::Terminal { .. } => form.item(name) + &wrapped(about, "      "),
        Form::Markdown => form.item(&format!("`{name}`: {about}")),
    }
}

/// The text in lines of at most 80 columns.
fn wrapped(text: &str, indent: &str) -> String {
    const WIDTH: usize = 80;
    let mut lines = String::new();
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        let is_begun = line.len() > indent.len();
        if is_begun && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            line = indent.to_owned();
        } else if is_begun {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines + &line + "\n"
}

fn csv(all: &[Described]) -> String {
    let mut lines = "experiment,kind,name,default,least,most,about\n".to_owned();
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    for one in all {
        for (kind, items) in [("load", &one.loads), ("variant", &one.variants)] {
            for Item { name, about } in items {
                let about = format::csv_field(about);
                let _ = writeln!(lines, "{},{kind},{name},,,,{about}", one.name);
            }
        }
        for it in &one.parameters {
            let _ = writeln!(
                lines,
                "{},parameter,{},{},{},{},{}",
                one.name,
                it.name,
                it.default,
                number(it.least),
                number(it.most),
                format::csv_field(&it.about)
            );
        }
    }
    lines
}
