//! Random numbers from a seed, the same on every machine.

/// SplitMix64 (Steele, Lea and Flood, 2014): one addition and two multiplications a number. Any seed is good.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Makes the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Makes a sequence for the `index`-th of many tasks that share a seed.
    pub fn fork(seed: u64, index: u64) -> Self {
        let mut mixer = Self(seed ^ index.wrapping_mul(0xd134_2543_de82_ef95));
        Self(mixer.number())
    }

    /// Returns the next number, of any value.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns `true` once in `one_in` times on average; never if that is 0.
    pub fn happens(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.below(one_in) == 0
    }

    /// Returns an exponentially distributed duration with this mean: the time to the next of events that come at
    /// random.
    pub fn exponential(&mut self, mean_ns: u64) -> u64 {
        const STEPS: u64 = 1 << 32;
        let part = (self.below(STEPS) + 1) as f64 / STEPS as f64;
        (-part.ln() * mean_ns as f64) as u64
    }

    /// Returns a number below `bound`, which is at least 1. The bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }
}
