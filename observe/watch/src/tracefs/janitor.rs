//! The end of a trace buffer, also if its owner is killed.
//!
//! The janitor is a child process. It reads from a pipe that only its parent holds, so the end of the pipe is the end of the
//! parent, however it came. Then the janitor removes the instance. It has a process group of its own, which Ctrl-C does not reach.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::owner::is_gone;

/// Tries of a removal. The files of a process that was killed are closed in an order of the kernel's choice.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(50);

/// A child process that outlives this one.
#[derive(Debug)]
pub struct Janitor {
    child: Child,
}

impl Janitor {
    /// Starts `command`, which must call [`tidy`].
    pub fn start(mut command: Command) -> io::Result<Self> {
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let command = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Self {
            child: command.spawn()?,
        })
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The janitor's work: waits until the parent ends, then removes its instance and its mount.
pub fn tidy(instance: &Path, mounted: Option<&Path>) {
    let mut nothing = [0; 64];
    while !matches!(io::stdin().read(&mut nothing), Ok(0) | Err(_)) {}
    for _ in 0..TRIES {
        match fs::remove_dir(instance) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(PAUSE),
            _ => break,
        }
    }
    super::probes::remove_of(instance);
    if let Some(root) = mounted {
        unmount(root);
    }
}

/// Removes instances whose owners have ended without their janitor, as after the end of a whole session.
pub(super) fn remove_stale(instances: &Path) {
    let Ok(entries) = fs::read_dir(instances) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(is_gone) {
            // An instance that another process still reads, perhaps one that only seems to have ended here, is busy.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(target_os = "linux")]
pub(super) fn mount(root: &Path) -> io::Result<()> {
    use rustix::mount::{MountFlags, mount};
    fs::create_dir(root)?;
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    let mounted = mount("nodev", root, "tracefs", flags, None);
    mounted.map_err(|error| {
        let _ = fs::remove_dir(root);
        error.into()
    })
}

#[cfg(target_os = "linux")]
pub(super) fn unmount(root: &Path) {
    let _ = rustix::mount::unmount(root, rustix::mount::UnmountFlags::DETACH);
    let _ = fs::remove_dir(root);
}

#[cfg(not(target_os = "linux"))]
pub(super) fn mount(_: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn unmount(_: &Path) {}
