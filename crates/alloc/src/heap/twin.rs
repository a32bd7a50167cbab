//! Reserved bytes beside really allocated ones.
//!
//! An engine that reserves before it allocates charges its reservations to groups with limits. If its allocator charged
//! the same groups, each byte would count twice. So real bytes go to a tree of their own, without limits, and drift is the
//! difference between a group and its twin.

use std::fmt;

use bursar::{Bytes, CreateError, Freshness, Group, Limits, Memory, MemoryError, NotFresh};

/// The most stock of a CPU and group, bytes: that of groups whose charges are small.
const STOCK_MAX: u64 = 256 << 10;

/// Bytes that a group reserved, and bytes that its allocations really take; see [`heap_drift`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapDrift {
    /// Reserved bytes, from the group of the reservations.
    pub reserved: u64,
    /// Bytes that allocations really take, from the twin.
    pub real: u64,
}

impl HeapDrift {
    /// Returns real bytes less reserved bytes. Positive: the engine uses more than it reserved. Negative: the engine
    /// has not used its reservations yet, or other code allocated the bytes.
    pub fn unreserved(&self) -> i64 {
        // No usage is above 2^62.
        self.real as i64 - self.reserved as i64
    }
}

impl fmt::Display for HeapDrift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.unreserved() < 0 { "-" } else { "+" };
        let drift = Bytes(self.unreserved().unsigned_abs());
        let (real, reserved) = (Bytes(self.real), Bytes(self.reserved));
        write!(f, "reserved {reserved}, really {real} ({sign}{drift})")
    }
}

/// Compares a group's reservations with the bytes that its allocations really take. Reads both `Exact`, one after the
/// other.
///
/// # Errors
/// [`NotFresh`] if the policy of one of the two memories forbids readers to flush.
pub fn heap_drift(reservations: &Group, real: &Group) -> Result<HeapDrift, NotFresh> {
    let usage = |group: &Group| -> Result<u64, NotFresh> {
        let usage = group.read(Freshness::Exact)?.usage().value;
        Ok(u64::try_from(usage).unwrap_or(0))
    };
    Ok(HeapDrift {
        reserved: usage(reservations)?,
        real: usage(real)?,
    })
}

/// A second tree for real bytes, with the same paths and without limits.
///
/// ```
/// # use std::alloc::System;
/// # use bursar_alloc::Charged;
/// # #[global_allocator]
/// # static HEAP: Charged<System> = Charged::new(System);
/// use bursar::{Limits, Memory};
/// use bursar_alloc::{GroupExt, Twin, heap_drift};
///
/// let memory = Memory::host()?;
/// let query = memory.root().child("query", Limits::max(64 << 20))?;
/// let twin = Twin::new()?;
/// let real = twin.of(&query)?;
///
/// let reservation = query.try_charge(1 << 20)?;        // the engine's estimate
/// let table: Vec<u64> = real.scope(|| vec![0; 160_000]);
/// let drift = heap_drift(&query, &real)?;
/// assert!(drift.unreserved() >= 1_280_000 - (1 << 20));
/// println!("{query}: {drift}");
/// # drop((table, reservation));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Twin {
    memory: Memory,
}

impl Twin {
    /// Makes a tree with only a root. Make one for a process: the books of a memory stay until the process ends.
    ///
    /// # Errors
    /// [`MemoryError`], see there.
    pub fn new() -> Result<Self, MemoryError> {
        Ok(Self {
            // Its reserved bytes are compared with limits, so CPUs keep little of blocks that were freed.
            memory: Memory::builder().stock_max(STOCK_MAX).build()?,
        })
    }

    /// Returns the memory of the real bytes.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the group with the same path as `group`, and creates it if needed. It is removed with its last handle,
    /// so keep it as long as the other.
    ///
    /// # Errors
    /// [`CreateError`] if a group on the way cannot be created.
    pub fn of(&self, group: &Group) -> Result<Group, CreateError> {
        let path = group.path();
        let names = path.split('/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(self.memory.root(), |at, name| {
            // Somebody else may make it, or drop the last handle of it, meanwhile.
            loop {
                if let Some(found) = at.find(name) {
                    return Ok(found);
                }
                match at.child(name, Limits::none()) {
                    Err(CreateError::Exists { .. }) => {}
                    made => return made,
                }
            }
        })
    }
}
