//! One planted bug.

/// A mechanism with a bug, and without it.
#[derive(Debug)]
pub struct Planted<M> {
    /// The class of the bug.
    pub name: &'static str,
    /// The bug.
    pub summary: &'static str,
    /// Number of CPUs of the machine.
    pub cpus: usize,
    /// Fails under some schedules.
    pub broken: fn(&M, u64),
    /// Fails under none.
    pub mended: fn(&M, u64),
}

/// One of the two versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Broken,
    Mended,
}
