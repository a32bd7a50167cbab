//! What is charged beside what the process has in use.

use bursar_machine::Host;
use bursar_machine::host::{ResidentError, resident};

use super::Memory;
use crate::stats::{Freshness, NotFresh};

/// The books beside the kernel's counters, bytes; see [`Memory::drift`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drift {
    /// The memory of this process that is in RAM (RSS).
    pub resident: u64,
    /// The same without what is mapped from files or shared: heap, stacks, private mappings.
    pub resident_anonymous: u64,
    /// Bytes reserved in the whole tree, stock included: what limits are compared with.
    pub reserved: u64,
    /// Bytes charged in the whole tree.
    pub charged: u64,
}

impl Drift {
    /// Anonymous memory in RAM less what is charged, bytes. Positive: memory that nobody charged, and that a limit at the
    /// root must leave room for. Negative: charged but not touched yet, swapped out, or shared and so not anonymous.
    pub fn unaccounted(&self) -> i64 {
        let signed = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        // Neither is negative, so their difference fits.
        signed(self.resident_anonymous) - signed(self.charged)
    }
}

impl Memory<Host> {
    /// Compares what is charged in this memory with what the process has in use.
    ///
    /// `charged` comes from an exact read, or where the memory's policy forbids that
    /// ([`crate::FlushPolicy::PeriodicOnly`]), from what the last flush left. The numbers are read one after the other:
    /// what is charged and touched meanwhile may be in one and not in the other. The kernel may batch its counters,
    /// which then hide up to 128 KiB for each CPU, and more on machines with more than 16. Several memories in one
    /// process share what is resident.
    ///
    /// ```
    /// use bursar::{Limits, Memory};
    ///
    /// let memory = Memory::host()?;
    /// let cache = memory.root().child("cache", Limits::none())?;
    /// let charge = cache.try_charge(1 << 20)?;
    /// match memory.drift() {
    ///     Ok(drift) => {
    ///         assert!(drift.charged >= 1 << 20);
    ///         println!("{} bytes that nobody charged", drift.unaccounted());
    ///     }
    ///     // Not on Linux, or no /proc.
    ///     Err(error) => eprintln!("{error}"),
    /// }
    /// # drop(charge);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ResidentError`], see there.
    pub fn drift(&self) -> Result<Drift, ResidentError> {
        let reading = match self.root().read(Freshness::Exact) {
            Ok(reading) => reading,
            Err(NotFresh { cached }) => cached,
        };
        let resident = resident()?;
        Ok(Drift {
            resident: resident.bytes,
            resident_anonymous: resident.anonymous_bytes,
            reserved: self.reserved(),
            // No usage is below 0.
            charged: u64::try_from(reading.usage().value).unwrap_or(0),
        })
    }
}
