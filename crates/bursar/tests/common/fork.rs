//! Forks, which std does not offer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Turns a hang into a failure; nothing else depends on it. Ten times the slowest of these tests (110 s, in an emulated machine beside builds).
const LIMIT_SECONDS: u32 = 1200;

/// A test that has its process for itself, for a limited time.
pub struct Alone {
    _turn: MutexGuard<'static, ()>,
}

/// Waits until no other test runs that has the process for itself. Kills the process if this one has not ended long after it should
/// have.
pub fn alone() -> Alone {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    limit_time(LIMIT_SECONDS);
    Alone { _turn: turn }
}

impl Drop for Alone {
    fn drop(&mut self) {
        limit_time(0);
    }
}

/// Kills this process after so many seconds; never if that is 0.
pub fn limit_time(seconds: u32) {
    // SAFETY: an alarm without a handler ends the process, and touches no memory.
    unsafe { libc::alarm(seconds) };
}

/// Forks, runs `work` in the child, and returns once that has ended well.
///
/// # Panics
/// If the child panicked or was killed.
pub fn in_child(work: impl FnOnce()) {
    let status = wait(start(|| {
        limit_time(LIMIT_SECONDS);
        work();
    }));
    assert!(libc::WIFEXITED(status), "the child was killed: {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "the child failed");
}

/// Forks, and runs `work` in the child, which ends with 1 if that panics. Returns the child's number.
pub fn start(work: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child runs on with this thread alone; what it uses of the C library (memory, standard error) is kept
    // usable by it.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        let code = i32::from(catch_unwind(AssertUnwindSafe(work)).is_err());
        // SAFETY: ends the process at once, without destructors or handlers that wait for threads that are gone.
        unsafe { libc::_exit(code) };
    }
    pid
}

/// Waits for the end of a child; returns its status.
pub fn wait(pid: libc::pid_t) -> libc::c_int {
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
