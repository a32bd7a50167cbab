//! The system that a tool runs on.

/// Its name, the release of its kernel, and the architecture.
pub fn name() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{} {} {}",
        std::env::consts::OS,
        release.trim(),
        std::env::consts::ARCH
    )
    .replace("  ", " ")
}
