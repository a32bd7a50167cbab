//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use bursar_term::help::EXAMPLES_FIRST;
use bursar_term::options::{Global, whole};
use bursar_term::shell::{Completions, Man};
use clap::{Args as ClapArgs, ColorChoice, Parser, Subcommand};

const EXAMPLES: &str = "\
Examples:
  bursar top       who uses memory in a running server
  bursar stat      the same once, as a table or as JSON
  bursar doctor    how Bursar works on this machine, and why

The width of tables is that of the terminal, or COLUMNS if it is set. Pipes and
files get lines of any length. Experiments have a tool of their own: bursar-lab.

";

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  2    wrong usage: a flag, name, value, path or file that makes no sense
  3    not available here: a server, a permission or a backend
  130  interrupted by Ctrl-C or SIGTERM";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(bursar completions bash)
  bursar completions zsh -o ~/.zfunc/_bursar
  bursar completions fish -o ~/.config/fish/completions/bursar.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  bursar man -o bursar.1              the page of the program
  bursar man top -o bursar-top.1      the page of a command
  bursar man top | man -l -";

/// Memory of many tenants in one process: who uses it now, and how it is counted here.
#[derive(Debug, Parser)]
#[command(name = "bursar", version, after_help = format!("{EXAMPLES}{EXIT_CODES}"), color = ColorChoice::Auto)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: Global,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the memory groups of a running server as they change
    #[command(help_template = EXAMPLES_FIRST, before_help = TOP_EXAMPLES, after_help = TOP_KEYS)]
    Top(Top),
    /// Print the memory groups of a running server
    #[command(help_template = EXAMPLES_FIRST, before_help = STAT_EXAMPLES)]
    Stat(Stat),
    /// Show the backend of this machine, why it was chosen, and how to force another
    Doctor,
    /// Print the completions of a shell
    #[command(before_help = COMPLETIONS_EXAMPLES, help_template = EXAMPLES_FIRST)]
    Completions(Completions),
    /// Print a man page
    #[command(before_help = MAN_EXAMPLES, help_template = EXAMPLES_FIRST)]
    Man(Man),
}

const STAT_EXAMPLES: &str = "\
Examples:
  bursar stat                         the only server of this user
  bursar stat --pid 4711              the server in this process
  bursar stat --path /acme --depth 1  one tenant and its queries
  bursar stat --freshness exact -f json";

const TOP_EXAMPLES: &str = "\
Examples:
  bursar top                          the only server of this user
  bursar top --pid 4711 --every 500ms
  bursar top --path /acme             one tenant
  bursar top --once -f json           the groups now, for a program";

const TOP_KEYS: &str = "\
Keys:
  Up, Down, PgUp, PgDn, Home, End   select a group
  Left, Right, Enter                fold and unfold it
  s                                 sort: usage, share of limit, pressure,
                                    refusals, name
  /                                 show only groups whose path has a text;
                                    Esc shows all
  Space                             pause
  q, Ctrl-C                         end";

/// The server to ask, and the groups to ask for.
#[derive(Debug, ClapArgs)]
pub struct Target {
    /// Socket of the server
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    pub socket: Option<PathBuf>,
    /// Process of the server, whose socket has the usual path
    #[arg(long, value_name = "PID", value_parser = whole(1..=u64::from(u32::MAX)))]
    pub pid: Option<u64>,
    /// Show this group and those below it
    #[arg(long, value_name = "GROUP", default_value = "/")]
    pub path: String,
    /// Show so many levels below it [default: all]
    #[arg(long, value_name = "LEVELS", value_parser = whole(0..=64))]
    pub depth: Option<u64>,
    /// Age of the numbers: exact, cached, or at most an age such as 500ms
    #[arg(long, value_name = "AGE", default_value = "exact", value_parser = freshness)]
    pub freshness: String,
}

#[derive(Debug, ClapArgs)]
pub struct Stat {
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, ClapArgs)]
pub struct Top {
    #[command(flatten)]
    pub target: Target,
    /// Time between two looks, such as 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    pub every: Duration,
    /// Print the groups once, as `bursar stat` does
    #[arg(long)]
    pub once: bool,
}

fn freshness(text: &str) -> Result<String, String> {
    let is_age = |age: &str| age.parse::<u64>().is_ok();
    match text {
        "exact" | "cached" => Ok(text.to_owned()),
        age if age.strip_suffix("ms").is_some_and(is_age) => Ok(text.to_owned()),
        _ => Err("must be exact, cached, or an age such as 500ms".to_owned()),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let number = |suffix: &str| text.strip_suffix(suffix)?.parse::<u64>().ok();
    let ms = number("ms").or_else(|| number("s")?.checked_mul(1000));
    match ms {
        Some(ms @ 100..=3_600_000) => Ok(Duration::from_millis(ms)),
        _ => Err("must be a time from 100ms to 3600s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Args::command().debug_assert();
    }
}
