//! Registrations of user code with a group: reclaimers, pressure callbacks, tasks at work.

use std::fmt;

use bursar_machine::Machine;

use crate::group::Group;
use crate::react::Core;

/// A registration with a group, which lasts until this value is dropped. It keeps the group like a handle.
#[must_use = "dropping a registration ends it"]
pub struct Registration {
    kind: &'static str,
    group: String,
    end: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Registration {
    /// Registration that `end` ends. It refers to the group until then.
    pub(crate) fn new<M: Machine>(
        kind: &'static str,
        group: &Group<M>,
        end: impl FnOnce(&Core<M>, u32) + Send + Sync + 'static,
    ) -> Self {
        let kept = group.clone();
        Self {
            kind,
            group: group.path(),
            end: Some(Box::new(move || end(kept.core(), kept.index()))),
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registration")
            .field(&format_args!("{}", self.kind))
            .field(&self.group)
            .finish()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
    }
}
