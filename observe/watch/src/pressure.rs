//! Pressure: time for which tasks waited for CPUs and memory, and for interrupts, as `/proc/pressure` counts it.

use serde::{Deserialize, Serialize};

/// Totals in microseconds. `None`: this kernel does not count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressure {
    /// Some task waited for a CPU.
    pub cpu_some_us: Option<u64>,
    /// Some task waited for memory.
    pub memory_some_us: Option<u64>,
    /// All tasks waited for memory.
    pub memory_full_us: Option<u64>,
    /// Tasks waited for interrupts.
    pub irq_full_us: Option<u64>,
}

impl Pressure {
    /// Totals since the machine started. `None`: this kernel counts nothing.
    pub fn read() -> Option<Self> {
        let [cpu, memory, irq] = ["cpu", "memory", "irq"].map(|it| {
            let text = std::fs::read_to_string(format!("/proc/pressure/{it}"));
            text.unwrap_or_default()
        });
        let read = Self {
            cpu_some_us: total(&cpu, "some"),
            memory_some_us: total(&memory, "some"),
            memory_full_us: total(&memory, "full"),
            irq_full_us: total(&irq, "full"),
        };
        (read != Self::default()).then_some(read)
    }

    /// Totals since an earlier moment.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let [cpu, some, full, irq] = std::array::from_fn(|place| {
            let (now, then) = (self.values()[place]?, before.values()[place]?);
            Some(now.saturating_sub(then))
        });
        let since = Self {
            cpu_some_us: cpu,
            memory_some_us: some,
            memory_full_us: full,
            irq_full_us: irq,
        };
        (since != Self::default()).then_some(since)
    }

    /// All totals.
    pub(crate) fn values(&self) -> [Option<u64>; 4] {
        [
            self.cpu_some_us,
            self.memory_some_us,
            self.memory_full_us,
            self.irq_full_us,
        ]
    }
}

/// The total of a line such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=17`.
fn total(text: &str, of: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    let mut words = lines.find_map(|mut it| (it.next() == Some(of)).then_some(it))?;
    words.find_map(|it| it.strip_prefix("total=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_of_their_line() {
        let text = "some avg10=1.00 avg60=0.00 avg300=0.00 total=700\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=50\n";
        assert_eq!(total(text, "some"), Some(700));
        assert_eq!(total(text, "full"), Some(50));
        assert_eq!(total("", "some"), None);
        let at = |memory_some_us| Pressure {
            memory_some_us,
            cpu_some_us: Some(5),
            ..Pressure::default()
        };
        let since = at(Some(700)).since(&at(Some(600)));
        let expected = Pressure {
            cpu_some_us: Some(0),
            memory_some_us: Some(100),
            ..Pressure::default()
        };
        assert_eq!(since, Some(expected));
        assert_eq!(Pressure::default().since(&at(None)), None);
    }
}
