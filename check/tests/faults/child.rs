//! Forked children that may die, and what they said until then.

use std::fs::File;
use std::io::{PipeWriter, Read, Seek, Write};
use std::os::fd::AsRawFd;

use crate::fork;
pub use crate::fork::alone;

/// Turns a hang into a failure; nothing else depends on it.
const LIMIT_SECONDS: u32 = 60;

/// End of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Well,
    Panicked,
    Aborted,
    /// It hung, and was ended; or it met memory that is not there.
    Killed,
}

pub struct Ended {
    pub end: End,
    /// Bytes that it wrote.
    pub said: Vec<u8>,
    /// Text that it wrote to standard error.
    pub errors: String,
}

/// Runs `work` in a forked child that forks for each of its cases, which end sooner.
pub fn run_all(work: impl FnOnce(&mut PipeWriter)) -> Ended {
    run(|said| {
        fork::limit_time(20 * LIMIT_SECONDS);
        work(said);
    })
}

/// Runs `work` in a forked child, and returns once that has ended.
pub fn run(work: impl FnOnce(&mut PipeWriter)) -> Ended {
    let (mut read, mut write) = std::io::pipe().expect("a pipe");
    let mut errors = tempfile::tempfile().expect("a file for its errors");
    let pid = fork::start(|| {
        begin(&errors);
        work(&mut write);
    });
    drop(write);
    let mut said = Vec::new();
    read.read_to_end(&mut said).expect("it ends");
    let status = fork::wait(pid);
    let mut text = String::new();
    errors.rewind().expect("a file has a begin");
    errors.read_to_string(&mut text).expect("text");
    let end = match status {
        _ if libc::WIFEXITED(status) => match libc::WEXITSTATUS(status) {
            0 => End::Well,
            _ => End::Panicked,
        },
        _ if libc::WTERMSIG(status) == libc::SIGABRT => End::Aborted,
        _ => End::Killed,
    };
    Ended {
        end,
        said,
        errors: text,
    }
}

/// Begins a child: its errors go to a file, its hang is ended, and its abort leaves no core.
fn begin(errors: &File) {
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    fork::limit_time(LIMIT_SECONDS);
    // SAFETY: the structure is valid, and both descriptors are open.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        libc::dup2(errors.as_raw_fd(), libc::STDERR_FILENO);
    }
    // SAFETY: this process has one thread. A backtrace of each abort would take most of the time.
    unsafe { std::env::set_var("RUST_BACKTRACE", "0") };
    // The harness would take the message of a panic.
    let errors = errors.try_clone().expect("another descriptor");
    std::panic::set_hook(Box::new(move |panic| {
        let _ = writeln!(&errors, "{panic}");
    }));
}
