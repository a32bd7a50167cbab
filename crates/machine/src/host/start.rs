//! Choice of the backend, and the reason for it.

use core::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::backend::{self, Backend, system_cpu};
use super::{rseq, selftest, slots, topology};

/// One check of the self-test.
#[derive(Clone, Debug)]
pub struct Check {
    /// Name of the check.
    pub name: &'static str,
    /// Whether it works here.
    pub passed: bool,
    /// Details of the result.
    pub detail: String,
}

/// Set-up of this process.
#[derive(Clone, Debug)]
pub struct Report {
    /// The backend in use.
    pub backend: Backend,
    /// Whether `BURSAR_BACKEND` named it.
    pub forced: bool,
    /// Number of CPUs that have shards of their own.
    pub cpus: usize,
    /// Number of NUMA nodes.
    pub nodes: usize,
    /// Node of each CPU.
    pub node_of_cpu: Vec<usize>,
    /// Checks of the self-test, in order.
    pub checks: Vec<Check>,
}

/// Reason why the host cannot start.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// `BURSAR_BACKEND` holds a name that is not a backend's.
    UnknownBackend {
        /// The value.
        name: String,
    },
    /// `BURSAR_BACKEND` names a backend that does not work here.
    Unavailable {
        /// The backend.
        backend: Backend,
        /// The failed checks.
        reason: String,
    },
    /// No backend works here, because there is not enough memory.
    NoBackend {
        /// The failures of each backend.
        reason: String,
    },
    /// `BURSAR_CPUS` is not a number from 1 to 1,024.
    BadCpus {
        /// The value.
        value: String,
    },
    /// The system has no room for the handlers that make `fork` safe.
    NoForkHandlers {
        /// The system's error.
        reason: String,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownBackend { name } => write!(
                f,
                "BURSAR_BACKEND={name}: no such backend; use rseq, percpu-atomic or sharded, or unset it"
            ),
            Self::Unavailable { backend, reason } => write!(
                f,
                "BURSAR_BACKEND={backend}: not available here: {reason}; unset it to let Bursar choose"
            ),
            Self::NoBackend { reason } => write!(f, "no backend works here: {reason}"),
            Self::BadCpus { value } => {
                write!(
                    f,
                    "BURSAR_CPUS={value}: expected a number from 1 to {CPUS_MAX}"
                )
            }
            Self::NoForkHandlers { reason } => {
                write!(f, "cannot register handlers for fork: {reason}")
            }
        }
    }
}

crate::debug_as_message!(
    enum StartError {
        UnknownBackend { name },
        Unavailable { backend, reason },
        NoBackend { reason },
        BadCpus { value },
        NoForkHandlers { reason },
    }
);

impl std::error::Error for StartError {}

/// Maximum number of CPUs with shards of their own; further ones share the extra shard.
const CPUS_MAX: usize = 1024;

static STARTED: OnceLock<Report> = OnceLock::new();

/// Starts the host once. A start that failed is tried again by the next call: memory may be free by then.
pub(super) fn start() -> Result<&'static Report, StartError> {
    static TURN: Mutex<()> = Mutex::new(());
    if let Some(report) = STARTED.get() {
        return Ok(report);
    }
    // Guards no data of its own.
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match STARTED.get() {
        Some(report) => Ok(report),
        None => choose().map(|report| STARTED.get_or_init(|| report)),
    }
}

fn choose() -> Result<Report, StartError> {
    let wanted = match std::env::var("BURSAR_BACKEND") {
        Ok(name) if !name.is_empty() => Some(
            Backend::ALL
                .into_iter()
                .find(|backend| backend.name() == name)
                .ok_or(StartError::UnknownBackend { name })?,
        ),
        _ => None,
    };
    let cpus = cpu_limit()?;
    slots::set_cpus(cpus);
    let mut checks = Vec::new();
    let mut chosen = None;
    for backend in Backend::ALL {
        if wanted.is_some_and(|wanted| wanted != backend) {
            continue;
        }
        match try_backend(backend, cpus, &mut checks) {
            Ok(()) => {
                chosen = Some(backend);
                break;
            }
            Err(reason) if wanted.is_some() => {
                return Err(StartError::Unavailable { backend, reason });
            }
            Err(_) => {}
        }
    }
    let Some(backend) = chosen else {
        let reasons: Vec<String> = checks.into_iter().map(|check| check.detail).collect();
        return Err(StartError::NoBackend {
            reason: reasons.join("; "),
        });
    };
    let node_of_cpu = topology::node_of_cpus(cpus);
    Ok(Report {
        backend,
        forced: wanted.is_some(),
        cpus,
        nodes: node_of_cpu.iter().max().map_or(1, |highest| highest + 1),
        node_of_cpu,
        checks,
    })
}

/// Number of CPUs with shards. `BURSAR_CPUS` lets the CPUs from that number on share the extra shard, as CPUs added
/// after the start do.
fn cpu_limit() -> Result<usize, StartError> {
    let possible = topology::possible_cpus().min(CPUS_MAX);
    match std::env::var("BURSAR_CPUS") {
        Ok(value) if !value.is_empty() => match value.parse::<usize>() {
            Ok(cpus) if (1..=CPUS_MAX).contains(&cpus) => Ok(cpus.min(possible)),
            _ => Err(StartError::BadCpus { value }),
        },
        _ => Ok(possible),
    }
}

fn try_backend(backend: Backend, cpus: usize, checks: &mut Vec<Check>) -> Result<(), String> {
    let mut check = |name, result: Result<String, String>| {
        checks.push(Check {
            name,
            passed: result.is_ok(),
            detail: match &result {
                Ok(detail) | Err(detail) => detail.clone(),
            },
        });
        result
    };
    if backend == Backend::Rseq {
        let offset = match rseq::registration() {
            Ok(offset) => {
                let _ = check(
                    "rseq registration",
                    Ok(format!("glibc's, {offset} bytes from the thread pointer")),
                );
                offset
            }
            Err(reason) => {
                check("rseq registration", Err(reason.to_owned()))?;
                return Err(reason.to_owned());
            }
        };
        let fences = rseq::register_membarrier() && rseq::membarrier();
        check(
            "membarrier for rseq",
            if fences {
                Ok("registered and passed".to_owned())
            } else {
                Err("the kernel refused MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ (Linux 5.10 and later have it)".to_owned())
            },
        )?;
        rseq::enable(offset, cpus as u32);
    }
    if backend == Backend::PercpuAtomic {
        let cpu = system_cpu()
            .map(|cpu| format!("on CPU {cpu}"))
            .ok_or_else(|| "this system does not tell the current CPU".to_owned());
        check("current CPU", cpu)?;
    }
    backend::set(backend);
    let counted = selftest::count_across_cpus().map_err(|error| error.to_string());
    let name = match backend {
        Backend::Rseq => "migrating count, rseq",
        Backend::PercpuAtomic => "migrating count, percpu-atomic",
        Backend::Sharded => "migrating count, sharded",
    };
    if let Err(reason) = check(name, counted) {
        rseq::enable(0, 0);
        backend::set(Backend::Sharded);
        return Err(reason);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host;

    /// A backend that loses counts is not chosen, so nothing else would fail.
    #[test]
    fn no_backend_that_is_tried_loses_counts() {
        let mut checks = host::report().checks.iter();
        let lost = checks.find(|check| check.name.starts_with("migrating count") && !check.passed);
        assert!(lost.is_none(), "{lost:?}");
    }

    #[test]
    fn each_error_says_what_is_wrong() {
        let reason = || "a reason".to_owned();
        let backend = Backend::Rseq;
        let (name, value) = ("abacus".to_owned(), "2k".to_owned());
        for (error, parts) in [
            (
                StartError::UnknownBackend { name },
                ["BURSAR_BACKEND=abacus", "percpu-atomic"],
            ),
            (
                StartError::Unavailable {
                    backend,
                    reason: reason(),
                },
                ["BURSAR_BACKEND=rseq", "a reason"],
            ),
            (
                StartError::NoBackend { reason: reason() },
                ["no backend", "a reason"],
            ),
            (
                StartError::BadCpus { value },
                ["BURSAR_CPUS=2k", "1 to 1024"],
            ),
            (
                StartError::NoForkHandlers { reason: reason() },
                ["fork", "a reason"],
            ),
        ] {
            let text = error.to_string();
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
    }
}
