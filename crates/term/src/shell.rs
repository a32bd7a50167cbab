//! The commands `completions` and `man` of a tool: what a shell and `man` need to know of the command line.

use std::process::ExitCode;

use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man as Page;

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// Shell to complete for
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Command to describe [default: the program]
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,
}

/// Writes the completions of a shell.
pub fn completions<A: CommandFactory>(
    completions: &Completions,
    global: &Global,
) -> Result<ExitCode, Failure> {
    global.refuse_format("completions")?;
    let output = Output::open(global)?;
    let mut text = Vec::new();
    let mut command = A::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(completions.shell, &mut command, name, &mut text);
    write(output, text)
}

/// Writes a man page.
pub fn man<A: CommandFactory>(man: &Man, global: &Global) -> Result<ExitCode, Failure> {
    global.refuse_format("man")?;
    let mut program = A::command();
    program.build();
    let command = match &man.command {
        None => program,
        Some(name) => page_of(&program, name)?,
    };
    let output = Output::open(global)?;
    let mut text = Vec::new();
    Page::new(command)
        .render(&mut text)
        .map_err(Failure::unavailable)?;
    write(output, text)
}

/// The command with its examples where a man page has them.
fn page_of(program: &Command, name: &str) -> Result<Command, Failure> {
    let found = program.find_subcommand(name).cloned();
    let command = found.ok_or_else(|| {
        let names: Vec<_> = program.get_subcommands().map(Command::get_name).collect();
        let names = names.join(", ");
        Failure::usage(format!("unknown command `{name}`; there are {names}"))
    })?;
    let parts = [command.get_before_help(), command.get_after_help()];
    let parts: Vec<_> = parts
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    Ok(command.after_help(parts.join("\n\n")))
}

fn write(output: Output, text: Vec<u8>) -> Result<ExitCode, Failure> {
    let text = String::from_utf8(text).map_err(Failure::unavailable)?;
    // It can be made again at once, and is nothing to read.
    output.write(&text, |_| String::new())?;
    Ok(ExitCode::SUCCESS)
}
