//! Processes that explore some of the schedules.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use bursar_check::explore::{InAProcess, Target, Told};
use serde_json::Value;

/// Explores schedules of a seed by this program's own command line. Its error messages go where this process's go. `failed` gets the reason
/// why a process could not be started, or ended early without an interruption.
pub fn explore(seed: u64, failed: &OnceLock<String>) -> Box<InAProcess<'_>> {
    Box::new(move |target, first, count| {
        explore_piece(seed, target, first, count).unwrap_or_else(|reason| {
            let name = target.name();
            // The first reason is enough.
            let _ = failed.set(format!(
                "cannot explore {name} in another process: {reason}"
            ));
            None
        })
    })
}

fn explore_piece(
    seed: u64,
    target: &Target,
    first: u64,
    count: u64,
) -> Result<Option<Told>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .args(["explore", target.name(), "-q", "-f", "json"])
        .args(["--sections", target.sections_name()])
        .args(["--seed", &seed.to_string(), "--from", &first.to_string()])
        .args(["--schedules", &count.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| error.to_string())?;
    let document: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("it ended with {} and no document", output.status))?;
    if document["interrupted"] != false {
        return Ok(None);
    }
    let told = told(&document["results"][0]);
    Ok(Some(told.ok_or("its document lacks a field")?))
}

fn told(result: &Value) -> Option<Told> {
    Some(Told {
        schedules: result["schedules"].as_u64()?,
        steps: result["steps"].as_u64()?,
        failed: match result["failure"]["schedule"].as_str() {
            Some(schedule) => Some(schedule.parse().ok()?),
            None => None,
        },
    })
}
