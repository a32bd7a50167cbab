//! Charged bytes, compared with the memory that the process uses.

/// Charged bytes and the kernel's counters of this process; see [`crate::Memory::drift`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drift {
    /// Memory of this process that is in RAM (RSS), bytes.
    pub resident: u64,
    /// The part of it that is neither mapped from files nor shared, bytes: heap, stacks, private mappings.
    pub resident_anonymous: u64,
    /// Bytes reserved in the whole tree, stock included. Limits are compared with this number.
    pub reserved: u64,
    /// Bytes charged in the whole tree.
    pub charged: u64,
}

impl Drift {
    /// Anonymous memory in RAM less charged bytes. A positive number is memory that is not charged, and that a limit at the
    /// root must leave room for. A negative number is memory that is charged but not touched, swapped out, or shared.
    pub fn unaccounted(&self) -> i64 {
        let signed = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        // Neither is negative, so their difference fits.
        signed(self.resident_anonymous) - signed(self.charged)
    }
}
