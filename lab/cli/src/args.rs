//! The command line.

use std::path::PathBuf;

use bursar_term::help::EXAMPLES_FIRST;
use bursar_term::options::{Global, whole};
use bursar_term::shell::{Completions, Man};
use clap::{Args as ClapArgs, ColorChoice, Parser, Subcommand};

use crate::compare::{Compare, EXAMPLES as COMPARE_EXAMPLES};
use crate::explore::{EXAMPLES as EXPLORE_EXAMPLES, Explore};

const EXAMPLES: &str = "\
Examples:
  bursar-lab run                      three questions, answered on one screen
  bursar-lab list memcg-flush         its loads, variants and parameters
  bursar-lab run memcg-flush          all its loads, with all figures
  bursar-lab run memcg-flush -m host  with real threads on this machine
  bursar-lab run vmstat-spread -s cpus=72,384,1024 --quick -o herds.html
  bursar-lab run memcg-flush --seeds 20 -o out.json
  bursar-lab report out.json          the tables of a result
  bursar-lab compare before.json after.json
  bursar-lab explore --schedules 1000000

The width of tables is that of the terminal, or COLUMNS if it is set. Pipes and
files get lines of any length.

";

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    done, but something does not hold that must hold on any machine, or
       `compare` found something clearly worse, or no draw of `calibrate` fitted
  2    wrong usage: a flag, name, value, path or file that makes no sense
  3    not available here: a permission, a backend, or a run that failed. The
       document has the runs that finished, and says so
  130  interrupted by Ctrl-C or SIGTERM. The document has the runs that had
       finished, and says so";

const CALIBRATION: &str = "\
A draw gives each uncertain constant of the cost model, and each parameter in
[uncertain] of the experiment's file, a value from its range. A draw fits if
every figure of each `calibration` row is within its tolerance.

The output is TOML, for the file beside the experiment's. The experiment uses
it after the next build.

Examples:
  bursar-lab calibrate memcg-flush -o experiments/memcg-flush.draws.toml";

const MACHINES: &str = "\
`bursar-lab run` alone also writes a page with pictures: to bursar-run.html in
the current directory, or to the FILE.html of -o. Of its own accord it replaces
only a page that it wrote. With -f, the figures of the same runs are printed in
that form; -v adds all tables to the screen.

Machines:
  host               this machine, with real threads
  sim                the simulated machine of the experiment's file
  sim:KEY=VALUE,...  another one. Keys: cpus, nodes, cluster, threads, hz,
                     lock=queued|ticket|unfair, preempt=user|kernel.
                     cpus must be given; nodes is 1 by default; hz, lock and
                     preempt are by default the experiment's
  -m sim -s hz=250   the experiment's machine with one key changed

A list of values is a sweep: -s cpus=72,384 -s readers=100,1000 gives four
documents, in this order. Keys of the machine can be set like parameters, and
take the place of those of -m. -s may set no key twice.
`bursar-lab list EXPERIMENT` lists loads, variants and parameters.";

const RUN_EXAMPLES: &str = "\
Examples:
  bursar-lab run                              three questions on one screen
  bursar-lab run --quick                      the quick form of every experiment
  bursar-lab run memcg-flush --quick          that of one
  bursar-lab run memcg-flush -m host          with real threads on this machine
  bursar-lab run memcg-flush -m sim:cpus=8 -s load=small -s readers=10,100
  bursar-lab run memcg-flush --seeds 20 -o out.json";

const LIST_EXAMPLES: &str = "\
Examples:
  bursar-lab list                        the experiments, a line each
  bursar-lab list memcg-flush            its loads, variants and parameters
  bursar-lab list memcg-flush -f json    the same for programs";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(bursar-lab completions bash)
  bursar-lab completions zsh -o ~/.zfunc/_bursar-lab
  bursar-lab completions fish -o ~/.config/fish/completions/bursar-lab.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  bursar-lab man -o bursar-lab.1          the page of the program
  bursar-lab man run -o bursar-lab-run.1  the page of a command
  bursar-lab man run | man -l -";

const REPORT_EXAMPLES: &str = "\
Examples:
  bursar-lab report out.json                  the tables of a result
  bursar-lab report out.json -o out.html      a page with pictures and tables
  bursar-lab report large.json small.json     results of two runs, together";

const REPORT_CODES: &str = "\
Exit codes:
  0  done
  1  done, but the results have something that does not hold
  2  a file that is no result, or is read and written at once
  3  permission denied";

/// Memory accounting for many tenants in one process, judged by experiment.
#[derive(Debug, Parser)]
#[command(name = "bursar-lab", version, after_help = format!("{EXAMPLES}{EXIT_CODES}"), color = ColorChoice::Auto)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub global: Global,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run experiments and print their figures
    #[command(help_template = EXAMPLES_FIRST, before_help = RUN_EXAMPLES, after_help = format!("{MACHINES}\n\n{EXIT_CODES}"))]
    Run(Run),
    /// Print results from files
    #[command(help_template = EXAMPLES_FIRST, before_help = REPORT_EXAMPLES, after_help = REPORT_CODES)]
    Report(Report),
    /// Compare two results: figures that are clearly better, and clearly worse
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(Compare),
    /// Search many schedules for one that breaks a protocol of the library
    #[command(after_help = EXPLORE_EXAMPLES)]
    Explore(Explore),
    /// Draw an experiment's uncertain constants, and print the draws that fit
    #[command(after_help = CALIBRATION)]
    Calibrate(Calibrate),
    #[command(help_template = EXAMPLES_FIRST, before_help = LIST_EXAMPLES)]
    /// List the experiments, or the loads, variants and parameters of one
    List(List),
    /// Print the completions of a shell
    #[command(before_help = COMPLETIONS_EXAMPLES, help_template = EXAMPLES_FIRST)]
    Completions(Completions),
    /// Print a man page
    #[command(before_help = MAN_EXAMPLES, help_template = EXAMPLES_FIRST)]
    Man(Man),
}

#[derive(Debug, ClapArgs)]
pub struct Run {
    /// Experiments to run. Without a name or an option: three questions on one screen. Without a name: all
    #[arg(value_name = "EXPERIMENT")]
    pub experiments: Vec<String>,
    /// Machine: `host`, `sim` or `sim:KEY=VALUE,...` [default: the one of the experiment's file]
    #[arg(short, long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// Set a parameter of the experiment or a key of its machine, or sweep over several values. Once for each key
    #[arg(short, long = "set", value_name = "KEY=VALUE[,VALUE]...")]
    pub set: Vec<String>,
    /// Number of seeds for each variant; figures of all seeds are reported together
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true, value_parser = whole(1..=1_000))]
    pub seeds: u64,
    /// Shorter run; prints figures but no verdicts. Implied if no experiment is named
    #[arg(long)]
    pub quick: bool,
}

impl Run {
    /// Whether nothing is asked for but what `bursar-lab run` does by itself.
    pub fn is_alone(&self) -> bool {
        self.experiments.is_empty()
            && self.machine.is_none()
            && self.set.is_empty()
            && self.seeds == 1
            && !self.quick
    }
}

#[derive(Debug, ClapArgs)]
pub struct Calibrate {
    /// The experiment
    #[arg(value_name = "EXPERIMENT")]
    pub experiment: String,
    /// Stop after N draws that fit
    #[arg(long, value_name = "N", default_value_t = 20, allow_negative_numbers = true, value_parser = whole(1..=10_000))]
    pub keep: u64,
    /// Try at most N draws
    #[arg(long, value_name = "N", default_value_t = 1_000, allow_negative_numbers = true, value_parser = whole(1..=1_000_000))]
    pub draws: u64,
    /// Seed of the draws
    #[arg(long, value_name = "SEED", default_value_t = 1, allow_negative_numbers = true, value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
}

#[derive(Debug, ClapArgs)]
pub struct List {
    /// The experiment to describe; without it, all are listed
    #[arg(value_name = "EXPERIMENT")]
    pub experiment: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub struct Report {
    /// Files that `bursar-lab run -f json` wrote
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
}
