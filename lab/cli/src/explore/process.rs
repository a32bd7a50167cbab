//! Processes that explore some of the schedules.

use std::process::{Command, Stdio};

use bursar_check::explore::{InAProcess, Told};

/// Explores schedules of a seed by this program's own command line. Its error messages go where this process's go.
pub fn explore(seed: u64) -> Box<InAProcess<'static>> {
    Box::new(move |target, first, count| {
        let output = Command::new(std::env::current_exe().ok()?)
            .args(["explore", target.name(), "-q", "-f", "json"])
            .args(["--sections", target.sections_name()])
            .args(["--seed", &seed.to_string(), "--from", &first.to_string()])
            .args(["--schedules", &count.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output();
        let document: serde_json::Value = serde_json::from_slice(&output.ok()?.stdout).ok()?;
        if document["interrupted"] != false {
            return None;
        }
        let result = &document["results"][0];
        Some(Told {
            schedules: result["schedules"].as_u64()?,
            steps: result["steps"].as_u64()?,
            failed: match result["failure"]["schedule"].as_str() {
                Some(schedule) => Some(schedule.parse().ok()?),
                None => None,
            },
        })
    })
}
