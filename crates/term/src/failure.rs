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
            message: harmless(&message.to_string()),
        }
    }

    /// This machine or system does not provide what is needed.
    pub fn unavailable(message: impl fmt::Display) -> Self {
        Self {
            code: UNAVAILABLE,
            message: harmless(&message.to_string()),
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
    let _ = writeln!(std::io::stderr(), "warning: {}", harmless(message));
}

/// A message may quote a file. Escapes all that a terminal obeys, but for ends of lines.
fn harmless(message: &str) -> String {
    let is_obeyed = |letter: char| {
        let changes_direction = matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        );
        changes_direction || letter.is_control() && letter != '\n'
    };
    let mut shown = String::with_capacity(message.len());
    for letter in message.chars() {
        match is_obeyed(letter) {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_does_not_write_to_the_terminal_of_its_reader() {
        let message = "a\u{1b}[2J\nb\u{61c}\u{202e}\u{e9}\u{85}";
        let shown = "a\\u{1b}[2J\nb\\u{61c}\\u{202e}\u{e9}\\u{85}";
        assert_eq!(Failure::usage(message).message(), shown);
        assert_eq!(Failure::unavailable(message).message(), shown);
    }
}
