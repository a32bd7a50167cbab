//! The emergency reserve: memory charged ahead, for work that must finish.

use std::fmt;
use std::sync::Arc;

use bursar_machine::{Host, Lock, Machine};

use crate::charge::ChargeError;
use crate::group::Group;
use crate::held::Charge;

struct Kept<M: Machine> {
    charge: M::Mutex<Charge<M>>,
    bytes: u64,
}

/// Bytes that are charged to a group ahead of need. Taking some of them never waits, never reclaims and passes no limit, for
/// they are within all limits already; what is taken comes back when it is dropped. For work that must finish when no
/// memory is left, as spilling does.
///
/// ```
/// use bursar::{Limits, Memory};
///
/// let memory = Memory::host()?;
/// let query = memory.root().child("query", Limits::max(64 << 20))?;
/// let spilling = query.reserve(4 << 20)?;
/// let _all = query.try_charge(60 << 20)?;
/// assert!(query.try_charge(1 << 20).is_err());
/// let buffer = spilling.take(1 << 20).expect("that is what it is for");
/// drop(buffer);
/// assert_eq!(spilling.available(), 4 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mempool")]
pub struct Reserve<M: Machine = Host> {
    kept: Arc<Kept<M>>,
}

impl<M: Machine> Clone for Reserve<M> {
    fn clone(&self) -> Self {
        Self {
            kept: self.kept.clone(),
        }
    }
}

impl<M: Machine> fmt::Debug for Reserve<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve")
            .field("bytes", &self.kept.bytes)
            .field("available", &self.available())
            .finish()
    }
}

/// Bytes taken from a [`Reserve`], until dropped.
#[must_use = "dropping it puts the bytes back"]
pub struct Reserved<M: Machine = Host> {
    kept: Arc<Kept<M>>,
    charge: Option<Charge<M>>,
}

impl<M: Machine> fmt::Debug for Reserved<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserved")
            .field("bytes", &self.bytes())
            .finish()
    }
}

impl<M: Machine> Reserved<M> {
    /// The bytes.
    pub fn bytes(&self) -> usize {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }
}

impl<M: Machine> Drop for Reserved<M> {
    fn drop(&mut self) {
        let Some(charge) = self.charge.take() else {
            return;
        };
        let merged = self.kept.charge.lock().merge(charge);
        debug_assert!(merged.is_ok(), "both are of one group");
    }
}

/// There are fewer bytes left in a reserve than were wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// Bytes asked for.
    pub requested: usize,
    /// Bytes that are left.
    pub available: usize,
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

impl std::error::Error for Exhausted {}

impl<M: Machine> Reserve<M> {
    /// Takes `bytes` of what is left.
    ///
    /// # Errors
    /// [`Exhausted`] if there are fewer; then nothing is taken.
    pub fn take(&self, bytes: usize) -> Result<Reserved<M>, Exhausted> {
        let split = self.kept.charge.lock().split(bytes);
        let charge = split.map_err(|short| Exhausted {
            requested: short.requested,
            available: short.held,
        })?;
        Ok(Reserved {
            kept: self.kept.clone(),
            charge: Some(charge),
        })
    }

    /// Bytes that are left.
    pub fn available(&self) -> usize {
        self.kept.charge.lock().bytes()
    }
}

impl<M: Machine> Group<M> {
    /// Charges `bytes` ahead, to be taken when no other memory is left. They count as used until the reserve and all that
    /// was taken from it are dropped.
    ///
    /// # Errors
    /// [`ChargeError`], as [`Group::try_charge`].
    pub fn reserve(&self, bytes: usize) -> Result<Reserve<M>, ChargeError> {
        let charge = self.try_charge(bytes)?;
        Ok(Reserve {
            kept: Arc::new(Kept {
                charge: M::Mutex::new(charge),
                bytes: bytes as u64,
            }),
        })
    }
}
