//! One group's counter.

#[cfg(debug_assertions)]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bursar_machine::pages::Owner;
use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::events::EventCounts;
use super::limits::{Limit, Limits};
use crate::gate::Gate;
use crate::tree::MarkSet;

/// No usage is higher, so that sums are good as signed numbers.
pub(crate) const USAGE_MAX: u64 = 1 << 62;

/// Words that slow operations of all CPUs read and few write, away from the words that all of them write.
#[repr(align(64))]
pub(crate) struct Settings<M: Machine> {
    pub(crate) max: M::Word,
    pub(crate) high: M::Word,
    pub(crate) low: M::Word,
    pub(crate) min: M::Word,
    /// Tasks that wait for this group's limit: while there are any, no stock is held below.
    pub(crate) waiting: M::Word,
    /// Tasks that drain this group: while there are any, no stock is taken below.
    pub(super) draining: M::Word,
    /// Watchers of this group's pressure.
    pub(crate) watchers: M::Word,
    /// Reclaimers at or below this group.
    pub(crate) reclaimers: M::Word,
}

/// Usage and limits of one group (the kernel's `page_counter`, in bytes), and the state that exact refusals need.
pub(crate) struct PageCounter<M: Machine> {
    /// Bytes reserved for the group and all below it, stock included.
    pub(crate) usage: M::Word,
    /// The same, and the bytes claimed by charges that do not know yet whether they fit.
    ///
    /// A claim is one addition, so of many concurrent charges each waits for the line once. (A loop of compare-and-exchange on
    /// the usage fails whenever another charge comes in between: at 384 CPUs each charge took hundreds of turns.) Only claims
    /// that fit raise the usage, so it never shows a claim that is given up again.
    pub(super) claimed: M::Word,
    pub(crate) settings: Settings<M>,
    /// The highest usage so far.
    pub(crate) peak: M::Word,
    /// Slow operations at or below this group are inside; a refusal closes it for its last try.
    pub(super) operations: Gate<M>,
    /// Drains below this group are inside; a drain of this group closes it for one slice, or for its last step.
    pub(super) drains: Gate<M>,
    /// One slice of a drain, or the last try of a refusal, at a time.
    pub(super) slow: M::Mutex<()>,
    /// Shards of this group that may hold stock.
    pub(crate) holders: MarkSet<M>,
    /// Children with holders at or below them, by ordinal.
    pub(crate) holding_children: MarkSet<M>,
    /// The sum of all holders' caps at or below this group. The stock is never more.
    pub(crate) stock_max: M::Word,
    /// Bytes charged while a `high` was exceeded, for which no task has waited.
    pub(crate) debt_bytes: M::Word,
    pub(crate) events: EventCounts<M>,
    // No protocol between CPUs: set before the group is visible to others.
    /// Marks the pages that this group wrote.
    owner: AtomicU32,
    /// Whether pages are zeroed when they are freed.
    zeroes_on_free: AtomicBool,
    /// Whether the group may be chosen as a victim.
    may_be_victim: AtomicBool,
    /// Bytes charged here that a number stands for; see `over_return.rs`.
    #[cfg(debug_assertions)]
    lent: AtomicU64,
}

impl<M: Machine> PageCounter<M> {
    pub(crate) fn new(shards: u32) -> Self {
        Self {
            usage: M::Word::new(0),
            claimed: M::Word::new(0),
            settings: Settings {
                max: M::Word::new(Limit::MAX),
                high: M::Word::new(Limit::MAX),
                low: M::Word::new(0),
                min: M::Word::new(0),
                waiting: M::Word::new(0),
                draining: M::Word::new(0),
                watchers: M::Word::new(0),
                reclaimers: M::Word::new(0),
            },
            peak: M::Word::new(0),
            operations: Gate::new(),
            drains: Gate::new(),
            slow: M::Mutex::new(()),
            holders: MarkSet::new(shards),
            holding_children: MarkSet::new(0),
            stock_max: M::Word::new(0),
            debt_bytes: M::Word::new(0),
            events: EventCounts::new(),
            owner: AtomicU32::new(Owner::NOBODY.get()),
            zeroes_on_free: AtomicBool::new(false),
            may_be_victim: AtomicBool::new(true),
            #[cfg(debug_assertions)]
            lent: AtomicU64::new(0),
        }
    }

    /// Begins the life of a new group in this record.
    pub(crate) fn begin_life(&self, limits: Limits, owner: Owner) {
        self.owner.store(owner.get(), Ordering::Relaxed);
        self.zeroes_on_free.store(false, Ordering::Relaxed);
        self.may_be_victim.store(true, Ordering::Relaxed);
        #[cfg(debug_assertions)]
        self.lent.store(0, Ordering::Relaxed);
        debug_assert_eq!(self.usage.load(MemoryOrder::Full), 0);
        debug_assert_eq!(self.claimed.load(MemoryOrder::Full), 0);
        // A drain found all stock, and is over.
        debug_assert_eq!(self.stock_max.load(MemoryOrder::Full), 0);
        debug_assert_eq!(self.settings.draining.load(MemoryOrder::Full), 0);
        // A registration keeps the record of its group.
        debug_assert_eq!(self.settings.waiting.load(MemoryOrder::Full), 0);
        debug_assert_eq!(self.settings.watchers.load(MemoryOrder::Full), 0);
        debug_assert_eq!(self.settings.reclaimers.load(MemoryOrder::Full), 0);
        self.settings.max.store(limits.max, MemoryOrder::Full);
        self.settings.high.store(limits.high, MemoryOrder::Full);
        self.settings.low.store(limits.low, MemoryOrder::Full);
        self.settings.min.store(limits.min, MemoryOrder::Full);
        for word in [&self.peak, &self.debt_bytes] {
            word.store(0, MemoryOrder::Relaxed);
        }
        self.events.clear();
    }

    /// See the field.
    pub(crate) fn owner(&self) -> Owner {
        Owner::new(self.owner.load(Ordering::Relaxed))
    }

    /// See the field.
    pub(crate) fn zeroes_on_free(&self) -> bool {
        self.zeroes_on_free.load(Ordering::Relaxed)
    }

    /// For pages that are freed from now on.
    pub(crate) fn set_zeroes_on_free(&self, zeroes: bool) {
        self.zeroes_on_free.store(zeroes, Ordering::Relaxed);
    }

    /// See the field.
    pub(crate) fn may_be_victim(&self) -> bool {
        self.may_be_victim.load(Ordering::Relaxed)
    }

    /// For choices from now on.
    pub(crate) fn exclude_from_victims(&self) {
        self.may_be_victim.store(false, Ordering::Relaxed);
    }

    /// A number stands for `bytes` of what is charged here.
    #[cfg(debug_assertions)]
    pub(super) fn lend(&self, bytes: u64) {
        // Relaxed, here and below: the task that returns bytes got their number from the task that charged them.
        self.lent.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes such a number back. `Err`: the bytes that there are numbers for, if these are fewer.
    #[cfg(debug_assertions)]
    pub(super) fn take_back(&self, bytes: u64) -> Result<(), u64> {
        let less = |lent: u64| lent.checked_sub(bytes);
        let taken = self
            .lent
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.map(|_| ())
    }

    /// Reserves `bytes` if the usage then stays within the limit. Returns the usage then.
    ///
    /// It may also fail because of bytes that others claim and are about to give up, or are returning. A task that must know
    /// for sure asks again when no slow operation is under way below (`charge_drained`).
    #[doc(alias = "page_counter_try_charge")]
    pub(crate) fn try_charge(&self, bytes: u64) -> Option<u64> {
        // Relaxed: lowering the limit closes the group, and we are counted in flight.
        let max = self.settings.max.load(MemoryOrder::Relaxed).min(USAGE_MAX);
        let fits = |claimed: u64| claimed.checked_add(bytes).is_some_and(|sum| sum <= max);
        // Relaxed: only spares others a claim that is hopeless. So at most USAGE_MAX is claimed, beside the claims under way
        // right now, which do not add up to 2^63 bytes.
        if !fits(self.claimed.load(MemoryOrder::Relaxed)) {
            return None;
        }
        // Full: all claims that fit were made in one order, and the sum of those that are not given up is within the limit.
        if fits(self.claimed.fetch_add(bytes, MemoryOrder::Full)) {
            // Below 0 for a moment, if other code returns bytes that we have reserved below.
            return Some(
                self.usage
                    .fetch_add(bytes, MemoryOrder::Full)
                    .wrapping_add(bytes),
            );
        }
        self.claimed.fetch_sub(bytes, MemoryOrder::Full);
        None
    }

    /// Notes a usage for the peak.
    pub(super) fn note_peak(&self, usage: u64) {
        if usage <= USAGE_MAX {
            // Relaxed: a high-water mark for people.
            self.peak.fetch_max(usage, MemoryOrder::Relaxed);
        }
    }

    /// Whether [`PageCounter::try_charge`] has a chance.
    pub(super) fn may_fit(&self, bytes: u64) -> bool {
        match self.settings.max.load(MemoryOrder::Relaxed) {
            // Spares a look at a word that all CPUs write.
            Limit::MAX => true,
            max => {
                let claimed = self.claimed.load(MemoryOrder::Relaxed);
                claimed.checked_add(bytes).is_some_and(|sum| sum <= max)
            }
        }
    }

    /// Reserves `bytes` whatever the limit says. Returns whether that is above the limit.
    #[doc(alias = "page_counter_charge")]
    pub(crate) fn charge(&self, bytes: u64) -> bool {
        let claimed = self
            .claimed
            .fetch_add(bytes, MemoryOrder::Full)
            .wrapping_add(bytes);
        let usage = self
            .usage
            .fetch_add(bytes, MemoryOrder::Full)
            .wrapping_add(bytes);
        self.note_peak(usage);
        // By the claims: a claim that fits, and came before us, may not have reached the usage yet.
        claimed > self.settings.max.load(MemoryOrder::Full)
    }

    /// Returns a reservation of which a group below had as much. The usage is lowered first, so that it never exceeds the
    /// claims.
    #[doc(alias = "page_counter_uncharge")]
    pub(crate) fn uncharge(&self, bytes: u64) {
        self.usage.fetch_sub(bytes, MemoryOrder::Full);
        self.claimed.fetch_sub(bytes, MemoryOrder::Full);
    }

    /// [`PageCounter::uncharge`] at the group that was charged. Returns how many bytes it had, which is less if more are
    /// returned than were charged. Then the usage is 0.
    #[doc(alias = "page_counter_cancel")]
    pub(crate) fn uncharge_own(&self, bytes: u64) -> u64 {
        // Relaxed: tasks that return bytes that were charged find at least that much.
        let mut seen = self.usage.load(MemoryOrder::Relaxed);
        let mut returned = bytes;
        if seen >= bytes {
            let before = self.usage.fetch_sub(bytes, MemoryOrder::Full);
            if before < bytes {
                // Others returned too much meanwhile. The bytes that they took are given back.
                self.usage.fetch_add(bytes - before, MemoryOrder::Full);
                returned = before;
            }
        } else {
            // One step, so that no task sees a usage below 0.
            while let Err(now) =
                self.usage
                    .compare_exchange(seen, seen.saturating_sub(bytes), MemoryOrder::Full)
            {
                seen = now;
            }
            returned = seen.min(bytes);
        }
        self.claimed.fetch_sub(returned, MemoryOrder::Full);
        returned
    }

    /// Bytes that may be held as stock: the bytes left below `max` and `high`. 0 if the usage is above them, a task waits, or
    /// stock is being taken back.
    pub(crate) fn head_room(&self) -> u64 {
        // Relaxed: a drain looks again when all operations that may have missed it have left.
        if self.settings.draining.load(MemoryOrder::Relaxed) != 0 {
            return 0;
        }
        match self.stock_limit() {
            // Spares a look at a word that all CPUs write.
            Limit::MAX => USAGE_MAX,
            // Relaxed: we are in flight, and a task that comes to wait closes the group before it sleeps.
            _ if self.settings.waiting.load(MemoryOrder::Relaxed) != 0 => 0,
            limit => limit.saturating_sub(self.usage.load(MemoryOrder::Relaxed)),
        }
    }

    /// The limit above which stock must not bring the usage: stock must cause neither a refusal nor a debt.
    fn stock_limit(&self) -> Limit {
        // Relaxed: a hint, like the usage that it is compared with.
        let max = self.settings.max.load(MemoryOrder::Relaxed);
        max.min(self.settings.high.load(MemoryOrder::Relaxed))
    }

    /// Whether the stock below may be more than a quarter of the bytes that would be left without it. Each CPU takes its share
    /// of the bytes left when it first needs stock, so many groups on many CPUs may take nearly all in the end.
    pub(crate) fn has_much_stock(&self) -> bool {
        let stock = self.stock_max.load(MemoryOrder::Relaxed);
        match self.stock_limit() {
            Limit::MAX => false,
            limit => {
                let left = limit.saturating_sub(self.usage.load(MemoryOrder::Relaxed));
                stock > left.saturating_add(stock) / 4
            }
        }
    }

    /// Bounds on the bytes charged at and below this group. All reserved bytes are charged or stock, and the stock is at most
    /// the sum of all holders' caps. A reservation that is under way is neither yet. So if there is one now, or was one
    /// meanwhile, the lower bound is 0.
    pub(crate) fn usage_range(&self) -> (u64, u64) {
        const TRIES: usize = 4;
        let mut usage = 0;
        for _ in 0..TRIES {
            let (is_quiet, look) = self.operations.look();
            // In this order: a drain returns stock before it lowers the bound on it.
            let stock = self.stock_max.load(MemoryOrder::Full);
            usage = self.usage.load(MemoryOrder::Full);
            if is_quiet && self.operations.is_quiet_since(look) {
                return (usage.saturating_sub(stock), usage);
            }
        }
        (0, usage)
    }

    /// Puts the counter right in a forked child: the usage is this, without stock, and no operation is under way.
    pub(crate) fn put_right(&self, usage: u64) {
        self.operations.forget_tasks();
        self.drains.forget_tasks();
        self.stock_max.store(0, MemoryOrder::Full);
        self.claimed.store(usage, MemoryOrder::Full);
        self.usage.store(usage, MemoryOrder::Full);
        self.peak.fetch_max(usage, MemoryOrder::Relaxed);
    }
}
