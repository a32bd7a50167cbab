//! Description of this machine, for documents.

use bursar_experiments::machine_info::HostInfo;
use bursar_machine::host::{StartError, cpu_model};
use bursar_machine::{Host, Machine};

use bursar_term::failure::Failure;
use bursar_term::system;

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
        model: cpu_model().unwrap_or_else(|| "unknown CPU".to_owned()),
        system: system::name(),
        backend: host.report().backend.to_string(),
    }
}
