//! The command line of `bursar-lab explore`.

use std::path::PathBuf;

use bursar_check::explore::Group;
use bursar_sim::{ScheduleId, SectionKind};
use clap::{Args, ValueEnum};

use bursar_term::options::whole;

pub const EXAMPLES: &str = "\
Examples:
  bursar-lab explore                   all protocols, 100,000 schedules together
  bursar-lab explore --schedules 1000000 --seed 7
  bursar-lab explore combining removal --sections atomic
  bursar-lab explore --planted         mechanisms with a bug, which must be found
  bursar-lab explore --published       the policies of the kernel threads
  bursar-lab explore --schedules 1000000 --ledger lab/docs/schedules.tsv
  bursar-lab explore removal --sections atomic --replay 7:1234:56

A schedule is SEED:NUMBER:LENGTH. NUMBER counts the schedules of a seed. The
first LENGTH choices are followed, and then the running task goes on. Without
LENGTH all choices are followed. The same command finds the same on any
machine, with any number of threads.

Exit codes:
  0    nothing is broken; with --planted every bug is found; with --published
       reads may be stale
  1    a protocol is broken, and the document has the command that shows it
       again; with --planted a bug was not found
  2    wrong usage: an unknown protocol, or a text that is no schedule
  3    not available here: permission denied
  130  interrupted by Ctrl-C or SIGTERM. The document has what was explored";

#[derive(Debug, Args)]
pub struct Explore {
    /// Protocols to explore [default: all]
    #[arg(value_name = "PROTOCOL")]
    pub protocols: Vec<String>,
    /// Number of schedules, shared evenly by all protocols and kinds of sections
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        allow_negative_numbers = true,
        value_parser = whole(1..=1_000_000_000_000)
    )]
    pub schedules: u64,
    /// Seed of the schedules [default: 1; with --ledger: above all seeds there]
    #[arg(
        long,
        value_name = "SEED",
        allow_negative_numbers = true,
        value_parser = whole(0..=u64::MAX)
    )]
    pub seed: Option<u64>,
    /// Number of the first schedule
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        allow_negative_numbers = true,
        value_parser = whole(0..=u64::MAX >> 1)
    )]
    pub from: u64,
    /// Add what was explored to this file, one protocol after the other, and print the sums of all its rows
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "planted", "published"])]
    pub ledger: Option<PathBuf>,
    /// Way in which a CPU's words are changed [default: both; with --published: restartable]
    #[arg(long, value_enum, value_name = "KIND")]
    pub sections: Option<Sections>,
    /// Explore mechanisms with a planted bug, which must be found
    #[arg(long, conflicts_with = "published")]
    pub planted: bool,
    /// Explore the published policies. A read is stale if it misses an update that had completed before it began. Page lists must
    /// lose no page, and hand out none twice
    #[arg(long)]
    pub published: bool,
    /// Run one schedule again
    #[arg(long, value_name = "SCHEDULE", conflicts_with_all = ["schedules", "seed", "from", "ledger"])]
    pub replay: Option<ScheduleId>,
}

impl Explore {
    /// The group to explore.
    pub fn group(&self) -> Group {
        match (self.planted, self.published) {
            (true, _) => Group::Planted,
            (_, true) => Group::Published,
            (false, false) => Group::Protocols,
        }
    }

    /// With which sections.
    pub fn kinds(&self) -> &'static [SectionKind] {
        let usual = match self.group() {
            Group::Published => Sections::Restartable,
            Group::Protocols | Group::Planted => Sections::Both,
        };
        self.sections.unwrap_or(usual).kinds()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sections {
    /// By restartable sections
    Restartable,
    /// By atomic operations
    Atomic,
    /// One after the other
    Both,
}

impl Sections {
    fn kinds(self) -> &'static [SectionKind] {
        match self {
            Sections::Restartable => &[SectionKind::Restartable],
            Sections::Atomic => &[SectionKind::Atomic],
            Sections::Both => &[SectionKind::Restartable, SectionKind::Atomic],
        }
    }
}
