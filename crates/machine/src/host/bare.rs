//! The least that a per-CPU add can cost on this machine: the yardstick of the benchmarks.

use super::{backend, chunk, rseq, slots};
use crate::OutOfMemory;
use core::ptr::NonNull;

/// A per-CPU counter and nothing else: no state, no group, no statistics. It exists to be measured against.
#[derive(Debug)]
pub struct Counter {
    base: NonNull<u8>,
}

// SAFETY: shared memory that stays mapped; written only by sections on the CPU that owns the copy.
unsafe impl Send for Counter {}
// SAFETY: as above.
unsafe impl Sync for Counter {}

impl Counter {
    /// A counter at 0, if this process runs on the rseq backend.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no memory.
    pub fn new() -> Result<Option<Self>, OutOfMemory> {
        if !backend::has_sections() {
            return Ok(None);
        }
        let base = chunk::reserve(backend::CPUS_MAX, 0)?;
        Ok(Some(Self { base }))
    }

    /// Adds on the current CPU; returns whether this thread and CPU have sections.
    #[inline(always)]
    pub fn add(&self, delta: i64) -> bool {
        // SAFETY: the chunk has a stride for each of the CPUs that sections run on: `backend` allows at most 1,024.
        unsafe { rseq::bare_add(self.base.as_ptr(), delta) }
    }

    /// The sum over all CPUs.
    pub fn sum(&self) -> i64 {
        (0..super::report().cpus)
            .map(|cpu| {
                // SAFETY: inside the chunk, as in `add`; aligned; read whole, as on every x86-64.
                unsafe {
                    self.base
                        .add(cpu << slots::STRIDE_SHIFT)
                        .cast::<i64>()
                        .read_volatile()
                }
            })
            .sum()
    }
}
