//! The variants: rules for the time at which each CPU's upkeep fires.

use bursar_kernel::upkeep::{Firing, KERNEL_SKEW};

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

const fn variant(name: &'static str, firing: Firing, summary: &'static str) -> Variant {
    Variant {
        name,
        summary,
        firing,
    }
}

#[rustfmt::skip]
pub(super) const VARIANTS: [Variant; 7] = [
    variant("upstream", Firing::RoundJiffies { skew: KERNEL_SKEW },
        "the kernel's: rounded to the second, less 3 ticks a CPU"),
    variant("stretched", Firing::Stretched { rounded: false },
        "the thread's first version: the interval grows with the CPU's number, up to twice, and is not rounded"),
    variant("stretched-rounded", Firing::Stretched { rounded: true },
        "the interval grows with the CPU's number, and is rounded as upstream: unequal intervals without the wider spread"),
    variant("spread", Firing::Spread,
        "the thread's last version: a first delay that grows with the CPU's number, then the plain interval"),
    variant("skew-13", Firing::RoundJiffies { skew: 13 },
        "upstream with 13 ticks a CPU"),
    variant("phase-wheel", Firing::PhaseGrid { exact: false },
        "a phase of its own for each CPU, in absolute time; on the timer wheel"),
    variant("phase-exact", Firing::PhaseGrid { exact: true },
        "a phase of its own for each CPU, in absolute time; on exact timers"),
];

impl Variant {
    pub(super) fn named(name: &str) -> Option<Self> {
        VARIANTS.into_iter().find(|variant| variant.name == name)
    }
}
