//! Charged bytes, compared with the memory that the process uses.

use bursar_machine::Host;
use bursar_machine::host::{ResidentError, resident};

use super::Memory;
use crate::tree::{Freshness, NotFresh};

/// Charged bytes and the kernel's counters of this process; see [`Memory::drift`].
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

impl Memory<Host> {
    /// Compares the charged bytes of this memory with the memory that the process uses.
    ///
    /// `charged` comes from an exact read, or from the last flush where the memory's policy forbids that
    /// ([`crate::FlushPolicy::PeriodicOnly`]). The numbers are read one after the other: bytes that are charged and
    /// touched meanwhile may be in one and not in the other. The kernel may batch its counters, which hides up to 128 KiB
    /// for each CPU, and more on machines with more than 16 CPUs. The resident memory is that of all memories in the process.
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
    ///         println!("{} bytes are not charged", drift.unaccounted());
    ///     }
    ///     // Not on Linux, or no /proc.
    ///     Err(error) => eprintln!("{error}"),
    /// }
    /// # drop(charge);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ResidentError`] if the system does not tell, as outside of Linux or without `/proc`.
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
