//! Signals to the command that runs meanwhile, its end, and the limit of open files.

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

/// Waits until a child has ended, and leaves its status to [`std::process::Child::wait`]. Until that is called, no other process gets its
/// number.
#[cfg(target_os = "linux")]
pub fn await_end(child: u32) -> std::io::Result<()> {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let child = i32::try_from(child).ok().and_then(Pid::from_raw);
    let child = child.ok_or(std::io::ErrorKind::NotFound)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    rustix::io::retry_on_intr(|| waitid(WaitId::Pid(child), options))?;
    Ok(())
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

/// Returns at once: only Linux is observed.
#[cfg(not(target_os = "linux"))]
pub fn await_end(_: u32) -> std::io::Result<()> {
    Ok(())
}

/// Does nothing: only Linux is observed.
#[cfg(not(target_os = "linux"))]
pub fn terminate(_: u32) {}

/// Does nothing: only Linux is observed.
#[cfg(not(target_os = "linux"))]
pub fn kill(_: u32) {}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use rustix::process::{Resource, getrlimit};

    use super::*;

    #[test]
    fn a_child_that_ended_keeps_its_number_until_its_status_is_asked_for() {
        let mut child = Command::new("true").spawn().expect("a program");
        await_end(child.id()).expect("a child");
        let process = format!("/proc/{}", child.id());
        assert!(std::fs::exists(&process).expect("a file system"));
        assert!(child.wait().expect("a status").success());
        await_end(child.id()).expect_err("no child any more");
    }

    /// In a process of its own, which may open few files.
    #[test]
    fn the_limit_of_open_files_is_raised_as_far_as_it_may_be() {
        const NAME: &str = "process::tests::the_limit_of_open_files_is_raised_as_far_as_it_may_be";
        const INNER: &str = "BURSAR_TEST_INNER";
        if std::env::var_os(INNER).is_none() {
            let script = "ulimit -S -n 32 && ulimit -H -n 128 && exec \"$@\"";
            let mut inner = Command::new("sh");
            inner.args(["-c", script, "sh"]);
            inner.arg(std::env::current_exe().expect("a program"));
            let inner = inner.args(["--exact", NAME]).env(INNER, "1").output();
            let said = format!("{:?}", inner.expect("a shell"));
            assert!(said.contains("1 passed"), "{said}");
            return;
        }
        let after = |files| {
            allow_open_files(files);
            getrlimit(Resource::Nofile).current
        };
        assert_eq!(after(16), Some(32), "it is not lowered");
        assert_eq!(after(64), Some(64));
        assert_eq!(after(1_000), Some(128), "a process may not raise it more");
    }
}
