//! Decisions by the bytes that a process really takes, beside those that are reserved.

use bursar_machine::host::{CgroupMemory, resident};

/// A look at what a process really takes; see [`crate::Arbiter::with_real`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Real {
    /// Bytes that count against the limit of the root.
    pub bytes: u64,
    /// Time in which some task of the process's cgroup stalled for memory, percent of the last 10 s; 0 if the kernel does not tell.
    pub stall_percent: f64,
}

impl Real {
    /// The anonymous memory of this process that is resident, and the stall of its cgroup. `None` if the kernel does not tell the first, as outside of
    /// Linux. It reads files in `/proc` and in the cgroup.
    pub fn of_process() -> Option<Self> {
        let bytes = resident().ok()?.anonymous_bytes;
        // Pressure is missing in version 1, in kernels without it, and in containers that hide it.
        let cgroup = CgroupMemory::of_this_process();
        let stall = cgroup.and_then(|cgroup| cgroup.stall_percent());
        Some(Self {
            bytes,
            stall_percent: stall.ok().flatten().unwrap_or(0.0),
        })
    }
}

/// Lines of [`Real`]: shares of the root's limit, percent.
///
/// Without that limit there are no lines, and stalls count for nothing.
///
/// Each line should be above the one before: below `ask_percent` nobody is stopped. The defaults are those that OpenSearch chose for queries of DataFusion (pull request 21814, by its description).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RealLines {
    /// From here on asks are admitted with their smallest width only; 70 unless set.
    pub narrow_percent: u32,
    /// From here on nobody is admitted while a query runs, and running queries are asked to give back what is above; 85 unless set.
    pub ask_percent: u32,
    /// From here on queries are stopped, one at a time; 95 unless set.
    pub stop_percent: u32,
    /// [`Real::stall_percent`] from which on nobody is admitted while a query runs; 10 unless set. Judgement.
    pub stall_percent: u32,
}

impl Default for RealLines {
    fn default() -> Self {
        Self {
            narrow_percent: 70,
            ask_percent: 85,
            stop_percent: 95,
            stall_percent: 10,
        }
    }
}

/// Looks at what a process takes; `None` if that is not known.
pub(crate) type Gauge = Box<dyn Fn() -> Option<Real> + Send + Sync>;

/// Effect of real bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strain {
    pub(crate) is_narrow: bool,
    /// Nobody is admitted while a query runs.
    pub(crate) is_full: bool,
    /// Bytes above the line for asks.
    pub(crate) over: u64,
    pub(crate) may_stop: bool,
}

impl RealLines {
    pub(crate) fn strain(&self, real: Real, max: u64) -> Strain {
        if max == u64::MAX {
            return Strain::default();
        }
        let line = |percent: u32| {
            let line = u128::from(max) * u128::from(percent) / 100;
            u64::try_from(line).unwrap_or(u64::MAX)
        };
        let is_above = |percent: u32| real.bytes >= line(percent);
        Strain {
            is_narrow: is_above(self.narrow_percent),
            is_full: is_above(self.ask_percent)
                || real.stall_percent >= f64::from(self.stall_percent),
            over: real.bytes.saturating_sub(line(self.ask_percent)),
            may_stop: is_above(self.stop_percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_shares_of_the_limit() {
        let lines = RealLines::default();
        let strain = |bytes: u64, stall_percent: f64| {
            let strain = lines.strain(
                Real {
                    bytes,
                    stall_percent,
                },
                1000,
            );
            (
                strain.is_narrow,
                strain.is_full,
                strain.over,
                strain.may_stop,
            )
        };
        assert_eq!(strain(699, 9.9), (false, false, 0, false));
        assert_eq!(strain(700, 0.0), (true, false, 0, false));
        assert_eq!(strain(850, 0.0), (true, true, 0, false));
        assert_eq!(strain(949, 0.0), (true, true, 99, false));
        assert_eq!(strain(2000, 0.0), (true, true, 1150, true));
        assert_eq!(strain(0, 10.0), (false, true, 0, false));
        assert_eq!(strain(0, f64::NAN), (false, false, 0, false));
        let none = lines.strain(
            Real {
                bytes: u64::MAX,
                stall_percent: 0.0,
            },
            u64::MAX,
        );
        assert_eq!(none, Strain::default());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_takes_something() {
        let real = Real::of_process().unwrap();
        assert!(real.bytes > 0 && real.stall_percent >= 0.0, "{real:?}");
    }
}
