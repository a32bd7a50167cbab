//! Subjects of exploration: the protocols, mechanisms with a planted bug, and published policies.

use bursar_experiments::names::list;
use bursar_experiments::protocols::published::Case;
use bursar_experiments::protocols::{self, Protocol};
use bursar_experiments::settings::nearest;
use bursar_sim::{Explorer, SectionKind, Sim, Topology};

use crate::failure::Failure;

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Protocols,
    Planted,
    Published,
}

/// One scenario.
#[derive(Clone, Debug)]
pub struct Subject {
    pub name: String,
    pub summary: String,
    /// A planted bug must be found; a protocol must hold; a published flush policy may let its readers down.
    pub group: Group,
    cpus: usize,
    scenario: Scenario,
}

/// Code of a scenario.
#[derive(Clone, Copy, Debug)]
pub enum Scenario {
    /// Panics where something is wrong.
    Checked(fn(&Sim, u64)),
    /// Tells of reads that are stale, and panics where something is wrong.
    Judged(Case),
}

impl Scenario {
    /// Whether stale reads are no failure, and counted.
    pub fn is_judged(self) -> bool {
        matches!(self, Scenario::Judged(_))
    }

    /// Runs it once, with variety from a number. Panics where something is wrong, or stale.
    pub fn run(self, machine: &Sim, variety: u64) {
        match self {
            Scenario::Checked(scenario) => scenario(machine, variety),
            Scenario::Judged(case) => case.scenario(machine, variety),
        }
    }
}

/// A scenario with one kind of sections.
#[derive(Clone, Debug)]
pub struct Target {
    pub subject: Subject,
    pub sections: SectionKind,
}

impl Target {
    /// The explorer for it.
    pub fn explorer(&self, seed: u64) -> Explorer {
        Explorer {
            // No scenario reads the ticks, and one node is enough for a few CPUs.
            topology: Topology::new(self.subject.cpus, 1, 1000),
            sections: self.sections,
            seed,
        }
    }

    pub fn scenario(&self) -> Scenario {
        self.subject.scenario
    }

    pub fn sections_name(&self) -> &'static str {
        match self.sections {
            SectionKind::Restartable => "restartable",
            SectionKind::Atomic => "atomic",
        }
    }
}

/// All there are.
pub fn all(group: Group) -> Vec<Subject> {
    let checked = |protocol: Protocol<Sim>| Subject {
        name: protocol.name.to_owned(),
        summary: protocol.summary.to_owned(),
        group,
        cpus: protocol.cpus,
        scenario: Scenario::Checked(protocol.scenario),
    };
    match group {
        Group::Protocols => protocols::all().into_iter().map(checked).collect(),
        Group::Planted => protocols::planted::all()
            .into_iter()
            .map(|planted| Subject {
                name: planted.name.to_owned(),
                summary: planted.summary.to_owned(),
                group,
                cpus: planted.cpus,
                scenario: Scenario::Checked(planted.broken),
            })
            .collect(),
        Group::Published => {
            let flushes = protocols::published::all().into_iter().map(|case| Subject {
                name: case.name(),
                summary: case.summary(),
                group,
                cpus: case.cpus(),
                scenario: Scenario::Judged(case),
            });
            let pages = protocols::published_pages::all().into_iter().map(checked);
            flushes.chain(pages).collect()
        }
    }
}

/// The one of that name.
pub fn named(all: &[Subject], name: &str) -> Result<Subject, Failure> {
    if let Some(subject) = all.iter().find(|subject| subject.name == name) {
        return Ok(subject.clone());
    }
    let nearest = nearest(name, all.iter().map(|subject| subject.name.as_str()));
    let hint = nearest.map_or_else(String::new, |nearest| {
        format!("; did you mean `{nearest}`?")
    });
    let names = list(all.iter().map(|subject| subject.name.as_str()));
    Err(Failure::usage(format!(
        "unknown protocol `{name}`{hint}\n  there are:{names}"
    )))
}
