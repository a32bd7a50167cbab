//! `bursar-observe`: whether a running Linux kernel has three problems, from trace events, and what other policies would change.
//!
//! | command | files |
//! |---|---|
//! | `watch` | `watch.rs`; the command that runs meanwhile: `command.rs` |
//! | `read` | `read.rs`; files of all kinds: `recordings.rs` |
//! | the document of both | `document.rs`, `text.rs` |
//! | `replay` | `replay.rs`, `replay/` |
//! | forms of documents | `form.rs` |

#![forbid(unsafe_code)]

mod command;
mod document;
mod form;
mod read;
mod recordings;
mod replay;
mod text;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use bursar_term::help::{self, EXAMPLES_FIRST};
use bursar_term::options::Global;
use bursar_term::shell::{self, Completions, Man};
use bursar_watch::tracefs;
use clap::{Args as ClapArgs, ColorChoice, Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  bursar-observe watch                     10 s, upkeep and flushes
  bursar-observe watch --locks             waits for locks alone, two events each
  bursar-observe watch --deep -- make -j8  while a command runs, with page events
  bursar-observe read trace.dat            what did trace-cmd or perf record?
  bursar-observe replay node7.bursar       what would other policies change?";

const EXIT_CODES: &str = "\
Documents are tables, JSON (-f json) or a page (-f html).

Exit codes:
  0    done
  2    wrong usage, COMMAND does not exist, or a file is damaged or of another kind
  3    not available here: the message says which permission or kernel feature
       is missing
  130  interrupted by Ctrl-C or SIGTERM. The document has what was seen";

/// Tells whether a Linux kernel has three problems, and what other policies would change.
#[derive(Debug, Parser)]
#[command(name = "bursar-observe", version, help_template = EXAMPLES_FIRST, before_help = EXAMPLES, after_help = EXIT_CODES, color = ColorChoice::Auto)]
struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: Global,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tell whether the running Linux kernel has the three problems
    #[command(help_template = EXAMPLES_FIRST, before_help = watch::EXAMPLES, after_help = watch::NOTES)]
    Watch(watch::Watch),
    /// Print the same for a file: trace.dat of trace-cmd, perf.data, or a recording. Needs no root
    #[command(help_template = EXAMPLES_FIRST, before_help = read::EXAMPLES)]
    Read(read::Read),
    /// Replay a recording on a simulated machine, under its own policies and others. Needs no root
    #[command(help_template = EXAMPLES_FIRST, before_help = replay::EXAMPLES)]
    Replay(replay::Replay),
    /// Print the completions of a shell
    Completions(Completions),
    /// Print a man page
    Man(Man),
    /// Wait for the end of standard input, then remove an instance. For the tool itself
    #[command(hide = true)]
    Tidy(Tidy),
}

#[derive(Debug, ClapArgs)]
struct Tidy {
    instance: PathBuf,
    /// File system to unmount then
    #[arg(long)]
    mount: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = help::parse::<Args>();
    let global = &args.global;
    let ended = match &args.command {
        Command::Watch(watch) => watch::watch(watch, global),
        Command::Read(read) => read::read(read, global),
        Command::Replay(replay) => replay::replay(replay, global),
        Command::Completions(completions) => shell::completions::<Args>(completions, global),
        Command::Man(man) => shell::man::<Args>(man, global),
        Command::Tidy(Tidy { instance, mount }) => {
            tracefs::tidy(instance, mount.as_deref());
            Ok(ExitCode::SUCCESS)
        }
    };
    ended.unwrap_or_else(|failure| failure.report())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Args::command().debug_assert();
    }
}
