//! The statistics of the loads, in the kernel's words: those of `memory.stat` that change when pages are mapped,
//! touched and reclaimed and when sockets send.

use bursar::{Gauge, Statistic};

/// A statistic. Numbers of pages, or of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stat {
    /// Pages mapped since the start. It only grows, and comes last in each update: the right answer of each read is
    /// computed from it.
    Pgfault,
    /// Faults that had to wait for swap or a file.
    Pgmajfault,
    /// Anonymous pages in memory.
    Anon,
    /// Pages of files in memory.
    File,
    /// Pages that sockets hold.
    Sock,
    /// Pages of compressed memory.
    Zswap,
    /// Anonymous pages that are kept compressed.
    Zswapped,
    InactiveAnon,
    ActiveAnon,
    InactiveFile,
    ActiveFile,
    WorkingsetRefaultAnon,
    WorkingsetRefaultFile,
    Pgscan,
    Pgsteal,
    Pswpin,
    Pswpout,
    Zswpin,
    Zswpout,
}

impl Stat {
    /// Number of statistics.
    pub(super) const COUNT: usize = STATISTICS.len();
}

/// In the order of [`Stat`]. All are declared as gauges: one type of handle for all, at the same cost.
pub(super) const STATISTICS: &[Statistic] = &[
    Statistic::gauge("pgfault"),
    Statistic::gauge("pgmajfault"),
    Statistic::gauge("anon"),
    Statistic::gauge("file"),
    Statistic::gauge("sock"),
    Statistic::gauge("zswap"),
    Statistic::gauge("zswapped"),
    Statistic::gauge("inactive_anon"),
    Statistic::gauge("active_anon"),
    Statistic::gauge("inactive_file"),
    Statistic::gauge("active_file"),
    Statistic::gauge("workingset_refault_anon"),
    Statistic::gauge("workingset_refault_file"),
    Statistic::gauge("pgscan"),
    Statistic::gauge("pgsteal"),
    Statistic::gauge("pswpin"),
    Statistic::gauge("pswpout"),
    Statistic::gauge("zswpin"),
    Statistic::gauge("zswpout"),
];

/// Handles, in the same order.
pub(super) const GAUGES: [Gauge; Stat::COUNT] = {
    let mut gauges = [Gauge::of(STATISTICS, "pgfault"); Stat::COUNT];
    let mut at = 0;
    while at < Stat::COUNT {
        gauges[at] = Gauge::of(STATISTICS, STATISTICS[at].name());
        at += 1;
    }
    gauges
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_order_of_the_enumeration() {
        for (stat, name) in [
            (Stat::Pgfault, "pgfault"),
            (Stat::Sock, "sock"),
            (Stat::WorkingsetRefaultFile, "workingset_refault_file"),
            (Stat::Zswpout, "zswpout"),
        ] {
            assert_eq!(STATISTICS[stat as usize].name(), name);
        }
        assert_eq!(Stat::Zswpout as usize + 1, Stat::COUNT);
    }
}
