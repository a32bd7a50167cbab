//! The command that runs while the kernel is observed.

use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use bursar_watch::process;
use serde::Serialize;

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// A command that was started. Dropping it ends it.
pub struct Running {
    words: Vec<String>,
    pid: u32,
    /// Its status, once it has ended.
    status: Receiver<io::Result<ExitStatus>>,
    is_over: bool,
}

/// A command that ended.
#[derive(Clone, Debug, Serialize)]
pub struct Ended {
    /// Program and arguments.
    pub words: Vec<String>,
    /// Exit code. `None`: a signal ended it.
    pub code: Option<i32>,
    /// Its end, in words.
    pub status: String,
    /// Whether it was ended here because the time was over.
    pub was_stopped: bool,
}

impl Running {
    /// Starts a command. Calls `ended` when it has ended.
    pub fn start(
        program: &OsString,
        arguments: &[OsString],
        ended: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        // Standard output holds the document alone.
        let mut command = Command::new(program);
        let mut child = command
            .args(arguments)
            .stdout(Stdio::from(io::stderr()))
            .spawn()?;
        let pid = child.id();
        let (sender, status) = channel();
        thread::spawn(move || {
            // Nobody asks after the end of a run that failed.
            let _ = sender.send(child.wait());
            ended();
        });
        let words = [program].into_iter().chain(arguments);
        Ok(Self {
            words: words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            pid,
            status,
            is_over: false,
        })
    }

    /// Ends the command unless it has ended, and says how.
    pub fn end(mut self) -> Ended {
        let (status, was_stopped) = self.stop();
        let said = match &status {
            Some(Ok(status)) => status.to_string(),
            Some(Err(error)) => error.to_string(),
            None => "did not end".to_owned(),
        };
        Ended {
            words: std::mem::take(&mut self.words),
            code: status.and_then(Result::ok).and_then(|status| status.code()),
            status: said,
            was_stopped,
        }
    }

    /// The command's status, and whether it was stopped here. `None` if it ends neither by SIGTERM nor by SIGKILL.
    fn stop(&mut self) -> (Option<io::Result<ExitStatus>>, bool) {
        self.is_over = true;
        if let Ok(status) = self.status.try_recv() {
            return (Some(status), false);
        }
        process::terminate(self.pid);
        let status = self.status.recv_timeout(GRACE).or_else(|_| {
            process::kill(self.pid);
            self.status.recv_timeout(GRACE)
        });
        (status.ok(), true)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            self.stop();
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn shell(script: &str, ended: impl FnOnce() + Send + 'static) -> Running {
        let arguments = ["-c", script].map(OsString::from);
        Running::start(&"sh".into(), &arguments, ended).expect("a shell")
    }

    #[test]
    fn a_command_that_is_dropped_ends() {
        let running = shell("exec sleep 600", || ());
        let process = format!("/proc/{}", running.pid);
        assert!(std::fs::exists(&process).expect("a file system"));
        drop(running);
        assert!(!std::fs::exists(&process).expect("a file system"));
    }

    #[test]
    fn a_command_that_ended_before_keeps_its_status() {
        let (sender, ended) = channel();
        let running = shell("exit 7", move || sender.send(()).expect("a receiver"));
        ended.recv().expect("its end");
        let ended = running.end();
        assert_eq!((ended.code, ended.was_stopped), (Some(7), false));
    }

    #[test]
    fn a_command_that_is_stopped_says_so() {
        let ended = shell("exec sleep 600", || ()).end();
        assert_eq!((ended.code, ended.was_stopped), (None, true));
        assert!(ended.status.contains("15"), "{}", ended.status);
    }
}
