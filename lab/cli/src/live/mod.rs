//! A running server's groups: `bursar stat` prints them once, `bursar top` shows them as they change. Both ask the socket of
//! `bursar-serve`.

mod client;
mod document;
mod model;
mod screen;
mod stat;
mod top;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

pub use stat::stat;
pub use top::top;

use crate::options::whole;

pub const STAT_EXAMPLES: &str = "\
Examples:
  bursar stat                         the only server of this user
  bursar stat --pid 4711              the server in this process
  bursar stat --path /acme --depth 1  one tenant and its queries
  bursar stat --freshness exact -f json";

pub const TOP_EXAMPLES: &str = "\
Examples:
  bursar top                          the only server of this user
  bursar top --pid 4711 --every 500ms
  bursar top --path /acme             one tenant
  bursar top --once -f json           the groups now, for a program";

pub const TOP_KEYS: &str = "\
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
#[derive(Debug, Args)]
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

#[derive(Debug, Args)]
pub struct Stat {
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
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
