//! Living consumers, as refusals name them.

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
    /// Bytes held, if known: of the consumer that asks, and of those that take part in a share. Counting the others'
    /// bytes would slow down each request.
    pub(crate) held: Option<u64>,
}

impl Live {
    /// Returns whether it belongs to an operator.
    pub(crate) fn is_of(&self, operator: &OperatorReport) -> bool {
        *self.operator.name() == *operator.name
    }

    /// Returns whether the operator's line already says all that is known of this consumer, if it is the only one.
    pub(crate) fn is_called(&self, operator: &OperatorReport) -> bool {
        *self.name == *operator.name || self.label() == operator.name
    }

    fn label(&self) -> String {
        format!("{}#{}", self.name, self.id)
    }
}

/// Sorts by size, the biggest known first, then by age, the oldest first.
pub(crate) fn sort(consumers: &mut [Live]) {
    consumers.sort_by_key(|one| (Reverse(one.held), one.id));
}

/// Shows the name, the number and, if known, the bytes held.
impl fmt::Display for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())?;
        match self.held {
            Some(held) => write!(f, " {}", Bytes(held)),
            None => Ok(()),
        }
    }
}
