//! The command that runs while the kernel is observed.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
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
    /// `None` from when it is ended.
    child: Option<Child>,
    /// A message, once it has ended.
    ended: Receiver<()>,
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
        let child = command
            .args(arguments)
            .stdout(Stdio::from(io::stderr()))
            .spawn()?;
        let pid = child.id();
        let (sender, has_ended) = channel();
        thread::spawn(move || {
            // An error is that of `Child::wait`, too.
            let _ = process::await_end(pid);
            // Nobody asks after the end of a run that failed.
            let _ = sender.send(());
            ended();
        });
        let words = [program].into_iter().chain(arguments);
        Ok(Self {
            words: words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            child: Some(child),
            ended: has_ended,
        })
    }

    /// Ends the command unless it has ended, and says how.
    pub fn end(mut self) -> Ended {
        let child = self.child.take().expect("only this and a drop take it");
        let (status, was_stopped) = self.stop(child);
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
    fn stop(&self, mut child: Child) -> (Option<io::Result<ExitStatus>>, bool) {
        if let Ok(Some(status)) = child.try_wait() {
            return (Some(Ok(status)), false);
        }
        // Until it is waited for below, its number is no other process's.
        process::terminate(child.id());
        let ended = self.ended.recv_timeout(GRACE).or_else(|_| {
            process::kill(child.id());
            self.ended.recv_timeout(GRACE)
        });
        (ended.ok().map(|()| child.wait()), true)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            self.stop(child);
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
        let child = running.child.as_ref().expect("it runs");
        let process = format!("/proc/{}", child.id());
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
