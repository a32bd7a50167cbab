//! Ticks a second, from jiffies and times.

/// Numbers of ticks that kernels are built with.
const KNOWN: [u32; 14] = [
    24, 32, 48, 64, 100, 128, 200, 250, 256, 300, 500, 1000, 1024, 1200,
];
/// Jiffies are read up to a few ticks late: an idle machine catches up when it wakes.
const SLACK_JIFFIES: f64 = 3.0;
/// Slow and emulated machines are later. The two nearest of the numbers differ by 2.3 %.
const SLACK_PART: f64 = 0.01;

/// The first and the last pair of a time and a jiffy.
#[derive(Debug, Default)]
pub struct Slope {
    first: Option<(u64, u64)>,
    last: (u64, u64),
}

impl Slope {
    /// Takes a pair.
    pub fn take(&mut self, time_ns: u64, jiffy: u64) {
        self.first.get_or_insert((time_ns, jiffy));
        // An interrupt of a CPU that slept may still see an old jiffy.
        if jiffy >= self.last.1 {
            self.last = (time_ns, jiffy);
        }
    }

    /// The number that fits, if only one does.
    pub fn hz(&self) -> Option<u32> {
        let (from_ns, from) = self.first?;
        let seconds = self.last.0.checked_sub(from_ns)? as f64 / 1e9;
        let jiffies = self.last.1.checked_sub(from)? as f64;
        if seconds <= 0.0 {
            return None;
        }
        let slack = SLACK_JIFFIES.max(jiffies * SLACK_PART);
        let fits = |hz: &&u32| (f64::from(**hz) * seconds - jiffies).abs() <= slack;
        let mut fitting = KNOWN.iter().filter(fits);
        match (fitting.next(), fitting.next()) {
            (Some(hz), None) => Some(*hz),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Slope;

    fn slope(pairs: &[(u64, u64)]) -> Option<u32> {
        let mut slope = Slope::default();
        for &(time, jiffy) in pairs {
            slope.take(time, jiffy);
        }
        slope.hz()
    }

    #[test]
    fn the_number_that_fits_is_found() {
        assert_eq!(slope(&[(0, 1000), (1_000_000_000, 1251)]), Some(250));
        assert_eq!(slope(&[(0, 1000), (3_000_000_000, 4000)]), Some(1000));
        assert_eq!(
            slope(&[(0, 1000), (3_000_000_000, 1300), (3_001_000_000, 1200)]),
            Some(100)
        );
    }

    #[test]
    fn late_ticks_of_a_slow_machine_do_not_matter() {
        assert_eq!(slope(&[(0, 1000), (16_000_000_000, 4970)]), Some(250));
        assert_eq!(slope(&[(0, 1000), (16_000_000_000, 4900)]), None);
    }

    #[test]
    fn too_short_a_time_tells_nothing() {
        assert_eq!(slope(&[]), None);
        assert_eq!(slope(&[(5, 5)]), None);
        assert_eq!(slope(&[(0, 1000), (10_000_000, 1002)]), None);
        assert_eq!(slope(&[(0, 1000), (1_000_000_000, 1400)]), None);
    }
}
