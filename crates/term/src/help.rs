//! The command line of a tool, with help that fits the terminal.

use clap::builder::StyledStr;
use clap::{Command, Parser};

use crate::width;

/// Help that begins with examples.
pub const EXAMPLES_FIRST: &str =
    "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// The width of help that does not go to a terminal.
const HELP_COLUMNS: usize = 80;

/// Parses the command line, or ends the process as clap does.
pub fn parse<A: Parser>() -> A {
    let width = width::of_stdout().unwrap_or(HELP_COLUMNS);
    let command = A::command().term_width(width);
    let matches = reflowed(command, width).try_get_matches();
    let parsed = matches.and_then(|matches| A::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| error.exit())
}

/// The command with help that fits: clap continues long lines at their first column, which takes examples apart.
fn reflowed(command: Command, width: usize) -> Command {
    let fitting = |text: Option<&StyledStr>| {
        let text = width::reflowed(&text?.to_string(), Some(width));
        Some(text.trim_end().to_owned())
    };
    let before = fitting(command.get_before_help());
    let after = fitting(command.get_after_help());
    let mut command = command;
    if let Some(before) = before {
        command = command.before_help(before);
    }
    if let Some(after) = after {
        command = command.after_help(after);
    }
    command.mut_subcommands(|command| reflowed(command, width))
}
