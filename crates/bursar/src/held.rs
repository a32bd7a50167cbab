//! What a charge returned: bytes that are held until they are dropped.

use std::fmt;
use std::mem;
use std::ops::Deref;

use bursar_machine::{Host, Machine, Outcome, Slot};

use crate::books::Books;
use crate::charge::{CHARGE_MAX, ChargeError, Ledger};
use crate::group::Group;
use crate::stats::{ROOT, printable};

/// Bytes charged to a group, returned on drop, by any thread.
///
/// A charge of 0 bytes keeps its group's record like a handle does; any other is kept by its bytes and shares no count.
///
/// Dropping one may call wakers of tasks that wait for memory, and callbacks given to [`Group::on_pressure`]. So do not drop it
/// under a lock that these take, or use [`Charge::release_nowait`]. The drop does not unwind if one of them panics: the panic is
/// caught and counted in [`crate::Events::panicked_callbacks`].
#[must_use = "dropping a charge returns its bytes"]
pub struct Charge<M: Machine = Host> {
    books: M::Shared<Books<M>>,
    slot: M::Slot,
    index: u32,
    bytes: u64,
}

impl<M: Machine> fmt::Debug for Charge<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge")
            .field("group", &self.books.path(self.index))
            .field("bytes", &self.bytes)
            .finish()
    }
}

impl<M: Machine> Drop for Charge<M> {
    #[inline(always)]
    fn drop(&mut self) {
        // An empty one holds a reference instead of bytes.
        if self.bytes == 0 {
            return forget(&*self.books, self.index);
        }
        self.uncharge(self.bytes);
    }
}

/// Two charges of different groups, or of different memories, cannot be one. Both are given back as they were.
pub struct MergeError<M: Machine = Host> {
    /// The charge that was to be merged.
    pub other: Charge<M>,
}

impl<M: Machine> fmt::Debug for MergeError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MergeError")
            .field("other", &self.other)
            .finish()
    }
}

impl<M: Machine> fmt::Display for MergeError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.other.group_path();
        write!(f, "the other charge belongs to {}", printable(&path))
    }
}

impl<M: Machine> std::error::Error for MergeError<M> {}

/// A split for more bytes than there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl std::error::Error for SplitError {}

/// Why a charge could not move. It stays where it was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MoveError {
    /// The target, or a group between it and the common ancestor, refuses.
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

impl std::error::Error for MoveError {}

impl<M: Machine> Charge<M> {
    #[inline(always)]
    pub(crate) fn new(books: M::Shared<Books<M>>, slot: M::Slot, index: u32, bytes: u64) -> Self {
        Self {
            books,
            slot,
            index,
            bytes,
        }
    }

    /// The bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The group that they are charged to.
    pub fn group(&self) -> Group<M> {
        // Its record is there: our bytes, or our own reference, keep it.
        self.books.refer(self.index);
        Group::new(self.books.clone(), self.index)
    }

    /// The path of the group that they are charged to.
    pub fn group_path(&self) -> String {
        self.books.path(self.index)
    }

    /// Changes how many bytes are held, charging or returning the difference. Charging more may block the thread, like
    /// [`Group::try_charge`].
    ///
    /// # Errors
    /// [`ChargeError`] if the difference cannot be charged; then nothing changes.
    pub fn resize(&mut self, bytes: u64) -> Result<(), ChargeError> {
        if bytes > CHARGE_MAX {
            return Err(ChargeError::TooLarge { requested: bytes });
        }
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            let outcome = self.slot.charge(more);
            if outcome != Outcome::Done && !self.books.is_committed(self.index, outcome) {
                self.books.try_charge_slowly(self.index, more)?;
            }
            if self.bytes == 0 {
                // From now on the bytes keep the record.
                self.bytes = bytes;
                self.books.forget(self.index);
            }
        } else if bytes < self.bytes {
            if bytes == 0 {
                self.books.refer(self.index);
            }
            self.uncharge(self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Charges `bytes` more to the same group, whatever the limits say, as [`Group::charge_nowait`] does. Also if the group was
    /// removed.
    pub fn grow_nowait(&mut self, bytes: u64) {
        let outcome = self.slot.charge(bytes);
        let mut more = bytes;
        if outcome != Outcome::Done && !self.books.is_committed(self.index, outcome) {
            more = self.books.chargeable(bytes);
            if more == 0 {
                return;
            }
            self.books.charge_anyway_nowait(self.index, more);
        }
        if self.bytes == 0 && more > 0 {
            // From now on the bytes keep the record.
            self.books.forget(self.index);
        }
        self.bytes += more;
    }

    /// Takes `bytes` of this charge into a charge of their own. Nothing is charged or returned.
    ///
    /// # Errors
    /// [`SplitError`] if there are fewer; then nothing changes.
    pub fn split(&mut self, bytes: u64) -> Result<Self, SplitError> {
        if bytes > self.bytes {
            return Err(SplitError {
                requested: bytes,
                held: self.bytes,
            });
        }
        // Whichever of the two is empty needs a reference; if this one was, both are.
        if bytes == 0 || bytes == self.bytes {
            self.books.refer(self.index);
        }
        self.bytes -= bytes;
        Ok(Self {
            books: self.books.clone(),
            slot: self.slot.clone(),
            index: self.index,
            bytes,
        })
    }

    /// Takes the bytes of `other` into this charge. Nothing is charged or returned.
    ///
    /// # Errors
    /// [`MergeError`] if they belong to different groups; it carries `other`.
    pub fn merge(&mut self, mut other: Self) -> Result<(), MergeError<M>> {
        if self.index != other.index || !self.is_same_memory(&other.books) {
            return Err(MergeError { other });
        }
        // `other` is about to be empty and to drop a reference. If either was empty before, that is the one it held;
        // if neither was, there is none yet.
        if self.bytes > 0 && other.bytes > 0 {
            self.books.refer(self.index);
        }
        self.bytes += mem::take(&mut other.bytes);
        Ok(())
    }

    /// Moves the bytes to another group. Groups above both neither gain nor lose; a reading taken while it moves may
    /// count it twice or not at all. If a reclaimer that is asked because of a `high` panics, the bytes have moved. May block the thread, like [`Group::try_charge`].
    ///
    /// # Errors
    /// [`MoveError`] if the target refuses; then nothing changes.
    pub fn move_to(&mut self, target: &Group<M>) -> Result<(), MoveError> {
        if !self.is_same_memory(target.books()) {
            return Err(MoveError::OtherMemory);
        }
        if target.index() == self.index {
            return Ok(());
        }
        let books = self.books.clone();
        let moved = if self.bytes == 0 {
            if target.is_removed() {
                return Err(MoveError::Refused(ChargeError::Removed {
                    group: target.path().into(),
                }));
            }
            books.refer(target.index());
            books.forget(self.index);
            None
        } else {
            let moved = books.move_charge(self.index, target.index(), self.bytes);
            Some(moved.map_err(MoveError::Refused)?)
        };
        self.index = target.index();
        self.slot = target.slot().clone();
        // Last: a reclaimer may panic.
        if let Some(moved) = moved {
            books.after_move(self.index, moved);
        }
        Ok(())
    }

    /// Returns the bytes as dropping does, but wakes and calls nobody: who waits for memory or watches pressure is told by
    /// the next charge or return that may, or by [`crate::Memory::tick`]. Async-signal-safe, unless the charge is empty and
    /// the last to refer to its group.
    pub fn release_nowait(self) {
        if self.bytes == 0 {
            return;
        }
        let outcome = self.slot.uncharge(self.bytes);
        if outcome != Outcome::Done && !self.books.is_committed(self.index, outcome) {
            self.books.uncharge_nowait(self.index, self.bytes);
        }
        self.forget_bytes();
    }

    /// Gives the charge up for its number of bytes, which stay charged until [`Group::uncharge`] returns them. For those who
    /// keep such numbers themselves, and keep a handle of the group with them.
    #[inline(always)]
    pub fn forget(self) -> u64 {
        let bytes = self.bytes;
        if bytes == 0 {
            // Drops the reference that it held instead.
            return 0;
        }
        self.books.lend(self.index, bytes);
        mem::forget(self);
        bytes
    }

    /// Lets whoever holds the memory return the bytes instead.
    pub(crate) fn forget_bytes(mut self) {
        // What is left to drop is an empty charge of the root, which is not counted.
        self.index = ROOT;
        self.bytes = 0;
    }

    #[inline(always)]
    fn uncharge(&self, bytes: u64) {
        let outcome = self.slot.uncharge(bytes);
        if outcome != Outcome::Done {
            uncharge_slowly(&*self.books, self.index, bytes, outcome);
        }
    }

    fn is_same_memory(&self, other: &M::Shared<Books<M>>) -> bool {
        let here: &Books<M> = self.books.deref();
        std::ptr::eq(here, other.deref())
    }
}

// The slow ways take what they need by value: a charge whose address is taken cannot stay in registers.

#[cold]
fn forget<M: Machine>(books: &Ledger<M>, index: u32) {
    books.forget(index);
}

#[cold]
fn uncharge_slowly<M: Machine>(books: &Ledger<M>, index: u32, bytes: u64, outcome: Outcome) {
    if !books.is_committed(index, outcome) {
        books.uncharge_slowly(index, bytes);
    }
}
