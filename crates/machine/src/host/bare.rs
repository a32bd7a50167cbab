//! Minimum costs of per-CPU operations on this machine: the yardsticks of the benchmarks.

use super::{backend, chunk, rseq, slots};
use crate::OutOfMemory;
use core::num::NonZeroU64;
use core::ptr::NonNull;

/// Per-CPU counter without state, group or statistics, for measurements.
#[derive(Debug)]
pub struct Counter {
    base: NonNull<u8>,
}

// SAFETY: shared memory that stays mapped; written only by sections on the CPU that owns the copy.
unsafe impl Send for Counter {}
// SAFETY: as above.
unsafe impl Sync for Counter {}

impl Counter {
    /// Makes a counter at 0, if this process runs on the rseq backend.
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

    /// Sum over all CPUs.
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

/// Number of entries of a [`Stack`] on each CPU.
pub const STACK_CAPACITY: usize = 4096;

/// Per-CPU stack of words without counts, and with no bound but its room, for measurements.
#[derive(Debug)]
pub struct Stack {
    base: NonNull<u8>,
}

// SAFETY: as for `Counter`.
unsafe impl Send for Stack {}
// SAFETY: as above.
unsafe impl Sync for Stack {}

impl Stack {
    /// Makes an empty stack, if this process runs on the rseq backend.
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

    /// Pushes on the current CPU; returns `false` if there is no room, or no section.
    #[inline(always)]
    pub fn push(&self, entry: NonZeroU64) -> bool {
        // SAFETY: a stride has room for the depth and 4,096 entries.
        unsafe { rseq::bare_push(self.base.as_ptr(), entry, STACK_CAPACITY as u64) }
    }

    /// Pops on the current CPU; `None` if the stack is empty, or there is no section.
    #[inline(always)]
    pub fn pop(&self) -> Option<NonZeroU64> {
        // SAFETY: as in `push`.
        unsafe { rseq::bare_pop(self.base.as_ptr()) }
    }
}
