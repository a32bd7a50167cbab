//! Reasons why a kernel cannot be observed, each with what to do about it.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A missing permission or kernel feature.
#[derive(Debug)]
#[non_exhaustive]
pub enum Unavailable {
    /// Not Linux.
    System,
    /// The kernel has no tracefs.
    Kernel,
    /// tracefs is not mounted, and mounting it failed.
    NotMounted {
        /// Reason.
        error: io::Error,
    },
    /// This user may not use tracefs.
    Permission {
        /// The file or directory.
        path: PathBuf,
    },
    /// The kernel is locked down.
    Lockdown {
        /// The file or directory.
        path: PathBuf,
        /// Mode of the lockdown.
        mode: String,
    },
    /// The kernel has none of the events that are needed.
    Events,
    /// Anything else that failed.
    File {
        /// The file or directory.
        path: PathBuf,
        /// Reason.
        error: io::Error,
    },
}

impl Unavailable {
    /// The reason for an error at `path`.
    pub fn at(path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        match (error.kind(), lockdown()) {
            (ErrorKind::PermissionDenied, Some(mode)) => Self::Lockdown { path, mode },
            (ErrorKind::PermissionDenied, None) => Self::Permission { path },
            _ => Self::File { path, error },
        }
    }
}

/// The active mode, of `none [integrity] confidentiality`.
fn lockdown() -> Option<String> {
    let modes = fs::read_to_string("/sys/kernel/security/lockdown").ok()?;
    let mode = modes.split('[').nth(1)?.split(']').next()?;
    (mode == "confidentiality").then(|| mode.to_owned())
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("only a Linux kernel can be observed; this system is another"),
            Self::Kernel => f.write_str(
                "this kernel has no tracefs; it must be built with CONFIG_TRACING and CONFIG_EVENT_TRACING",
            ),
            Self::NotMounted { error } => write!(
                f,
                "tracefs is not mounted, and mounting it failed: {error}; as root, run \
                 `mount -t tracefs nodev /sys/kernel/tracing`, then observe as root"
            ),
            Self::Permission { path } => write!(
                f,
                "permission denied: {}; observe as root (`sudo bursar-observe watch ...`). In a container, also the host must \
                 grant access to tracefs",
                path.display()
            ),
            Self::Lockdown { path, mode } => write!(
                f,
                "permission denied: {}; the kernel is locked down ({mode}), which forbids tracing to root too; boot without \
                 `lockdown={mode}`",
                path.display()
            ),
            Self::Events => f.write_str(
                "this kernel has none of the events that are needed; it must be built with CONFIG_EVENT_TRACING",
            ),
            Self::File { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for Unavailable {}
