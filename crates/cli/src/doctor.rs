//! `bursar doctor`: how Bursar works on this machine, and why.

use std::fmt::Write;
use std::process::ExitCode;

use bursar_machine::Machine;
use bursar_machine::host::Check;
use serde::Serialize;

use crate::args::{Format, Global};
use crate::failure::Failure;
use crate::form::Form;
use crate::format;
use crate::output::Output;
use crate::system;

/// The environment variable that forces a backend.
const FORCE: &str = "BURSAR_BACKEND";

#[derive(Serialize)]
struct Diagnosis {
    schema: u32,
    backend: String,
    forced: bool,
    cpus: usize,
    nodes: usize,
    model: String,
    system: String,
    checks: Vec<CheckResult>,
}

#[derive(Serialize)]
struct CheckResult {
    name: &'static str,
    passed: bool,
    detail: String,
}

pub fn doctor(global: &Global) -> Result<ExitCode, Failure> {
    let output = Output::open(global)?;
    let host = system::host()?;
    let machine = system::describe(&host);
    let report = host.report();
    let result = |check: &Check| CheckResult {
        name: check.name,
        passed: check.passed,
        detail: check.detail.clone(),
    };
    let diagnosis = Diagnosis {
        schema: 1,
        backend: machine.backend,
        forced: report.forced,
        cpus: host.cpus(),
        nodes: host.nodes(),
        model: machine.model,
        system: machine.system,
        checks: report.checks.iter().map(result).collect(),
    };
    let document = match global.format {
        Format::Table => text(
            &diagnosis,
            Form::Terminal {
                color: output.has_color(),
            },
        ),
        Format::Markdown => text(&diagnosis, Form::Markdown),
        Format::Json => format::json(&diagnosis)?,
        Format::Ndjson => format::json_line(&diagnosis)?,
        Format::Csv => csv(&diagnosis),
    };
    output.write(&document)?;
    Ok(ExitCode::SUCCESS)
}

fn text(diagnosis: &Diagnosis, form: Form) -> String {
    let why = if diagnosis.forced {
        format!("because {FORCE} says so; unset it to let the self-test choose")
    } else {
        format!(
            "the fastest that passed the self-test; set {FORCE} to rseq, percpu-atomic or sharded to force one"
        )
    };
    let mut text = form.heading(&format!(
        "Bursar changes per-CPU words by `{}`",
        diagnosis.backend
    ));
    let _ = write!(
        text,
        "{why}\n\n{} CPUs, {} NUMA node(s), {}, {}\n\n",
        diagnosis.cpus, diagnosis.nodes, diagnosis.model, diagnosis.system
    );
    let mut checks = form.table(&["check", "result", "seen"]);
    for check in &diagnosis.checks {
        checks.add_row([check.name, verdict(check), &check.detail]);
    }
    text.push_str(&form.render(&checks));
    text
}

fn csv(diagnosis: &Diagnosis) -> String {
    let mut lines = "check,result,seen\n".to_owned();
    let _ = writeln!(lines, "backend,{},", format::csv_field(&diagnosis.backend));
    for check in &diagnosis.checks {
        let [name, seen] = [check.name, &check.detail].map(format::csv_field);
        let _ = writeln!(lines, "{name},{},{seen}", verdict(check));
    }
    lines
}

fn verdict(check: &CheckResult) -> &'static str {
    if check.passed { "yes" } else { "no" }
}
