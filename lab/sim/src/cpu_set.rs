//! Set of CPUs.

use std::cell::Cell;
use std::ops::Range;

/// Set of CPUs, 64 in each word.
pub(crate) struct CpuSet(Vec<Cell<u64>>);

impl CpuSet {
    pub(crate) fn new(cpus: usize) -> Self {
        Self(vec![Cell::new(0); cpus.div_ceil(64)])
    }

    pub(crate) fn add(&self, cpu: usize) {
        let word = &self.0[cpu / 64];
        word.set(word.get() | 1 << (cpu % 64));
    }

    pub(crate) fn remove(&self, cpu: usize) {
        let word = &self.0[cpu / 64];
        word.set(word.get() & !(1 << (cpu % 64)));
    }

    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|word| word.set(0));
    }

    pub(crate) fn contains(&self, cpu: usize) -> bool {
        self.0[cpu / 64].get() >> (cpu % 64) & 1 == 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.get() == 0)
    }

    /// First member within a range.
    pub(crate) fn first_of(&self, range: Range<usize>) -> Option<usize> {
        let mut at = range.start;
        while at < range.end {
            let rest = self.0[at / 64].get() >> (at % 64);
            if rest != 0 {
                let found = at + rest.trailing_zeros() as usize;
                return (found < range.end).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}
