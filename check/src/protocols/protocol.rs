//! One protocol.

/// One protocol, and the scenario that tests it.
#[derive(Debug)]
pub struct Protocol<M> {
    /// Name on the command line.
    pub name: &'static str,
    /// Concurrent operations, and the properties that must hold.
    pub summary: &'static str,
    /// Number of CPUs of the machine.
    pub cpus: usize,
    /// Whether tasks fork. Values on the stacks of tasks that are gone are never dropped, as in the child of a process: only the
    /// end of the explorer's process returns their memory.
    pub forks: bool,
    /// Runs it once, with variety from a number. Panics at an error.
    pub scenario: fn(&M, u64),
}

impl<M> Protocol<M> {
    pub(super) fn of(
        cpus: usize,
        name: &'static str,
        scenario: fn(&M, u64),
        summary: &'static str,
    ) -> Self {
        Self {
            name,
            summary,
            cpus,
            forks: false,
            scenario,
        }
    }

    /// The same, of tasks that fork.
    pub(super) fn of_forks(self) -> Self {
        Self {
            forks: true,
            ..self
        }
    }
}
