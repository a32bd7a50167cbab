//! Forked children that may die, and what they said until then.

use std::fs::File;
use std::io::{PipeWriter, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Turns a hang into a failure; nothing else depends on it.
const LIMIT_SECONDS: u32 = 20;

/// How a child ended.
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
    /// What it wrote.
    pub said: Vec<u8>,
    /// What it wrote to standard error.
    pub errors: String,
}

/// Runs `work` in a forked child, and returns once that has ended.
pub fn run(work: impl FnOnce(&mut PipeWriter)) -> Ended {
    let (mut read, mut write) = std::io::pipe().expect("a pipe");
    let mut errors = tempfile::tempfile().expect("a file for its errors");
    // SAFETY: the child runs on with this thread alone. It uses memory and standard error only, which the C library and the standard
    // library keep usable by it.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        begin(&errors);
        let ran = catch_unwind(AssertUnwindSafe(|| work(&mut write)));
        // SAFETY: ends the process at once, without destructors or handlers that wait for threads that are gone.
        unsafe { libc::_exit(i32::from(ran.is_err())) };
    }
    drop(write);
    let mut said = Vec::new();
    read.read_to_end(&mut said).expect("it ends");
    let status = wait(pid);
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
    // SAFETY: an alarm without a handler ends the process. The structure is valid. Both descriptors are open.
    unsafe {
        libc::alarm(LIMIT_SECONDS);
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        libc::dup2(errors.as_raw_fd(), libc::STDERR_FILENO);
    }
    // The test's own standard error takes what is printed; a child's goes to the file.
    std::panic::set_hook(Box::new(|panic| {
        let _ = writeln!(
            std::fs::File::options()
                .append(true)
                .open("/proc/self/fd/2")
                .unwrap(),
            "{panic}"
        );
    }));
}

fn wait(pid: libc::pid_t) -> libc::c_int {
    let mut status = 0;
    loop {
        // SAFETY: the child is ours, and `status` is a place to write to.
        let ended = unsafe { libc::waitpid(pid, &mut status, 0) };
        if ended == pid {
            return status;
        }
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "{error}");
    }
}
