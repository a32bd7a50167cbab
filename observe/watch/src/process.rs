//! Signals to the command that runs meanwhile.

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
