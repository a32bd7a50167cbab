//! The emergency reserve: memory charged ahead, for work that must finish.
//!
//! The charge stays whole until the reserve and all that was taken from it are dropped. A number counts the bytes that are left
//! of it. So taking bytes, and putting them back, is one atomic operation without a lock.

use std::fmt;
use std::sync::Arc;

use bursar_machine::{AtomicWord, Host, Machine, MemoryOrder};

use crate::charge::Charge;

struct Kept<M: Machine> {
    charge: Charge<M>,
    left: M::Word,
}

/// A reserve of any machine.
trait PutBack: Send + Sync {
    fn put_back(&self, bytes: u64);
}

impl<M: Machine> PutBack for Kept<M> {
    fn put_back(&self, bytes: u64) {
        // Relaxed, here and below: the number stands for itself.
        self.left.fetch_add(bytes, MemoryOrder::Relaxed);
    }
}

/// Bytes charged to a group ahead of need, for work that must finish when no memory is left, such as spilling.
///
/// Taking bytes never waits, asks no reclaimer and exceeds no limit, because the bytes are charged already. They come back when
/// what was taken is dropped. Clones share the bytes. The group gets them back when all clones, and all that was taken, are
/// dropped.
///
/// ```
/// use bursar::{Limits, Memory};
///
/// let memory = Memory::host()?;
/// let query = memory.root().child("query", Limits::max(64 << 20))?;
/// let spilling = query.emergency_reserve(4 << 20)?;
/// let _all = query.try_charge(60 << 20)?;
/// assert!(query.try_charge(1 << 20).is_err());
/// let buffer = spilling.take(1 << 20).expect("that is what it is for");
/// drop(buffer);
/// assert_eq!(spilling.available(), 4 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mempool")]
#[must_use = "dropping a reserve returns its bytes"]
pub struct EmergencyReserve<M: Machine = Host> {
    kept: Arc<Kept<M>>,
}

impl<M: Machine> Clone for EmergencyReserve<M> {
    fn clone(&self) -> Self {
        Self {
            kept: self.kept.clone(),
        }
    }
}

impl<M: Machine> fmt::Debug for EmergencyReserve<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmergencyReserve")
            .field("bytes", &self.kept.charge.bytes())
            .field("available", &self.available())
            .finish()
    }
}

/// Bytes taken from an [`EmergencyReserve`]. Dropping it puts them back.
#[must_use = "dropping it puts the bytes back"]
pub struct Taken {
    kept: Arc<dyn PutBack>,
    bytes: u64,
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken").field("bytes", &self.bytes).finish()
    }
}

impl Taken {
    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.kept.put_back(self.bytes);
    }
}

/// Error of [`EmergencyReserve::take`]: the reserve has fewer bytes left than were asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Exhausted {
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes that are left.
    pub available: u64,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot take {} bytes of a reserve that has {} left",
            self.requested, self.available
        )
    }
}

bursar_machine::debug_as_message!(struct Exhausted { requested, available });

impl std::error::Error for Exhausted {}

impl<M: Machine> EmergencyReserve<M> {
    pub(crate) fn new(charge: Charge<M>) -> Self {
        let left = M::Word::new(charge.bytes());
        Self {
            kept: Arc::new(Kept { charge, left }),
        }
    }

    /// Takes `bytes` of the bytes that are left.
    ///
    /// # Errors
    /// [`Exhausted`] if fewer are left. Nothing is taken then.
    pub fn take(&self, bytes: u64) -> Result<Taken, Exhausted> {
        let left = &self.kept.left;
        let mut seen = left.load(MemoryOrder::Relaxed);
        loop {
            let Some(rest) = seen.checked_sub(bytes) else {
                return Err(Exhausted {
                    requested: bytes,
                    available: seen,
                });
            };
            match left.compare_exchange(seen, rest, MemoryOrder::Relaxed) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        Ok(Taken {
            kept: self.kept.clone(),
            bytes,
        })
    }

    /// Bytes that are left.
    pub fn available(&self) -> u64 {
        self.kept.left.load(MemoryOrder::Relaxed)
    }
}
