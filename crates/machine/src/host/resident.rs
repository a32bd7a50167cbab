//! Resident size of this process, as the kernel counts it.
//!
//! `/proc/self/statm` is cheap and may lag, because the kernel batches its counters. Before Linux 6.2 a batch was up to
//! 64 pages for each thread. Since then it is up to `max(32, 2 * CPUs)` pages for each CPU that the process ran on.
//! Recent kernels sum the batches up when asked (`get_mm_counter_sum` in `task_statm`).

use std::fmt;
use std::io;
use std::path::PathBuf;

/// File that tells the size.
const STATM: &str = "/proc/self/statm";

/// Memory of this process that is in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resident {
    /// All of it (RSS), bytes.
    pub bytes: u64,
    /// Bytes without memory that is mapped from files or shared: heap, stacks, private mappings. Shared anonymous
    /// memory counts as shared.
    pub anonymous_bytes: u64,
}

/// Reason why the resident size could not be read.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResidentError {
    /// This system does not tell the size in a known way.
    Unsupported,
    /// The file cannot be read.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Kind of the error.
        kind: io::ErrorKind,
        /// The system's error.
        message: String,
    },
    /// The file does not hold the expected text.
    Malformed {
        /// The file.
        file: PathBuf,
        /// The file's text.
        text: String,
    },
}

impl fmt::Display for ResidentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => {
                write!(
                    f,
                    "the resident size is known on Linux only, from {STATM}; ask this system's own tools"
                )
            }
            Self::Unreadable { file, message, .. } => write!(
                f,
                "cannot read {}: {message}; mount proc and let this process read it",
                file.display()
            ),
            Self::Malformed { file, text } => write!(
                f,
                "{}: cannot make sense of {text:?}; check what is mounted at /proc",
                file.display()
            ),
        }
    }
}

crate::debug_as_message!(
    enum ResidentError {
        Unsupported,
        Unreadable { file, kind, message },
        Malformed { file, text },
    }
);

impl std::error::Error for ResidentError {}

/// Reads how much memory this process has in use now.
///
/// # Errors
/// [`ResidentError`].
pub fn resident() -> Result<Resident, ResidentError> {
    if !cfg!(target_os = "linux") {
        return Err(ResidentError::Unsupported);
    }
    let text = std::fs::read_to_string(STATM).map_err(|error| ResidentError::Unreadable {
        file: STATM.into(),
        kind: error.kind(),
        message: error.to_string(),
    })?;
    parse(&text, page_bytes()).ok_or_else(|| ResidentError::Malformed {
        file: STATM.into(),
        text: text.trim().chars().take(120).collect(),
    })
}

/// `size resident shared text lib data dt`, in pages.
fn parse(text: &str, page_bytes: u64) -> Option<Resident> {
    let mut fields = text.split_ascii_whitespace().skip(1);
    let mut bytes = || fields.next()?.parse::<u64>().ok()?.checked_mul(page_bytes);
    let (resident, shared) = (bytes()?, bytes()?);
    Some(Resident {
        bytes: resident,
        // The two numbers are not of one moment.
        anonymous_bytes: resident.saturating_sub(shared),
    })
}

/// Number of bytes in a page of this system.
pub(super) fn page_bytes() -> u64 {
    // SAFETY: no pointers; the call only looks up a constant.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes)
        .ok()
        .filter(|&bytes| bytes > 0)
        .unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statm_is_in_pages() {
        let parsed = parse("765 442 414 5 0 123 0\n", 4096).unwrap();
        assert_eq!(parsed.bytes, 442 * 4096);
        assert_eq!(parsed.anonymous_bytes, 28 * 4096);
        for garbage in ["", "1 2", "1 x 3", "1 2 -3", "1 99999999999999999999 3"] {
            assert_eq!(parse(garbage, 4096), None, "{garbage:?}");
        }
    }

    #[test]
    fn errors_say_what_is_missing() {
        let file = || PathBuf::from("/proc/self/statm");
        let unreadable = ResidentError::Unreadable {
            file: file(),
            kind: std::io::ErrorKind::NotFound,
            message: "not there".to_owned(),
        };
        let malformed = ResidentError::Malformed {
            file: file(),
            text: "1 x".to_owned(),
        };
        for (error, says) in [
            (ResidentError::Unsupported, "on Linux only"),
            (unreadable, "cannot read /proc/self/statm: not there"),
            (malformed, "1 x"),
        ] {
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn touched_memory_is_resident() {
        const BYTES: usize = 64 << 20;
        let before = resident().unwrap();
        let mut memory = vec![0_u8; BYTES];
        memory
            .iter_mut()
            .step_by(page_bytes() as usize)
            .for_each(|byte| *byte = 1);
        std::hint::black_box(&mut memory);
        let after = resident().unwrap();
        // Half of the bytes: other tests of this process give memory back meanwhile, and counters are batched.
        let least = before.anonymous_bytes + BYTES as u64 / 2;
        assert!(after.anonymous_bytes >= least, "{before:?} {after:?}");
        assert!(after.bytes >= after.anonymous_bytes);
        assert!(before.anonymous_bytes < 64 << 40, "bytes, not nonsense");
    }

    #[cfg(not(target_os = "linux"))]
    #[test]
    fn other_systems_say_so() {
        assert_eq!(resident(), Err(ResidentError::Unsupported));
    }
}
