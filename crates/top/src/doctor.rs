//! `bursar doctor`: how Bursar works on this machine, and why.

use std::fmt::Write;
use std::process::ExitCode;

use bursar::Bytes;
use bursar_machine::host::{
    CgroupError, CgroupLimits, CgroupMemory, Check, StartError, cpu_model, resident,
};
use bursar_machine::{Host, Machine};
use serde::Serialize;

use bursar_term::failure::Failure;
use bursar_term::format;
use bursar_term::grid::Grid;
use bursar_term::markup::Markup;
use bursar_term::options::Global;
use bursar_term::output::Output;
use bursar_term::system;
use bursar_term::units::counted;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    checks: Vec<CheckResult>,
}

/// Backends that this build of the tool cannot use, and measurements that are missing for machines like this one.
fn note() -> Option<String> {
    let linked = cfg!(target_feature = "crt-static").then_some(
        "This tool is linked statically, so it cannot use rseq. A server that is linked dynamically, with glibc 2.35 or later, may use it: run doctor from a build with glibc.",
    );
    let measured = cfg!(target_arch = "aarch64").then_some(
        "Tested on emulated 64-bit Arm. No speed was measured on real hardware: see docs/arm.md.",
    );
    let notes: Vec<_> = [linked, measured].into_iter().flatten().collect();
    (!notes.is_empty()).then(|| notes.join(" "))
}

#[derive(Serialize)]
struct CheckResult {
    name: &'static str,
    passed: bool,
    detail: String,
}

pub fn doctor(global: &Global) -> Result<ExitCode, Failure> {
    let is_json = global.is_json()?;
    let output = Output::open(global)?;
    let host = Host::start().map_err(|error| match error {
        StartError::Unavailable { .. } => Failure::unavailable(error),
        _ => Failure::usage(error),
    })?;
    let report = host.report();
    let result = |check: &Check| CheckResult {
        name: check.name,
        passed: check.passed,
        detail: check.detail.clone(),
    };
    let diagnosis = Diagnosis {
        schema: 1,
        backend: report.backend.to_string(),
        forced: report.forced,
        cpus: host.cpus(),
        nodes: host.nodes(),
        model: cpu_model().unwrap_or_else(|| "unknown CPU".to_owned()),
        system: system::name(),
        note: note(),
        checks: report
            .checks
            .iter()
            .map(result)
            .chain([cgroup_limit(), resident_size()])
            .collect(),
    };
    let document = match is_json {
        true => format::json(&diagnosis)?,
        false => text(&diagnosis, output.terminal()),
    };
    output.write(&document, |form| text(&diagnosis, form))?;
    Ok(ExitCode::SUCCESS)
}

/// Memory limit of this process's cgroup.
fn cgroup_limit() -> CheckResult {
    let read = || -> Result<String, CgroupError> {
        let cgroup = CgroupMemory::of_this_process()?;
        Ok(describe_limits(&cgroup, &cgroup.read()?))
    };
    let seen = read().map_err(|error| error.to_string());
    check("cgroup memory limit", seen)
}

fn describe_limits(cgroup: &CgroupMemory, limits: &CgroupLimits) -> String {
    let version = cgroup.version();
    let mut seen = match (limits.max, &limits.limited_by) {
        (Some(max), Some(directory)) => {
            let directory = directory.display();
            format!("{} ({max} bytes) by {directory}", Bytes(max))
        }
        _ => format!("none, at and above {}", cgroup.directory().display()),
    };
    let _ = write!(seen, ", {version}");
    if let Some(high) = limits.high {
        let _ = write!(seen, "; throttled above {}", Bytes(high));
    }
    if let Some(current) = limits.current {
        let _ = write!(seen, "; {} in use", Bytes(current));
    }
    seen
}

fn resident_size() -> CheckResult {
    let seen = resident().map(|resident| {
        let [all, anonymous] = [resident.bytes, resident.anonymous_bytes].map(Bytes);
        format!("{all} in this process, {anonymous} of it anonymous")
    });
    check("resident size", seen.map_err(|error| error.to_string()))
}

fn check(name: &'static str, seen: Result<String, String>) -> CheckResult {
    CheckResult {
        name,
        passed: seen.is_ok(),
        // It may name a cgroup.
        detail: bursar::printable(&seen.unwrap_or_else(|why| why)).into_owned(),
    }
}

fn text(diagnosis: &Diagnosis, form: Markup) -> String {
    let why = if diagnosis.forced {
        format!("Because {FORCE} says so. Unset it to let the self-test choose.")
    } else {
        format!(
            "The fastest that passed the self-test. Set {FORCE} to rseq, percpu-atomic or sharded to force one."
        )
    };
    let mut text = form.heading(&format!(
        "Bursar changes per-CPU words by `{}`",
        diagnosis.backend
    ));
    text.push_str(&form.paragraph(&why));
    text.push('\n');
    text.push_str(&form.paragraph(&format!(
        "{}, {}, {}, {}",
        counted(diagnosis.cpus, "CPU"),
        counted(diagnosis.nodes, "NUMA node"),
        diagnosis.model,
        diagnosis.system
    )));
    if let Some(note) = &diagnosis.note {
        text.push('\n');
        text.push_str(&form.paragraph(note));
    }
    text.push('\n');
    let mut checks = Grid::new(["check", "result", "seen"]).prose();
    for check in &diagnosis.checks {
        checks.row([check.name, verdict(check), &check.detail]);
    }
    text.push_str(&form.table(&checks));
    text
}

fn verdict(check: &CheckResult) -> &'static str {
    if check.passed { "yes" } else { "no" }
}
