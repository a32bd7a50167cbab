//! Reasons why a file of another program is not read.

use std::fmt;
use std::io;

/// Reason why a file of another program is not read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ForeignError {
    /// The file cannot be read.
    Io(io::Error),
    /// It begins as neither kind of file does.
    UnknownKind,
    /// It is a `trace.dat` of a version other than 6 and 7.
    UnknownVersion {
        /// The version, as the file has it.
        version: String,
    },
    /// It is of a machine with another order of bytes.
    OtherByteOrder,
    /// It is compressed.
    Compressed {
        /// The algorithm.
        by: String,
        /// A command that makes a file that can be read.
        remedy: &'static str,
    },
    /// It was recorded in a way that leaves out what is needed, or is not what was recorded itself.
    Recorded {
        /// The fault.
        fault: &'static str,
        /// The remedy, with a command.
        remedy: String,
    },
    /// Its clock does not count nanoseconds.
    Clock {
        /// Name of the clock.
        clock: String,
    },
    /// It is cut off.
    CutOff {
        /// Its length.
        bytes: u64,
        /// Length that its contents need.
        needed: u64,
    },
    /// Its contents are not what the format says.
    Damaged {
        /// Place in the file.
        offset: u64,
        /// The fault.
        why: &'static str,
    },
}

impl fmt::Display for ForeignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::UnknownKind => f.write_str("it is neither a trace.dat nor a perf.data"),
            Self::UnknownVersion { version } => write!(
                f,
                "it is a trace.dat of version {version}; versions 6 and 7 can be read"
            ),
            Self::OtherByteOrder => f.write_str(
                "it is of a machine with another order of bytes; read it on such a machine",
            ),
            Self::Compressed { by, remedy } => write!(f, "it is compressed by {by}; {remedy}"),
            Self::Recorded { fault, remedy } => write!(f, "{fault}; {remedy}"),
            Self::Clock { clock } => write!(
                f,
                "its clock `{clock}` does not count nanoseconds; record with `-C mono`"
            ),
            Self::CutOff { bytes, needed } => write!(
                f,
                "it is cut off at byte {bytes}: its contents need {needed} bytes"
            ),
            Self::Damaged { offset, why } => write!(f, "at byte {offset}: {why}"),
        }
    }
}

impl std::error::Error for ForeignError {}

impl From<io::Error> for ForeignError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
