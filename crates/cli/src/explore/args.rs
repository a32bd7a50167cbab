//! The command line of `bursar explore`.

use bursar_sim::{ScheduleId, SectionKind};
use clap::{Args, ValueEnum};

use super::subject::Group;
use crate::args::whole;

pub const EXAMPLES: &str = "\
Examples:
  bursar explore                                    all protocols, 100,000 schedules together
  bursar explore --schedules 1000000 --seed 7       longer, and other schedules
  bursar explore combining removal --sections atomic
  bursar explore --planted                          that the explorer finds bugs which were planted
  bursar explore --published                        whose readers get fresh numbers, of the kernel threads' policies
  bursar explore removal --sections atomic --replay 7:1234:56

A schedule is SEED:NUMBER:LENGTH: which of the seed's schedules, and how many of its choices are followed before whoever
runs just goes on; without LENGTH all are. The same command finds the same, on any machine and with any number of threads.

Exit codes:
  0  nothing is broken (with --planted: everything is found; with --published: also where reads are stale)
  1  a protocol is broken, and how is in the document, with the command that shows it again (with --planted: a bug was
     not found)
  2  wrong usage: unknown protocol, a text that is no schedule
  3  not available here: permission denied
  130  interrupted (Ctrl-C or SIGTERM); the document says what was explored";

#[derive(Debug, Args)]
pub struct Explore {
    /// Protocols to explore; all there are if none is named
    #[arg(value_name = "PROTOCOL")]
    pub protocols: Vec<String>,
    /// Run this many schedules, shared by all protocols and kinds of sections (rounded up to equal shares)
    #[arg(long, value_name = "N", default_value_t = 100_000, allow_negative_numbers = true, value_parser = whole(1..=1_000_000_000_000))]
    pub schedules: u64,
    /// Which schedules
    #[arg(long, value_name = "SEED", default_value_t = 1, allow_negative_numbers = true, value_parser = whole(0..=u64::MAX))]
    pub seed: u64,
    /// How words of a CPU are changed [default: both; with --published: restartable, as the kernel's additions]
    #[arg(long, value_enum, value_name = "KIND")]
    pub sections: Option<Sections>,
    /// Explore mechanisms with a planted bug instead, which must be found
    #[arg(long, conflicts_with = "published")]
    pub planted: bool,
    /// Explore the published policies instead. Of those that flush: whether an update that had completed before a read began
    /// is in what the read returns; without a threshold, with their own where updates are below it, and where each is above
    /// it. Of those of page lists: that no page is lost or handed out twice
    #[arg(long)]
    pub published: bool,
    /// Run one schedule again
    #[arg(long, value_name = "SCHEDULE", conflicts_with_all = ["schedules", "seed"])]
    pub replay: Option<ScheduleId>,
}

impl Explore {
    /// What is to be explored.
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
