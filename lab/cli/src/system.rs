//! Description of this machine, for documents.

use bursar_experiments::machine_info::HostInfo;
use bursar_machine::host::StartError;
use bursar_machine::{Host, Machine};

use crate::failure::Failure;

/// The host, ready to use.
pub fn host() -> Result<Host, Failure> {
    Host::start().map_err(|error| match error {
        StartError::Unavailable { .. } => Failure::unavailable(error),
        _ => Failure::usage(error),
    })
}

/// Description of the host for documents.
pub fn describe(host: &Host) -> HostInfo {
    HostInfo {
        cpus: host.cpus(),
        nodes: host.nodes(),
        model: bursar_conditions::cpu_model().unwrap_or_else(|| "unknown CPU".to_owned()),
        system: system(),
        backend: host.report().backend.to_string(),
    }
}

fn system() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{} {} {}",
        std::env::consts::OS,
        release.trim(),
        std::env::consts::ARCH
    )
    .replace("  ", " ")
}
