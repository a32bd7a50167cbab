//! Signals to the command that runs meanwhile, and the limit of open files.

/// Asks a process to end.
#[cfg(target_os = "linux")]
pub fn terminate(pid: u32) {
    signal(pid, rustix::process::Signal::TERM);
}

/// Ends a process.
#[cfg(target_os = "linux")]
pub fn kill(pid: u32) {
    signal(pid, rustix::process::Signal::KILL);
}

/// Raises the number of files that this process may have open, as far as it may. A command that it starts later may have as many.
#[cfg(target_os = "linux")]
pub(crate) fn allow_open_files(files: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // No limit is `None`.
    if current.is_none_or(|current| current >= files) {
        return;
    }
    let current = Some(maximum.map_or(files, |most| most.min(files)));
    // If it stays lower, opening the files says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
}

/// Does nothing: only Linux is observed.
#[cfg(not(target_os = "linux"))]
pub(crate) fn allow_open_files(_: u64) {}

#[cfg(target_os = "linux")]
fn signal(pid: u32, signal: rustix::process::Signal) {
    if let Some(pid) = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
    {
        // It may have ended.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Does nothing: only Linux is observed.
#[cfg(not(target_os = "linux"))]
pub fn terminate(_: u32) {}

/// Does nothing: only Linux is observed.
#[cfg(not(target_os = "linux"))]
pub fn kill(_: u32) {}
