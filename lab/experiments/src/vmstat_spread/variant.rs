//! The variants: rules for the time at which each CPU's upkeep fires.

use bursar_kernel::upkeep::{Firing, KERNEL_SKEW};

/// Name, description in one line, and rule of each.
#[rustfmt::skip]
pub(super) const VARIANTS: [(&str, &str, Firing); 7] = [
    ("upstream", "the kernel's: rounded to the second, less 3 ticks a CPU",
        Firing::RoundJiffies { skew: KERNEL_SKEW }),
    ("stretched", "the thread's first version: the interval grows with the CPU's number, up to twice, and is not rounded",
        Firing::Stretched { rounded: false }),
    ("stretched-rounded", "the interval grows with the CPU's number, and is rounded as upstream: unequal intervals without the wider spread",
        Firing::Stretched { rounded: true }),
    ("spread", "the thread's last version: a first delay that grows with the CPU's number, then the plain interval",
        Firing::Spread),
    ("skew-13", "upstream with 13 ticks a CPU",
        Firing::RoundJiffies { skew: 13 }),
    ("phase-wheel", "a phase of its own for each CPU, in absolute time; on the timer wheel",
        Firing::PhaseGrid { exact: false }),
    ("phase-exact", "a phase of its own for each CPU, in absolute time; on exact timers",
        Firing::PhaseGrid { exact: true }),
];
