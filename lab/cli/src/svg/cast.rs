//! The variants of a document: which are Bursar's and the kernel's, their names and their lines.

use bursar_experiments::document::{Document, VariantResult};

use super::style::Stroke;
use super::style::{MOST_LINES, ONE_OF_MANY, OWN, UPSTREAM, other};

/// Question and main variants of an experiment.
struct Thread {
    experiment: &'static str,
    asked: &'static str,
    /// Bursar's variant.
    own: &'static str,
    /// The variant of the kernel before the thread.
    upstream: &'static str,
}

const THREADS: [Thread; 3] = [
    Thread {
        experiment: "memcg-flush",
        asked: "Does a read show what has already happened?",
        own: "combining",
        upstream: "unified",
    },
    Thread {
        experiment: "vmstat-spread",
        asked: "Do all CPUs do their upkeep at once?",
        own: "phase-exact",
        upstream: "upstream",
    },
    Thread {
        experiment: "pcp-batch-free",
        asked: "Who waits while many pages are freed?",
        own: "bounded",
        upstream: "whole",
    },
];

fn thread(experiment: &str) -> Option<&'static Thread> {
    let mut threads = THREADS.iter();
    threads.find(|thread| thread.experiment == experiment)
}

/// The question that an experiment answers, if it is known.
pub fn question(experiment: &str) -> Option<&'static str> {
    thread(experiment).map(|thread| thread.asked)
}

/// Part of a variant in its experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Bursar's own rule.
    Own,
    /// The kernel's rule before the thread.
    Upstream,
    Other,
}

/// A variant among the others of its document.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    pub result: &'a VariantResult,
    pub role: Role,
    pub stroke: Stroke,
}

impl Part<'_> {
    /// The name, with Bursar's in front of its own.
    pub fn label(&self) -> String {
        let (name, policy) = self.name();
        match policy {
            "" => name.to_owned(),
            policy => format!("{name} ({policy})"),
        }
    }

    /// The name that stands first, and what stands behind it, if anything.
    pub fn name(&self) -> (&str, &str) {
        match (self.role, self.result.name.as_str()) {
            (Role::Own, policy) => ("Bursar", policy),
            (Role::Upstream, "upstream") | (Role::Other, _) => (&self.result.name, ""),
            (Role::Upstream, policy) => (policy, "upstream"),
        }
    }

    /// Whether other variants have the same line.
    pub fn is_one_of_many(&self) -> bool {
        self.stroke == ONE_OF_MANY
    }

    /// Whether other variants are compared with this one.
    pub fn is_reference(&self) -> bool {
        self.role != Role::Other
    }
}

fn role(experiment: &str, variant: &str) -> Role {
    match thread(experiment) {
        Some(thread) if thread.own == variant => Role::Own,
        Some(thread) if thread.upstream == variant => Role::Upstream,
        _ => Role::Other,
    }
}

/// The variants of a document, in its order. Each has a line that differs from the others' where they are few; else Bursar's
/// and the kernel's do.
pub fn parts(document: &Document) -> Vec<Part<'_>> {
    of_variants(&document.experiment, document.variants.iter())
}

/// The same of variants of one experiment.
pub fn of_variants<'a>(
    experiment: &str,
    variants: impl ExactSizeIterator<Item = &'a VariantResult>,
) -> Vec<Part<'a>> {
    let is_few = variants.len() <= MOST_LINES;
    let mut others = 0..;
    let part = |result: &'a VariantResult| {
        let role = role(experiment, &result.name);
        let stroke = match role {
            Role::Own => OWN,
            Role::Upstream => UPSTREAM,
            Role::Other if is_few => other(others.next().unwrap_or_default()),
            Role::Other => ONE_OF_MANY,
        };
        Part {
            result,
            role,
            stroke,
        }
    };
    variants.map(part).collect()
}
