//! The variants of a document: which are Bursar's and the kernel's, their names and their lines.

use bursar_experiments::document::{Document, VariantResult};

use super::style::{MOST_LINES, ONE_OF_MANY, OWN, Stroke, UPSTREAM, other};
use crate::view::{self, View};

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
    view: &'static View,
    pub role: Role,
    pub stroke: Stroke,
}

impl Part<'_> {
    /// The name, with whose policy it is.
    pub fn label(&self) -> String {
        self.view.label(&self.result.name)
    }

    /// The name that stands first, and the policy behind it, if it is another word.
    pub fn name(&self) -> (&str, &str) {
        self.view.name(&self.result.name)
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

fn role(view: &View, variant: &str) -> Role {
    match variant {
        variant if view.own == variant => Role::Own,
        variant if view.upstream == variant => Role::Upstream,
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
    let view = view::of_experiment(experiment);
    let mut others = 0..;
    let part = |result: &'a VariantResult| {
        let role = role(view, &result.name);
        let stroke = match role {
            Role::Own => OWN,
            Role::Upstream => UPSTREAM,
            Role::Other if is_few => other(others.next().unwrap_or_default()),
            Role::Other => ONE_OF_MANY,
        };
        Part {
            result,
            view,
            role,
            stroke,
        }
    };
    variants.map(part).collect()
}
