//! What can be explored: the protocols, and mechanisms with a planted bug.

use bursar_lab::protocols;
use bursar_lab::settings::nearest;
use bursar_sim::{Explorer, SectionKind, Sim, Topology};

use crate::failure::Failure;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Protocols,
    Planted,
}

/// One scenario.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub name: &'static str,
    pub summary: &'static str,
    /// A planted bug must be found; a protocol must hold.
    pub group: Group,
    cpus: usize,
    scenario: fn(&Sim, u64),
}

/// A scenario with one kind of sections.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub subject: Subject,
    pub sections: SectionKind,
}

impl Target {
    /// The explorer for it.
    pub fn explorer(&self, seed: u64) -> Explorer {
        Explorer {
            // Nobody reads the ticks, and one node is enough for a few CPUs.
            topology: Topology::new(self.subject.cpus, 1, 1000),
            sections: self.sections,
            seed,
        }
    }

    pub fn scenario(&self) -> fn(&Sim, u64) {
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
    match group {
        Group::Protocols => protocols::all()
            .into_iter()
            .map(|protocol| Subject {
                name: protocol.name,
                summary: protocol.summary,
                group,
                cpus: protocol.cpus,
                scenario: protocol.scenario,
            })
            .collect(),
        Group::Planted => protocols::planted::all()
            .into_iter()
            .map(|planted| Subject {
                name: planted.name,
                summary: planted.summary,
                group,
                cpus: planted.cpus,
                scenario: planted.broken,
            })
            .collect(),
    }
}

/// The one of that name.
pub fn named(all: &[Subject], name: &str) -> Result<Subject, Failure> {
    if let Some(subject) = all.iter().find(|subject| subject.name == name) {
        return Ok(*subject);
    }
    let nearest = nearest(name, all.iter().map(|subject| subject.name));
    let hint = nearest.map_or_else(String::new, |nearest| {
        format!("; did you mean `{nearest}`?")
    });
    let names: Vec<_> = all.iter().map(|subject| subject.name).collect();
    Err(Failure::usage(format!(
        "unknown protocol `{name}`; there are: {}{hint}",
        names.join(", ")
    )))
}
