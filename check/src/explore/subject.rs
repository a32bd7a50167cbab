//! Subjects of exploration: the protocols, mechanisms with a planted bug, and published policies.

use crate::protocols::published::Case;
use crate::protocols::{self, Protocol};
use bursar_experiments::name_list::list;
use bursar_experiments::settings::nearest;
use bursar_sim::{Explorer, SectionKind, Sim, Topology};

/// Group of subjects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The protocols of the library, which must hold.
    Protocols,
    /// Mechanisms with a planted bug, which must be found.
    Planted,
    /// Published policies, which may read old numbers.
    Published,
}

/// One scenario.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) summary: String,
    /// A planted bug must be found; a protocol must hold; a published flush policy may let its readers down.
    pub(super) group: Group,
    cpus: usize,
    /// Whether each schedule leaves values that are never dropped; see [`Protocol::forks`].
    pub(super) forks: bool,
    scenario: Scenario,
}

/// Code of a scenario.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scenario {
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
    pub(super) subject: Subject,
    pub(super) sections: SectionKind,
}

impl Target {
    /// The explorer for it.
    pub(super) fn explorer(&self, seed: u64) -> Explorer {
        Explorer {
            // No scenario reads the ticks, and one node is enough for a few CPUs.
            topology: Topology::new(self.subject.cpus, 1, 1000),
            sections: self.sections,
            seed,
        }
    }

    pub(super) fn scenario(&self) -> Scenario {
        self.subject.scenario
    }

    /// Name on the command line.
    pub fn name(&self) -> &str {
        &self.subject.name
    }

    /// Name of its kind of sections on the command line.
    pub fn sections_name(&self) -> &'static str {
        match self.sections {
            SectionKind::Restartable => "restartable",
            SectionKind::Atomic => "atomic",
        }
    }
}

/// All there are.
fn all(group: Group) -> Vec<Subject> {
    let checked = |protocol: Protocol<Sim>| Subject {
        name: protocol.name.to_owned(),
        summary: protocol.summary.to_owned(),
        group,
        cpus: protocol.cpus,
        forks: protocol.forks,
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
                forks: false,
                scenario: Scenario::Checked(planted.broken),
            })
            .collect(),
        Group::Published => {
            let flushes = protocols::published::all().into_iter().map(|case| Subject {
                name: case.name(),
                summary: case.summary(),
                group,
                cpus: case.cpus(),
                forks: false,
                scenario: Scenario::Judged(case),
            });
            let pages = protocols::published_pages::all().into_iter().map(checked);
            flushes.chain(pages).collect()
        }
    }
}

/// The one of that name.
fn named(all: &[Subject], name: &str) -> Result<Subject, String> {
    if let Some(subject) = all.iter().find(|subject| subject.name == name) {
        return Ok(subject.clone());
    }
    let nearest = nearest(name, all.iter().map(|subject| subject.name.as_str()));
    let hint = nearest.map_or_else(String::new, |nearest| {
        format!("; did you mean `{nearest}`?")
    });
    let names = list(all.iter().map(|subject| subject.name.as_str()));
    Err(format!(
        "unknown protocol `{name}`{hint}\n  there are:{names}"
    ))
}

/// Returns the targets that are named, each once and in the order of their names, with each kind of sections; all of the group if
/// none is named.
pub fn targets(
    group: Group,
    names: &[String],
    kinds: &[SectionKind],
) -> Result<Vec<Target>, String> {
    let all = all(group);
    let mut subjects: Vec<Subject> = Vec::new();
    for name in names {
        let subject = named(&all, name)?;
        if !subjects.iter().any(|other| other.name == subject.name) {
            subjects.push(subject);
        }
    }
    if subjects.is_empty() {
        subjects = all;
    }
    let with_kinds = |subject: Subject| {
        kinds.iter().map(move |&sections| Target {
            subject: subject.clone(),
            sections,
        })
    };
    Ok(subjects.into_iter().flat_map(with_kinds).collect())
}
