//! Frames that can be counted.

use std::io;

/// Keeps the kernel from backing this process's memory with huge pages from now on, where every 4 KiB shall be seen
/// separately.
///
/// # Errors
/// Text of the system's last error.
pub fn without_huge_pages() -> io::Result<()> {
    // SAFETY: it changes how memory will be backed, not what is in it.
    let result = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
