//! The command that runs while the kernel is observed.

use std::ffi::OsString;
use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use bursar_watch::process;
use serde::Serialize;

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// Reasons to look at something before the next poll.
pub enum Message {
    Interrupted,
    /// The command ended, with this status.
    Ended(io::Result<ExitStatus>),
}

/// The end of the run.
pub enum End {
    Time,
    Interrupted,
    Command(io::Result<ExitStatus>),
}

/// A command that was started.
pub struct Running {
    words: Vec<String>,
    pid: u32,
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
        ended: impl FnOnce(io::Result<ExitStatus>) + Send + 'static,
    ) -> io::Result<Self> {
        // Standard output holds the document alone.
        let mut command = Command::new(program);
        let mut child = command
            .args(arguments)
            .stdout(Stdio::from(io::stderr()))
            .spawn()?;
        let pid = child.id();
        thread::spawn(move || ended(child.wait()));
        let words = [program].into_iter().chain(arguments);
        Ok(Self {
            words: words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            pid,
        })
    }

    /// Ends the command unless it has ended, and says how.
    pub fn end(self, end: End, messages: &Receiver<Message>) -> Ended {
        let (status, was_stopped) = match end {
            End::Command(status) => (Some(status), false),
            End::Time | End::Interrupted => {
                process::terminate(self.pid);
                let status = ended(messages, GRACE).or_else(|| {
                    process::kill(self.pid);
                    ended(messages, GRACE)
                });
                (status, true)
            }
        };
        let said = match &status {
            Some(Ok(status)) => status.to_string(),
            Some(Err(error)) => error.to_string(),
            None => "did not end".to_owned(),
        };
        Ended {
            words: self.words,
            code: status.and_then(Result::ok).and_then(|status| status.code()),
            status: said,
            was_stopped,
        }
    }
}

/// The command's status, if it ends within `patience`.
fn ended(messages: &Receiver<Message>, patience: Duration) -> Option<io::Result<ExitStatus>> {
    loop {
        match messages.recv_timeout(patience).ok()? {
            Message::Ended(status) => return Some(status),
            Message::Interrupted => {}
        }
    }
}
