//! The variants: rules for the time at which each CPU's upkeep fires.

use bursar::housekeeping::{Firing, KERNEL_SKEW};

/// A rule for the time at which upkeep fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Name in files.
    pub(super) name: &'static str,
    /// Description, in one line.
    pub(super) summary: &'static str,
    /// The rule.
    pub(super) firing: Firing,
}

pub(super) const VARIANTS: [Variant; 7] = [
    Variant {
        name: "upstream",
        summary: "the kernel's: rounded to the second, less 3 ticks a CPU",
        firing: Firing::RoundJiffies { skew: KERNEL_SKEW },
    },
    Variant {
        name: "stretched",
        summary: "the thread's first version: the interval grows with the CPU's number, up to twice, and is not rounded",
        firing: Firing::Stretched { rounded: false },
    },
    Variant {
        name: "stretched-rounded",
        summary: "the interval grows with the CPU's number, and is rounded as upstream: unequal intervals without the wider spread",
        firing: Firing::Stretched { rounded: true },
    },
    Variant {
        name: "spread",
        summary: "the thread's last version: a first delay that grows with the CPU's number, then the plain interval",
        firing: Firing::Spread,
    },
    Variant {
        name: "skew-13",
        summary: "upstream with 13 ticks a CPU",
        firing: Firing::RoundJiffies { skew: 13 },
    },
    Variant {
        name: "phase-wheel",
        summary: "a phase of its own for each CPU, in absolute time; on the timer wheel",
        firing: Firing::PhaseGrid { exact: false },
    },
    Variant {
        name: "phase-exact",
        summary: "a phase of its own for each CPU, in absolute time; on exact timers",
        firing: Firing::PhaseGrid { exact: true },
    },
];

impl Variant {
    pub(super) fn named(name: &str) -> Option<Self> {
        VARIANTS.into_iter().find(|variant| variant.name == name)
    }
}
