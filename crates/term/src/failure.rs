//! Ends of a command that cannot do its work, with their exit codes.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

/// Something that must hold did not.
pub const EXPECTATION_FAILED: u8 = 1;
/// The command line asks for something that does not exist or makes no sense.
pub const USAGE: u8 = 2;
/// This machine or system does not provide what is needed.
pub const UNAVAILABLE: u8 = 3;
/// Stopped by the user.
pub const INTERRUPTED: u8 = 130;

/// An exit code other than 0 and what to say about it.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// The command line asks for something that does not exist or makes no sense.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self {
            code: USAGE,
            message: message.to_string(),
        }
    }

    /// This machine or system does not provide what is needed.
    pub fn unavailable(message: impl fmt::Display) -> Self {
        Self {
            code: UNAVAILABLE,
            message: message.to_string(),
        }
    }

    /// The message alone.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Says it on standard error. A closed standard error changes nothing.
    pub fn report(&self) -> ExitCode {
        let _ = writeln!(std::io::stderr(), "error: {}", self.message);
        ExitCode::from(self.code)
    }
}

/// Says a warning on standard error. A closed standard error changes nothing.
pub fn warn(message: &str) {
    let _ = writeln!(std::io::stderr(), "warning: {message}");
}
