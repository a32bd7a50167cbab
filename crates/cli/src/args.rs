//! The command line.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ColorChoice, Parser, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  bursar run                                   every experiment there is, as a table
  bursar run memcg-flush -f json -o out.json   one experiment, as a document for programs
  bursar run memcg-flush -s readers=200 -s variants=combining,direct
  bursar doctor                                how Bursar works on this machine, and why

Exit codes:
  0  done
  1  done, and something that must hold on any machine did not
  2  wrong usage: unknown flag, experiment or parameter, a value that makes no sense, an output path that cannot exist
  3  not available here: permission denied, no such machine, a backend that does not work on this system
  130  interrupted";

/// Memory accounting for many tenants in one process, judged by experiment.
#[derive(Debug, Parser)]
#[command(name = "bursar", version, after_help = EXAMPLES, color = ColorChoice::Auto)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: Global,
}

/// Flags of all commands.
#[derive(Debug, ClapArgs)]
pub struct Global {
    /// Write the document here instead of to standard output
    #[arg(short, long, value_name = "FILE", global = true)]
    pub output: Option<PathBuf>,
    /// The document's form
    #[arg(short, long, value_enum, default_value_t = Format::Table, global = true)]
    pub format: Format,
    /// Colours in the table; NO_COLOR turns `auto` off
    #[arg(long, value_enum, default_value_t = Color::Auto, global = true)]
    pub color: Color,
    /// No progress
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say on standard error what is done, also where it is not a terminal
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// One document
    Json,
    /// One line a variant
    Ndjson,
    /// One line a number
    Csv,
    /// The table, for a web page
    Markdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run experiments and print what they measured
    #[command(after_help = EXAMPLES)]
    Run(Run),
    /// Say how Bursar works on this machine: the backend, why it was chosen, and how to force another
    Doctor,
}

#[derive(Debug, ClapArgs)]
pub struct Run {
    /// Experiments to run; all there are if none is named
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,
    /// Where: `host` is this machine, with real threads
    #[arg(short, long, value_name = "MACHINE", default_value = "host")]
    pub machine: String,
    /// Change a parameter of the experiment; may be given several times
    #[arg(short, long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Run each variant with this many seeds and report them together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Args::command().debug_assert();
    }
}
