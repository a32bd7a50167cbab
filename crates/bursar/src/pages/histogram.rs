//! Durations, counted by size; and numbers of pages, which are counted likewise.

/// Buckets to a doubling: a bucket's bounds are at most a quarter apart.
const STEPS: u64 = 4;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Up to 2^40 ns (18 minutes); longer ones count there.
const BUCKETS: usize = 39 * STEPS as usize;

/// How often which duration was seen. Recording is an index and an addition; quantiles are upper bounds, at most 25 % above
/// the truth.
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

    /// Counts what the other counted.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&*other.counts) {
            *count += more;
        }
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The longest duration of each bucket that has counted any, and how many it has.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.counts.iter().enumerate();
        let counted = counts.filter(|(_, count)| **count > 0);
        counted.map(|(bucket, count)| (upper_ns(bucket), *count))
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The longest, nanoseconds.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// At least this share of all (0 to 1) took at most that long, nanoseconds. 0 if nothing was counted.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_ns(bucket).min(self.max_ns);
            }
        }
        self.max_ns
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

/// The longest duration of a bucket.
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
