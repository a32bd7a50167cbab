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
            scenario,
        }
    }
}
