//! The statistics of the loads, in the kernel's words: those of `memory.stat` that change when pages are mapped,
//! touched and reclaimed and when sockets send.

use bursar::{Gauge, Statistic};

/// Defines the statistics, with their names in `memory.stat`.
macro_rules! statistics {
    ($($(#[$doc:meta])* $stat:ident $name:literal;)*) => {
        /// A statistic. Numbers of pages, or of events; [`Stat::Slab`] in bytes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Stat {
            $($(#[$doc])* $stat,)*
        }

        /// In the order of [`Stat`]. All are declared as gauges: one type of handle for all, at the same cost.
        pub(super) const STATISTICS: &[Statistic] = &[$(Statistic::gauge($name)),*];
    };
}

statistics! {
    /// Pages mapped since the start. It only grows, and comes last in each update: the right answer of each read is
    /// computed from it.
    Pgfault "pgfault";
    /// Faults that had to wait for swap or a file.
    Pgmajfault "pgmajfault";
    /// Anonymous pages in memory.
    Anon "anon";
    /// Pages of files in memory.
    File "file";
    /// Pages that sockets hold.
    Sock "sock";
    /// Pages of the kernel's own memory.
    Kernel "kernel";
    /// Small objects of the kernel, bytes.
    Slab "slab";
    /// Pages of compressed memory.
    Zswap "zswap";
    /// Anonymous pages that are kept compressed.
    Zswapped "zswapped";
    InactiveAnon "inactive_anon";
    ActiveAnon "active_anon";
    InactiveFile "inactive_file";
    ActiveFile "active_file";
    WorkingsetRefaultAnon "workingset_refault_anon";
    WorkingsetRefaultFile "workingset_refault_file";
    Pgscan "pgscan";
    Pgsteal "pgsteal";
    Pswpin "pswpin";
    Pswpout "pswpout";
    Zswpin "zswpin";
    Zswpout "zswpout";
}

impl Stat {
    /// Number of statistics.
    pub(super) const COUNT: usize = STATISTICS.len();
}

/// Handles, in the same order.
pub(super) const GAUGES: [Gauge; Stat::COUNT] = {
    let mut gauges = [Gauge::from_name(STATISTICS, "pgfault"); Stat::COUNT];
    let mut at = 0;
    while at < Stat::COUNT {
        gauges[at] = Gauge::from_name(STATISTICS, STATISTICS[at].name());
        at += 1;
    }
    gauges
};
