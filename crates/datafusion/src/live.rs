//! Consumers that live, as refusals name them.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use bursar::Bytes;

use crate::operators::Operator;
use crate::report::OperatorReport;

/// A consumer between its registration and its end.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) id: usize,
    pub(crate) name: Arc<str>,
    pub(crate) can_spill: bool,
    pub(crate) operator: Arc<Operator>,
    /// Bytes, if they are known: those of one that asks, and of those that take part in a share. To count others' would cost each
    /// request.
    pub(crate) held: Option<u64>,
}

impl Live {
    /// Whether it is one of that operator's.
    pub(crate) fn is_of(&self, operator: &OperatorReport) -> bool {
        *self.operator.name() == *operator.name
    }

    /// Whether the operator's line says all that is known of it, if it is the only one.
    pub(crate) fn is_called(&self, operator: &OperatorReport) -> bool {
        *self.name == *operator.name || self.label() == operator.name
    }

    fn label(&self) -> String {
        format!("{}#{}", self.name, self.id)
    }
}

/// The biggest first, as far as that is known, then the oldest.
pub(crate) fn sort(consumers: &mut [Live]) {
    consumers.sort_by_key(|one| (Reverse(one.held), one.id));
}

/// Its name, its number and, if known, what it holds.
impl fmt::Display for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())?;
        match self.held {
            Some(held) => write!(f, " {}", Bytes(held)),
            None => Ok(()),
        }
    }
}
