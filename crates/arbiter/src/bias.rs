//! Correction of estimates that are too low.

/// A correction is at most this much. Bursar's own choice: an estimate that is wrong by more tells nothing.
const FACTOR_MAX: u128 = 16;
/// With each query, what is known of those before counts one part in so many less. Bursar's own choice.
const FORGOTTEN: u128 = 16;

/// Correction of an estimator: what the last queries took, by what they were estimated at. Larger queries count more, and one that ended 16 queries
/// ago counts a third as much as the last one.
///
/// ```
/// use bursar_arbiter::Bias;
///
/// let mut bias = Bias::default();
/// assert_eq!(bias.correct(10), 10);
/// bias.record(10, 50);
/// assert_eq!(bias.correct(20), 100);
/// bias.record(100, 10);                                   // estimates that are too high are the caller's wish
/// assert_eq!(bias.correct(20), 20);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Bias {
    estimated: u128,
    took: u128,
}

impl Bias {
    /// Records a query that ended: its estimate, and the most bytes that it had at one time.
    pub fn record(&mut self, estimated: u64, took: u64) {
        let fewer = |sum: u128| sum - sum / FORGOTTEN;
        self.estimated = fewer(self.estimated) + u128::from(estimated);
        self.took = fewer(self.took) + u128::from(took);
    }

    /// Corrects an estimate, if estimates are too low: never below it, and at most to 16 times as much.
    pub fn correct(&self, estimate: u64) -> u64 {
        let estimated = self.estimated.max(1);
        let took = self.took.clamp(estimated, estimated * FACTOR_MAX);
        // The product has 128 bits.
        let shift = 64 - took.leading_zeros().min(64);
        let product = u128::from(estimate) * (took >> shift);
        u64::try_from(product / (estimated >> shift).max(1)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_forgets_and_is_bounded() {
        let mut bias = Bias::default();
        bias.record(0, u64::MAX);
        assert_eq!(bias.correct(1), 16);
        assert_eq!(bias.correct(u64::MAX), u64::MAX);
        let mut bias = Bias::default();
        bias.record(1 << 30, 10 << 30);
        for _ in 0..100 {
            bias.record(1 << 30, 1 << 30);
        }
        // A hundred queries ago somebody was wrong.
        let corrected = bias.correct(1 << 20);
        assert!(corrected < (1 << 20) + (1 << 15), "{corrected}");
        for _ in 0..10_000 {
            bias.record(u64::MAX, u64::MAX);
        }
        assert_eq!(bias.correct(7), 7);
        assert_eq!(bias.correct(3 << 61), 3 << 61);
        assert_eq!(bias.correct(u64::MAX), u64::MAX);
    }
}
