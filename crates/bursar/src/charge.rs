//! Charges: bytes that are held until they are dropped.

use std::fmt;
use std::mem;
use std::ops::Deref;

use bursar_machine::{Host, Machine, Outcome, Slot};

use crate::group::Group;
use crate::limit::CHARGE_MAX;
use crate::react::{ChargeError, Core, Site, leftover, lifetime, nowait, slow_charge};
use crate::tree::ROOT;

/// Bytes charged to a group, and returned on drop, by any thread.
///
/// A charge of 0 bytes keeps its group alive, like a handle. Any other charge keeps only the group's record, by its bytes and without
/// a shared count.
///
/// Dropping a charge may call wakers of tasks that wait for memory, and callbacks given to [`Group::on_pressure`]. So do not
/// drop it while you hold a lock that these functions take. [`Charge::release_nowait`] calls none of them. If one of them panics, the
/// drop does not unwind: the panic is caught and counted in [`crate::Events::panicked_callbacks`].
#[must_use = "dropping a charge returns its bytes"]
pub struct Charge<M: Machine = Host> {
    core: M::Shared<Core<M>>,
    slot: M::Slot,
    index: u32,
    bytes: u64,
    site: Site,
}

impl<M: Machine> fmt::Debug for Charge<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge")
            .field("group", &lifetime::path(&self.core, self.index))
            .field("bytes", &self.bytes)
            .finish()
    }
}

impl<M: Machine> Drop for Charge<M> {
    #[inline(always)]
    fn drop(&mut self) {
        // An empty charge holds a reference instead of bytes.
        if self.bytes == 0 {
            return forget(&self.core, self.index);
        }
        self.uncharge(self.bytes);
    }
}

/// Error of [`Charge::split`]: the charge has fewer bytes than were asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SplitError {
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes held.
    pub held: u64,
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot split {} bytes off {}", self.requested, self.held)
    }
}

bursar_machine::debug_as_message!(struct SplitError { requested, held });

impl std::error::Error for SplitError {}

/// Error of [`Charge::move_to`]. The charge stays where it was.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MoveError {
    /// The target refuses, or a group between it and the common ancestor does.
    Refused(ChargeError),
    /// The target belongs to another memory.
    OtherMemory,
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => error.fmt(f),
            Self::OtherMemory => f.write_str("the target belongs to another memory"),
        }
    }
}

bursar_machine::debug_as_message!(
    enum MoveError {
        Refused(error),
        OtherMemory,
    }
);

impl std::error::Error for MoveError {}

impl<M: Machine> Charge<M> {
    /// Holds `bytes` that are charged to a group. For 0 bytes the caller has taken a reference instead.
    #[inline(always)]
    pub(crate) fn new(group: &Group<M>, bytes: u64) -> Self {
        Self {
            core: group.core().clone(),
            slot: group.slot().clone(),
            index: group.index(),
            bytes,
            site: Site::NONE,
        }
    }

    /// Follows the charge, if it is one of the sample. Not async-signal-safe.
    #[inline(always)]
    pub(crate) fn sampled(mut self) -> Self {
        self.site = leftover::sampled(&self.core, self.index, self.bytes);
        self
    }

    /// The number of bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The group that the bytes are charged to.
    pub fn group(&self) -> Group<M> {
        // Our bytes, or our own reference, keep its record.
        self.core.counters.refer(self.index);
        Group::new(self.core.clone(), self.index)
    }

    /// The path of the group that the bytes are charged to.
    pub fn group_path(&self) -> String {
        lifetime::path(&self.core, self.index)
    }

    /// Changes the number of bytes held: charges or returns the difference. Charging more may wait, as [`Group::try_charge`]
    /// does.
    ///
    /// # Errors
    /// [`ChargeError`] if the difference cannot be charged. Nothing changes then.
    pub fn resize(&mut self, bytes: u64) -> Result<(), ChargeError> {
        if bytes > CHARGE_MAX {
            return Err(ChargeError::TooLarge { requested: bytes });
        }
        let before = self.bytes;
        if bytes > before {
            let more = bytes - before;
            let outcome = self.slot.charge(more);
            if outcome != Outcome::Done {
                slow_charge::try_charge(&self.core, self.index, more, outcome)?;
            }
        } else if bytes == 0 && before > 0 {
            self.core.counters.refer(self.index);
        }
        self.bytes = bytes;
        self.site.set_bytes(bytes);
        // Last: both may call code that unwinds.
        if before == 0 && bytes > 0 {
            // From now on the bytes keep the record.
            lifetime::forget(&self.core, self.index);
        } else if bytes < before {
            self.uncharge(before - bytes);
        }
        Ok(())
    }

    /// Charges `bytes` more to the same group, whatever the limits say, as [`Engine::charge_nowait`](crate::engine::Engine::charge_nowait) does. A removed group is
    /// charged as well.
    pub fn grow_nowait(&mut self, bytes: u64) {
        let outcome = self.slot.charge(bytes);
        let more = match outcome {
            Outcome::Done => bytes,
            _ => nowait::charge_anyway(&self.core, self.index, bytes, outcome),
        };
        let was_empty = self.bytes == 0;
        self.bytes += more;
        self.site.set_bytes(self.bytes);
        if was_empty && more > 0 {
            // From now on the bytes keep the record. Last: a group that ends may panic.
            lifetime::forget(&self.core, self.index);
        }
    }

    /// Splits `bytes` off into a charge of their own. Nothing is charged or returned.
    ///
    /// # Errors
    /// [`SplitError`] if this charge has fewer bytes. Nothing changes then.
    pub fn split(&mut self, bytes: u64) -> Result<Self, SplitError> {
        if bytes > self.bytes {
            return Err(SplitError {
                requested: bytes,
                held: self.bytes,
            });
        }
        // An empty charge needs a reference. If this one was empty, both are now.
        if bytes == 0 || bytes == self.bytes {
            self.core.counters.refer(self.index);
        }
        self.bytes -= bytes;
        self.site.set_bytes(self.bytes);
        Ok(Self {
            site: leftover::part(&self.core, &self.site, bytes),
            core: self.core.clone(),
            slot: self.slot.clone(),
            index: self.index,
            bytes,
        })
    }

    /// Takes the bytes of `other` into this charge. Nothing is charged or returned.
    ///
    /// # Errors
    /// `other`, unchanged, if the charges belong to different groups or memories.
    pub fn merge(&mut self, mut other: Self) -> Result<(), Self> {
        if self.index != other.index || !self.is_same_memory(&other.core) {
            return Err(other);
        }
        // `other` is about to be empty, and drops a reference. If one of the two was empty before, there is a reference to
        // drop. If neither was, there is none yet.
        if self.bytes > 0 && other.bytes > 0 {
            self.core.counters.refer(self.index);
        }
        self.bytes += mem::take(&mut other.bytes);
        self.site.take(&mut other.site);
        self.site.set_bytes(self.bytes);
        Ok(())
    }

    /// Moves the bytes to another group. Groups above both are not charged again. A reading taken meanwhile may count the bytes
    /// twice or not at all. May wait, as [`Group::try_charge`] does.
    ///
    /// # Errors
    /// [`MoveError`] if the target refuses. Nothing changes then.
    ///
    /// # Panics
    /// If a reclaimer panics. If it was asked because of a `high`, the bytes have moved. Otherwise they have not.
    pub fn move_to(&mut self, target: &Group<M>) -> Result<(), MoveError> {
        if !self.is_same_memory(target.core()) {
            return Err(MoveError::OtherMemory);
        }
        if target.index() == self.index {
            return Ok(());
        }
        let core = self.core.clone();
        let moved = if self.bytes == 0 {
            if target.is_removed() {
                return Err(MoveError::Refused(ChargeError::Removed {
                    group: target.path().into(),
                }));
            }
            core.counters.refer(target.index());
            None
        } else {
            let moved = slow_charge::move_charge(&core, self.index, target.index(), self.bytes);
            Some(moved.map_err(MoveError::Refused)?)
        };
        let from = mem::replace(&mut self.index, target.index());
        self.slot = target.slot().clone();
        self.site.set_group(self.index);
        // Last: a reclaimer may panic, and so may a group that ends.
        match moved {
            Some(moved) => slow_charge::after_move(&core, self.index, moved),
            None => lifetime::forget(&core, from),
        }
        Ok(())
    }

    /// Returns the bytes as dropping does, but calls no waker and no callback. Tasks that wait for memory or watch pressure are
    /// told by the next charge or return that may do so, or by [`crate::Memory::tick`]. Async-signal-safe, unless the charge has
    /// 0 bytes and is the last value that refers to its group.
    pub fn release_nowait(self) {
        if self.bytes == 0 {
            return;
        }
        let outcome = self.slot.uncharge(self.bytes);
        if outcome != Outcome::Done {
            nowait::uncharge(&self.core, self.index, self.bytes, outcome);
        }
        self.forget_bytes();
    }

    /// Turns the charge into its number of bytes. They stay charged until [`Engine::uncharge`](crate::engine::Engine::uncharge) returns them. For code that keeps such
    /// numbers itself, together with a handle of the group.
    #[inline(always)]
    pub fn forget(mut self) -> u64 {
        let bytes = self.bytes;
        if bytes == 0 {
            // Drops the reference that an empty charge holds.
            return 0;
        }
        self.core.counters.lend(self.index, bytes);
        // A number has no identity: nobody could tell when these bytes are returned.
        drop(mem::replace(&mut self.site, Site::NONE));
        // On the host this is known when the code is compiled, and nothing is dropped.
        if mem::needs_drop::<M::Shared<Core<M>>>() {
            self.forget_bytes();
        } else {
            mem::forget(self);
        }
        bytes
    }

    /// Ends the charge; the pages that the bytes pay for return them.
    pub(crate) fn forget_bytes(mut self) {
        // An empty charge of the root is left to drop, and the root counts no references.
        self.index = ROOT;
        self.bytes = 0;
    }

    #[inline(always)]
    fn uncharge(&self, bytes: u64) {
        let outcome = self.slot.uncharge(bytes);
        if outcome != Outcome::Done {
            slow_charge::uncharge(&self.core, self.index, bytes, outcome);
        }
    }

    fn is_same_memory(&self, other: &M::Shared<Core<M>>) -> bool {
        let here: &Core<M> = self.core.deref();
        std::ptr::eq(here, other.deref())
    }
}

// The slow paths take their arguments by value: a charge whose address is taken cannot stay in registers.

#[cold]
fn forget<M: Machine>(core: &Core<M>, index: u32) {
    lifetime::forget(core, index);
}
