//! The policies as values.

/// Who flushes what, who waits and who skips, when statistics are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// Always the whole tree; one flusher at a time, everybody else skips and reads what is there. What the kernel did
    /// when the thread began (6.5).
    Unified,
    /// Everybody takes the global lock and flushes the subtree that is read.
    Direct,
    /// The subtree that is read, if nobody else flushes; else one flush of the whole tree that all others wait for. The
    /// thread's first version.
    Coalesced {
        /// How many may wait at once; whoever comes beyond that skips. The thread: the number of CPUs.
        max_waiters: u64,
    },
    /// The subtree that is read, if enough was updated in it; under a mutex, with a second look at the threshold once it
    /// is held. The thread's last version.
    PerGroup,
}

/// What a flush covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole tree.
    Root,
    /// The group that is read and everything below it.
    Subtree,
}

/// Where updates are counted to decide whether a flush is worth it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// One count for the tree, reset by flushes of the whole tree.
    Global,
    /// One count a group, kept for the group and all its ancestors, reset for each group that is flushed.
    PerGroup,
}

impl Policy {
    /// The name in files, tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Unified => "unified",
            Policy::Direct => "direct",
            Policy::Coalesced { .. } => "coalesced",
            Policy::PerGroup => "per-group",
        }
    }

    /// What it does, in one line for people who have not read the thread.
    pub fn summary(self) -> &'static str {
        match self {
            Policy::Unified => {
                "one flusher does the whole tree, other readers skip and take old numbers"
            }
            Policy::Direct => "every reader takes one global lock and flushes what it reads",
            Policy::Coalesced { .. } => {
                "first reader flushes what it reads, others wait for one flush of the whole tree"
            }
            Policy::PerGroup => "readers flush what they read, but only after enough updates in it",
        }
    }

    /// Where its updates are counted.
    pub fn threshold(self) -> Threshold {
        match self {
            Policy::Unified | Policy::Direct | Policy::Coalesced { .. } => Threshold::Global,
            Policy::PerGroup => Threshold::PerGroup,
        }
    }

    /// Whether its periodic flush gives up where another flush is running, instead of waiting for the lock.
    pub fn periodic_skips(self) -> bool {
        match self {
            Policy::Unified | Policy::Coalesced { .. } => true,
            Policy::Direct | Policy::PerGroup => false,
        }
    }
}
