//! The command line.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use bursar_lab::SeedShard;
use bursar_lab::settings::nearest;
use clap::error::{ContextKind, ContextValue};
use clap::{Args as ClapArgs, ColorChoice, Parser, Subcommand, ValueEnum};

use crate::choice::Format;
use crate::compare::{Compare, EXAMPLES as COMPARE_EXAMPLES};
use crate::explore::{EXAMPLES as EXPLORE_EXAMPLES, Explore};
use crate::list::{EXAMPLES as LIST_EXAMPLES, List};

const EXAMPLES: &str = "\
Examples:
  bursar run                                   every experiment there is, each on its own machine, as a table
  bursar run memcg-flush -m host               with real threads on this machine
  bursar run memcg-flush -m sim:cpus=384,nodes=2,hz=1000
  bursar run vmstat-spread -s cpus=72,384,1024 --quick -o herds.html
  bursar run pcp-batch-free -s batch_pages=1,63,512,4096 --quick
  bursar run memcg-flush -s cpus=72,384 -s read_interval_ms=100,10 --seeds 20 -f json -o out.json
  bursar run memcg-flush --seeds 20 --shard 3/4 -f json -o part-3.json
  bursar report part-1.json part-2.json part-3.json part-4.json
  bursar report out.json -o out.svg            a picture; -o out.html for a page with pictures and tables
  bursar compare before.json after.json        what is clearly better, and what clearly worse
  bursar run memcg-flush -s readers=200 -s variants=combining,direct
  bursar explore --schedules 1000000           whether any of a million schedules breaks a protocol
  bursar list memcg-flush                      its loads, variants and parameters
  bursar doctor                                how Bursar works on this machine, and why

Exit codes:
  0  done
  1  done, and something that must hold on any machine did not, or `compare`
     found something clearly worse
  2  wrong usage: unknown flag, experiment, parameter or key of a machine, a
     value that makes no sense, an output path that cannot exist, a file that is
     no result, results that are not parts of one run or cannot be compared
  3  not available here: permission denied, a backend that does not work on this
     system, a run that failed; runs that finished are in the document, which
     says so
  130  interrupted (Ctrl-C or SIGTERM); runs that had finished are in the
     document, which says so";

const CALIBRATION: &str = "\
Constants of the cost model are drawn from the ranges that their sources span, parameters from [uncertain] of the
experiment's file. A draw fits if each figure of each row marked `calibration` is within its tolerance. The file it prints
is the one beside the experiment's; the experiment must be built anew to use it.

Examples:
  bursar calibrate memcg-flush --keep 20 -o experiments/memcg-flush.draws.toml";

const MACHINES: &str = "\
Machines:
  host               this machine, with real threads
  sim                the simulated machine that the experiment's file names
  sim:KEY=VALUE,...  another one. Keys: cpus, nodes, cluster, threads, hz,
                     lock=queued|ticket|unfair, preempt=user|kernel.
                     cpus must be given; nodes is 1 by default; hz, lock and
                     preempt are by default the experiment's
  -m sim -s hz=250   the experiment's machine with one key changed

A list of values is a sweep: -s cpus=72,384 -s readers=100,1000 gives four
documents, in this order. Keys of the machine can be set like parameters.
No key may be set twice.
`bursar list EXPERIMENT` lists loads, variants and parameters.";

/// Help that begins with examples.
const EXAMPLES_FIRST: &str =
    "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

const RUN_EXAMPLES: &str = "\
Examples:
  bursar run                              every experiment in its quick form
  bursar run memcg-flush --quick          one of them
  bursar run memcg-flush -m host          with real threads on this machine
  bursar run memcg-flush -m sim:cpus=8 -s load=small -s readers=10,100
  bursar run memcg-flush --seeds 20 -o out.json
  bursar run memcg-flush --seeds 20 --shard 3/4 -o part-3.json";

const REPORT_EXAMPLES: &str = "\
Examples:
  bursar report out.json                  the tables of a result
  bursar report out.json -o out.html      a page with pictures and tables
  bursar report out.json -o out.svg       the pictures alone
  bursar report part-1.json part-2.json -o whole.json";

const REPORT_CODES: &str = "\
Exit codes:
  0  done
  1  done, and the results say that something did not hold that must hold on any machine
  2  a file that is no result, or is written and read at once; results that are not parts of one run
  3  permission denied";

/// Memory accounting for many tenants in one process, judged by experiment.
#[derive(Debug, Parser)]
#[command(name = "bursar", version, after_help = EXAMPLES, color = ColorChoice::Auto)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: Global,
}

/// The heading of flags that all commands have.
const SHARED: &str = "Options of every command";

/// Flags of all commands.
#[derive(Debug, ClapArgs)]
pub struct Global {
    /// Write the document here instead of to standard output
    #[arg(short, long, value_name = "FILE", global = true, help_heading = SHARED)]
    pub output: Option<PathBuf>,
    /// The document's form: table, json, ndjson, csv, markdown, and, of `run` and `report`, svg or html. By default the ending of
    /// FILE names it; without an ending it is a table
    #[arg(short, long, value_enum, global = true, hide_possible_values = true, help_heading = SHARED)]
    pub format: Option<Format>,
    /// Colours in the table: auto, always or never; NO_COLOR turns `auto` off
    #[arg(long, value_enum, default_value_t = Color::Auto, global = true, hide_possible_values = true, help_heading = SHARED)]
    pub color: Color,
    /// No progress
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = SHARED)]
    pub quiet: bool,
    /// Say on standard error what is done, also where it is not a terminal
    #[arg(short, long, global = true, help_heading = SHARED)]
    pub verbose: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

/// The exit codes in the help of the whole program, which are those of `run`.
fn exit_codes() -> &'static str {
    let begin = EXAMPLES.find("Exit codes:").unwrap_or(0);
    &EXAMPLES[begin..]
}

/// Parses the command line. A value that resembles none of the possible ones gets no suggestion: for `xml`, clap proposes `html`.
pub fn parse() -> Args {
    Args::try_parse().unwrap_or_else(|mut error| {
        if let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidValue)
            && let Some(ContextValue::String(suggested)) = error.get(ContextKind::SuggestedValue)
            && nearest(given, [suggested.as_str()].into_iter()).is_none()
        {
            error.remove(ContextKind::SuggestedValue);
        }
        error.exit()
    })
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run experiments and print what they measured
    #[command(help_template = EXAMPLES_FIRST, before_help = RUN_EXAMPLES, after_help = format!("{MACHINES}\n\n{}", exit_codes()))]
    Run(Run),
    /// Print results that are in files; parts of one run are merged
    #[command(help_template = EXAMPLES_FIRST, before_help = REPORT_EXAMPLES, after_help = REPORT_CODES)]
    Report(Report),
    /// Say which figures of a result are clearly better, and which clearly worse, than those of another one
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(Compare),
    /// Run the library's protocols under many schedules, and look for one that breaks them
    #[command(after_help = EXPLORE_EXAMPLES)]
    Explore(Explore),
    /// Draw what nobody knows of an experiment's machine and load, and print the draws that fit its calibration rows
    #[command(after_help = CALIBRATION)]
    Calibrate(Calibrate),
    #[command(help_template = EXAMPLES_FIRST, before_help = LIST_EXAMPLES)]
    /// List the experiments, or the loads, variants and parameters of one
    List(List),
    /// Say how Bursar works on this machine: the backend, why it was chosen, and how to force another
    Doctor,
}

#[derive(Debug, ClapArgs)]
pub struct Run {
    /// Experiments to run; all there are if none is named
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,
    /// Where: `host`, `sim`, or `sim:KEY=VALUE,...`; by default the machine that the experiment's file names
    #[arg(short, long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Change a parameter of the experiment or a key of its machine, or sweep over several values. May be given several times,
    /// once for each key
    #[arg(short, long = "set", value_name = "KEY=VALUE[,VALUE]...")]
    pub set: Vec<String>,
    /// Run each variant with this many seeds and report them together
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = whole(1..=1_000))]
    pub seeds: u64,
    /// Run the quick form: for less time, which rules on nothing. Implied where no experiment is named
    #[arg(long)]
    pub quick: bool,
    /// Run the I-th of N parts of the seeds only; `bursar report` merges the results
    #[arg(long, value_name = "I/N", value_parser = shard, default_value_t = SeedShard::WHOLE)]
    pub shard: SeedShard,
}

impl Run {
    /// Whether nothing is asked for but what `bursar run` does by itself.
    pub fn is_alone(&self) -> bool {
        self.experiments.is_empty()
            && self.machine.is_none()
            && self.set.is_empty()
            && self.seeds == 1
            && !self.quick
            && self.shard == SeedShard::WHOLE
    }
}

#[derive(Debug, ClapArgs)]
pub struct Calibrate {
    /// The experiment
    #[arg(value_name = "EXPERIMENT")]
    pub experiment: String,
    /// With how many that fit to end
    #[arg(long, value_name = "N", default_value_t = 20, allow_negative_numbers = true, value_parser = whole(1..=10_000))]
    pub keep: u64,
    /// How many draws to try at most
    #[arg(long, value_name = "N", default_value_t = 1_000, allow_negative_numbers = true, value_parser = whole(1..=1_000_000))]
    pub draws: u64,
    /// From which seed to draw
    #[arg(long, value_name = "SEED", default_value_t = 1, allow_negative_numbers = true, value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
}

/// A parser of whole numbers of a range.
pub fn whole(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| match (text.parse::<u64>(), text.parse::<i128>()) {
        (Ok(number), _) if range.contains(&number) => Ok(number),
        (_, Ok(_)) => Err(format!(
            "{text} is not in {}..={}",
            range.start(),
            range.end()
        )),
        _ => Err(format!(
            "must be a whole number from {} to {}",
            range.start(),
            range.end()
        )),
    }
}

fn shard(text: &str) -> Result<SeedShard, String> {
    let number = |text: &str| text.parse::<u64>().ok();
    let shard = text
        .split_once('/')
        .and_then(|(index, of)| Some((number(index)?, number(of)?)));
    match shard {
        Some((index, of)) if (1..=of).contains(&index) => Ok(SeedShard { index, of }),
        _ => Err("must be I/N with I from 1 to N".to_owned()),
    }
}

#[derive(Debug, ClapArgs)]
pub struct Report {
    /// Documents of `bursar run -f json`
    #[arg(value_name = "RESULT", required = true)]
    pub files: Vec<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Args::command().debug_assert();
    }

    #[test]
    fn shards_count_from_one() {
        let shard = super::shard("2/3").expect("a shard");
        assert_eq!((shard.index, shard.of), (2, 3));
        for wrong in ["", "1", "0/3", "4/3", "1/0", "-1/3", "a/b", "1/2/3"] {
            assert!(super::shard(wrong).is_err(), "{wrong}");
        }
    }
}
