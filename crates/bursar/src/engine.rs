//! Charges that never wait, bytes by number, and charges from stock: for engines, pools and allocators.

use bursar_machine::{AtomicWord, Host, Machine, MemoryOrder, Outcome, Slot};

pub use crate::account::Account;
use crate::charge::Charge;
use crate::group::Group;
use crate::limit::USAGE_MAX;
pub use crate::react::NowaitError;
use crate::react::{nowait, slow_charge};
use crate::tree::printable;

/// Charges of a [`Group`] that never wait, by number and from stock; see [`Group::engine`].
///
/// ```
/// use bursar::{Freshness, Limits, Memory};
///
/// let memory = Memory::host()?;
/// let pool = memory.root().child("pool", Limits::max(64 << 20))?;
/// let bytes = pool.try_charge(4096)?.forget();
/// pool.engine().uncharge(bytes);
/// assert_eq!(pool.read(Freshness::Exact)?.usage_bytes(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Engine<'a, M: Machine = Host> {
    group: &'a Group<M>,
}

impl<M: Machine> Clone for Engine<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Engine<'_, M> {}

impl<'a, M: Machine> Engine<'a, M> {
    #[inline(always)]
    pub(crate) fn new(group: &'a Group<M>) -> Self {
        Self { group }
    }

    /// The group's number in its memory. As long as a handle of the group exists, no other group of that memory has it.
    pub fn number(self) -> u32 {
        self.group.index()
    }

    /// Whether a charge waits for the group's limit, or for one above ([`Group::charge_async`]). Takes no lock; a charge that comes or leaves at
    /// this moment counts or not.
    pub fn has_waiters(self) -> bool {
        let core = self.group.core();
        let mut chain = core.tree().chain(self.group.index());
        // Relaxed: the answer may be old when it is used.
        chain.any(|at| {
            let settings = &core.counters.counter(at).settings;
            settings.waiting.load(MemoryOrder::Relaxed) != 0
        })
    }

    /// Charges as [`Group::try_charge`] does, but never waits, takes no lock, calls nothing, and is async-signal-safe. It looks
    /// for no stock of other CPUs, so it may refuse where [`Group::try_charge`] succeeds.
    ///
    /// # Errors
    /// Nothing is charged if it fails.
    /// * [`NowaitError::LimitReached`]: a `max` is in the way. The stock below it counts as used.
    /// * [`NowaitError::Busy`]: another task drains this group or one above, or this is a forked child before its first operation.
    /// * [`NowaitError::Removed`], [`NowaitError::TooLarge`]: as in [`Group::try_charge`].
    #[inline]
    pub fn try_charge_nowait(self, bytes: u64) -> Result<Charge<M>, NowaitError> {
        let outcome = self.group.slot().charge(bytes);
        if outcome != Outcome::Done {
            self.try_charge_nowait_slowly(bytes, outcome)?;
        }
        Ok(Charge::new(self.group, bytes))
    }

    #[cold]
    fn try_charge_nowait_slowly(self, bytes: u64, outcome: Outcome) -> Result<(), NowaitError> {
        if bytes == 0 {
            if self.group.is_removed() {
                return Err(NowaitError::Removed);
            }
            self.group.core().counters.refer(self.group.index());
            return Ok(());
        }
        nowait::try_charge(self.group.core(), self.group.index(), bytes, outcome)
    }

    /// Charges as [`Group::charge`] does, but never waits, takes no lock, calls nothing, and is async-signal-safe. For code
    /// that must count memory wherever it is called, such as an allocator.
    ///
    /// It overshoots a limit without looking for stock and without asking reclaimers. The stock that CPUs hold below the limit
    /// then stays until the next operation that may wait takes it back: a charge that is about to be refused, a lowered limit,
    /// or [`crate::Memory::tick`]. Until then charges may succeed from that stock, which counts as used already. It is at most
    /// a quarter of the room that the limit had left ([`crate::Builder::stock_max`]). Bytes above a `high` are owed
    /// ([`Group::take_debt`]).
    pub fn charge_nowait(self, bytes: u64) -> Charge<M> {
        let outcome = self.group.slot().charge(bytes);
        let charged = match outcome {
            Outcome::Done => bytes,
            _ => nowait::charge_anyway(self.group.core(), self.group.index(), bytes, outcome),
        };
        if charged == 0 {
            self.group.core().counters.refer(self.group.index());
        }
        Charge::new(self.group, charged)
    }

    /// Charges `bytes` if this CPU holds that much stock of the group, and returns whether it did. Tries nothing else, and is
    /// async-signal-safe.
    ///
    /// For a pool's own fast path: it compiles to a few instructions without a call or a stack frame. Return the bytes by
    /// [`Engine::uncharge`]. If it returns `false`, call [`Group::try_charge`]. It always returns `false` for 0 bytes, and
    /// without restartable sequences ([`bursar_machine::host::Backend`]).
    #[doc(alias = "consume_stock")]
    #[must_use]
    #[inline(always)]
    pub fn charge_from_stock(self, bytes: u64) -> bool {
        let is_charged = self.group.slot().charge_at_once(bytes);
        if is_charged {
            self.group.core().counters.lend(self.group.index(), bytes);
        }
        is_charged
    }

    /// Returns `bytes` that were charged to the group and forgotten ([`Charge::forget`]), as dropping a [`Charge`] of that size
    /// does.
    ///
    /// Returning more than was charged is a bug of the caller. The group's usage stops at 0, and the groups above are lowered
    /// by no more than it had. [`crate::Events::over_returned_bytes`] and [`crate::Reading::over_returned`] count the bytes.
    /// The first case in a memory is printed on stderr with the group's path. From its first case on a group holds no stock; the call
    /// waits until what there is was taken back. The bug does not show while the group, and those below it, have as many other bytes
    /// charged or held as stock: those are missing from its usage, here and above, until they are returned.
    ///
    /// # Panics
    /// In builds with debug assertions, if more is returned than was charged and forgotten. Nothing changes then.
    #[doc(alias = "page_counter_uncharge")]
    #[inline(always)]
    pub fn uncharge(self, bytes: u64) {
        if let Err(charged) = self
            .group
            .core()
            .counters
            .take_back(self.group.index(), bytes)
        {
            self.returned_too_much(bytes, charged);
        }
        if !self.group.slot().uncharge_at_once(bytes) {
            self.uncharge_slowly(bytes);
        }
    }

    /// Returns the charge of `bytes` that were charged to the group and forgotten ([`Charge::forget`]): the inverse of
    /// forgetting. For code that keeps such numbers and moves them ([`Charge::move_to`]). Nothing is charged or returned.
    ///
    /// More than was charged is the same bug of the caller as in [`Engine::uncharge`], and shows when the charge ends.
    ///
    /// # Panics
    /// In builds with debug assertions, if more is taken than was charged and forgotten. Nothing changes then.
    pub fn remember(self, bytes: u64) -> Charge<M> {
        let counters = &self.group.core().counters;
        if let Err(charged) = counters.take_back(self.group.index(), bytes) {
            self.returned_too_much(bytes, charged);
        }
        if bytes == 0 {
            counters.refer(self.group.index());
        }
        Charge::new(self.group, bytes)
    }

    #[cold]
    #[inline(never)]
    fn returned_too_much(self, bytes: u64, charged: u64) -> ! {
        panic!(
            "{bytes} bytes returned to {}, where {charged} are charged and forgotten",
            printable(&self.group.path())
        );
    }

    #[cold]
    #[inline(never)]
    fn uncharge_slowly(self, bytes: u64) {
        // No charge is larger. A larger number is a bug, and is counted as one.
        let bytes = bytes.min(USAGE_MAX);
        let outcome = self.group.slot().uncharge(bytes);
        if outcome != Outcome::Done && bytes > 0 {
            slow_charge::uncharge(self.group.core(), self.group.index(), bytes, outcome);
        }
    }
}

/// # For allocators
impl Engine<'_, Host> {
    /// Returns the group's account, which charges from anywhere; see [`Account`] for its conditions.
    pub fn account(self) -> Account {
        Account::new(self.group)
    }
}
