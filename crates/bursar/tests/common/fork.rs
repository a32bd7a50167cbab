//! Forks, which std does not offer.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Turns a hang into a failure; nothing else depends on it. Long enough for the slowest machine under a sanitizer.
const LIMIT_SECONDS: u32 = 120;

/// Kills this process if it has not ended long after it should have.
pub fn limit_time() {
    // SAFETY: an alarm without a handler ends the process, and touches no memory.
    unsafe { libc::alarm(LIMIT_SECONDS) };
}

/// Forks, runs `work` in the child, and returns once that has ended well.
///
/// # Panics
/// If the child panicked or was killed.
pub fn in_child(work: impl FnOnce()) {
    // SAFETY: the child runs on with this thread alone; what it uses of the C library (memory, standard error) is kept
    // usable by it.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        limit_time();
        let code = i32::from(catch_unwind(AssertUnwindSafe(work)).is_err());
        // SAFETY: ends the process at once, without destructors or handlers that wait for threads that are gone.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    loop {
        // SAFETY: the child is ours, and `status` is a place to write to.
        let ended = unsafe { libc::waitpid(pid, &mut status, 0) };
        if ended == pid {
            break;
        }
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), std::io::ErrorKind::Interrupted, "{error}");
    }
    assert!(libc::WIFEXITED(status), "the child was killed: {status:#x}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "the child failed");
}
