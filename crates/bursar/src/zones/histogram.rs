//! Histogram of durations, also used for numbers of pages.

/// Number of buckets to a doubling, so that a bucket's bounds are at most a quarter apart.
const STEPS: u64 = 4;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Number of buckets, up to 2^40 ns (18 minutes). The last one counts longer durations as well.
const BUCKETS: usize = 39 * STEPS as usize;

/// Counts of durations by size. Recording takes an index and an addition. Quantiles are upper bounds, at most 25 %
/// above the true value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            max_ns: 0,
        }
    }
}

impl Histogram {
    /// Counts a duration, in nanoseconds.
    #[inline]
    pub fn record(&mut self, duration_ns: u64) {
        self.counts[bucket(duration_ns)] += 1;
        self.max_ns = self.max_ns.max(duration_ns);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&*other.counts) {
            *count += more;
        }
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Buckets that are not empty: the longest duration of each, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate();
        let counted = counts.filter(|(_, count)| **count > 0);
        counted.map(|(bucket, count)| (self.longest_ns(bucket), *count))
    }

    /// Number of durations counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Longest duration, nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Upper bound of a quantile, nanoseconds: at least `share` (0 to 1) of all durations are no longer. 0 if there are
    /// none.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return self.longest_ns(bucket).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// Upper bound of the durations in a bucket. The last one has all that are longer than its own.
    fn longest_ns(&self, bucket: usize) -> u64 {
        match bucket == BUCKETS - 1 {
            true => self.max_ns,
            false => upper_ns(bucket),
        }
    }
}

fn bucket(duration_ns: u64) -> usize {
    if duration_ns < STEPS {
        return duration_ns as usize;
    }
    let doubling = duration_ns.ilog2() - STEP_BITS;
    let step = (duration_ns >> doubling) - STEPS;
    let bucket = (u64::from(doubling) + 1) * STEPS + step;
    (bucket as usize).min(BUCKETS - 1)
}

/// Longest duration of a bucket.
fn upper_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let (doubling, step) = (bucket / STEPS - 1, bucket % STEPS);
    ((STEPS + step + 1) << doubling) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_ends_where_the_next_begins() {
        for at in 0..BUCKETS - 1 {
            assert_eq!(bucket(upper_ns(at)), at);
            assert_eq!(bucket(upper_ns(at) + 1), at + 1);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_last_bucket_has_all_that_are_longer() {
        let mut histogram = Histogram::default();
        histogram.record(1 << 45);
        assert_eq!(histogram.quantile_ns(1.0), 1 << 45);
        assert_eq!(histogram.buckets().collect::<Vec<_>>(), [(1 << 45, 1)]);
    }

    #[test]
    fn buckets_are_those_that_counted_something() {
        let mut histogram = Histogram::default();
        for duration_ns in [3, 3, 0, 2] {
            histogram.record(duration_ns);
        }
        assert!(histogram.buckets().eq([(0, 1), (2, 1), (3, 2)]));
    }

    #[test]
    fn quantiles_are_upper_bounds() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile_ns(0.5), histogram.count()), (0, 0));
        (1..=1000).for_each(|duration_ns| histogram.record(duration_ns));
        for (share, truth) in [(0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000)] {
            let told = histogram.quantile_ns(share);
            assert!(
                (truth..=truth + truth / 4).contains(&told),
                "{share}: {told}"
            );
        }
        let mut other = Histogram::default();
        other.record(5_000);
        histogram.merge(&other);
        assert_eq!((histogram.count(), histogram.max_ns()), (1001, 5_000));
    }
}
