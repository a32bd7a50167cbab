//! One group's counter.

#[cfg(debug_assertions)]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bursar_machine::pages::Owner;
use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::budget::Budget;
use super::events::EventCounts;
use super::limits::{Limit, Limits};
use crate::apart::Apart;
use crate::gate::{Begun, Gate};
use crate::tree::MarkSet;

/// Largest usage, bytes. Sums of such numbers fit a signed word.
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
    /// Tasks that drain this group, and a bit for good if it returned too much: if this is not 0, no stock is taken below.
    pub(super) draining: M::Word,
    /// Watchers of this group's pressure.
    pub(crate) watchers: M::Word,
    /// Reclaimers at or below this group.
    pub(crate) reclaimers: M::Word,
}

/// The words that slow operations of all CPUs write.
struct Bytes<M: Machine> {
    /// Bytes that are charged or held as stock, for the group and all below it. Raised after the bytes are recorded, and lowered
    /// before they are given up, so it is never more than they are. It may be below 0 for a moment: others return bytes that are
    /// not in it yet.
    usage: M::Word,
    /// Claimed bytes, at least the usage: raised before the bytes are charged, and lowered last. Also the bytes claimed by charges that
    /// do not know yet whether they fit.
    ///
    /// A claim is one addition, so of many concurrent charges each waits for the line once. (A loop of compare-and-exchange
    /// fails whenever another charge comes in between: at 384 CPUs each charge took hundreds of turns.) Only claims that fit
    /// raise the usage, so it never shows a claim that is given up again.
    claimed: M::Word,
}

/// Usage and limits of one group (the kernel's `page_counter`, in bytes), and the state that exact refusals need.
pub(crate) struct PageCounter<M: Machine> {
    bytes: Apart<Bytes<M>>,
    pub(crate) settings: Settings<M>,
    /// Charges to this group or below that are in a queue, wherever that is.
    pub(crate) waits_below: M::Word,
    /// The highest usage so far.
    pub(crate) peak: M::Word,
    /// The most that was claimed when a charge overshot the limit.
    overshot: M::Word,
    /// Counts slow operations at or below this group that found their CPU's word taken. A refusal closes it for its last try.
    pub(super) operations: Gate<M>,
    /// Shards whose word an operation at or below this group has taken.
    pub(super) begun: Begun<M>,
    /// Drains below this group are inside; a drain of this group closes it for one slice, or for its last step.
    pub(super) drains: Gate<M>,
    /// One slice of a drain, or the last try of a refusal, at a time.
    pub(super) slow: M::Mutex<()>,
    /// Shards of this group that may hold stock.
    pub(crate) holders: MarkSet<M>,
    /// Children with holders at or below them, by ordinal.
    pub(crate) holding_children: MarkSet<M>,
    /// The sum of the caps that holders at or below this group ever got. Less [`PageCounter::disarmed`], it bounds the stock.
    pub(super) armed: M::Word,
    /// The sum of the caps that drains took from them. Two words that only rise, so that a reader between them errs to one side.
    pub(super) disarmed: M::Word,
    /// Bytes charged while a `high` was exceeded, for which no task has waited.
    pub(crate) debt_bytes: M::Word,
    /// Marks of a group that returned too much; see `over_return.rs`.
    pub(super) over_return: M::Word,
    /// Bytes of returns that are put off.
    pub(super) put_off: M::Word,
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
    /// `None` if there is no memory for it.
    pub(crate) fn new(shards: u32) -> Option<Self> {
        Some(Self {
            bytes: Apart(Bytes {
                usage: M::Word::new(0),
                claimed: M::Word::new(0),
            }),
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
            waits_below: M::Word::new(0),
            peak: M::Word::new(0),
            overshot: M::Word::new(0),
            operations: Gate::new(),
            begun: Begun::new(shards)?,
            drains: Gate::new(),
            slow: M::Mutex::new(()),
            holders: MarkSet::new(shards)?,
            holding_children: MarkSet::new(0)?,
            armed: M::Word::new(0),
            disarmed: M::Word::new(0),
            debt_bytes: M::Word::new(0),
            over_return: M::Word::new(0),
            put_off: M::Word::new(0),
            events: EventCounts::new()?,
            owner: AtomicU32::new(Owner::NOBODY.get()),
            zeroes_on_free: AtomicBool::new(false),
            may_be_victim: AtomicBool::new(true),
            #[cfg(debug_assertions)]
            lent: AtomicU64::new(0),
        })
    }

    /// Begins the life of a new group in this record.
    pub(crate) fn begin_life(&self, limits: Limits, owner: Owner) {
        self.owner.store(owner.get(), Ordering::Relaxed);
        self.zeroes_on_free.store(false, Ordering::Relaxed);
        self.may_be_victim.store(true, Ordering::Relaxed);
        #[cfg(debug_assertions)]
        self.lent.store(0, Ordering::Relaxed);
        // Full, all: pair with the last operations of the record's last group (`lower`, `unclaim`), with tasks that still have that
        // group in hand and look at its limits, and with nothing else. Others get the id under the lock of the parent's children.
        debug_assert_eq!(self.bytes.usage.load(MemoryOrder::Full), 0);
        debug_assert_eq!(self.bytes.claimed.load(MemoryOrder::Full), 0);
        // A drain found all stock, and is over.
        debug_assert_eq!(self.stock_max(), 0);
        self.forget_over_return();
        // Full, as above. A registration keeps the record of its group.
        debug_assert_eq!(self.settings.waiting.load(MemoryOrder::Full), 0);
        debug_assert_eq!(self.waits_below.load(MemoryOrder::Full), 0);
        debug_assert_eq!(self.settings.watchers.load(MemoryOrder::Full), 0);
        debug_assert_eq!(self.settings.reclaimers.load(MemoryOrder::Full), 0);
        self.settings.max.store(limits.max, MemoryOrder::Full);
        self.settings.high.store(limits.high, MemoryOrder::Full);
        self.settings.low.store(limits.low, MemoryOrder::Full);
        self.settings.min.store(limits.min, MemoryOrder::Full);
        for word in [&self.peak, &self.overshot, &self.debt_bytes] {
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

    /// Applies to pages that are freed from now on.
    pub(crate) fn set_zeroes_on_free(&self, zeroes: bool) {
        self.zeroes_on_free.store(zeroes, Ordering::Relaxed);
    }

    /// See the field.
    pub(crate) fn may_be_victim(&self) -> bool {
        self.may_be_victim.load(Ordering::Relaxed)
    }

    /// Applies to choices from now on.
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

    /// Claims `bytes`. Returns whether they fit within the limit; if they do not, the caller gives the claim up again.
    ///
    /// They may also not fit because of bytes that others claim and are about to give up, or are returning. A task that must know
    /// for sure asks again when no slow operation is under way below (`charge_drained`).
    #[doc(alias = "page_counter_try_charge")]
    pub(crate) fn add_claim(&self, bytes: u64) -> bool {
        // Relaxed: lowering the limit closes the group, and we are counted in.
        let max = self.settings.max.load(MemoryOrder::Relaxed).min(USAGE_MAX);
        // Full: all claims that fit were made in one order, and the sum of those that are not given up is within the limit.
        // Claims under way do not add up to 2^63 bytes.
        let before = self.bytes.claimed.fetch_add(bytes, MemoryOrder::Full);
        before.checked_add(bytes).is_some_and(|sum| sum <= max)
    }

    /// Raises the usage by bytes that are claimed, and charged or held as stock.
    pub(super) fn raise(&self, bytes: u64) {
        let before = self.bytes.usage.fetch_add(bytes, MemoryOrder::Full);
        let usage = before.wrapping_add(bytes);
        // Relaxed, both: a high-water mark for people. Most charges do not raise it, and then it is not written.
        if usage <= USAGE_MAX && usage > self.peak.load(MemoryOrder::Relaxed) {
            self.peak.fetch_max(usage, MemoryOrder::Relaxed);
        }
    }

    /// Lowers the usage by bytes that are about to be given up.
    pub(super) fn lower(&self, bytes: u64) {
        // Full: pairs with `reserved` and `usage_range`. `reserved` looks at the claims after the usage, and these are given up later.
        self.bytes.usage.fetch_sub(bytes, MemoryOrder::Full);
    }

    /// Bytes that are charged or held as stock, by operations that are over.
    pub(crate) fn usage(&self, order: MemoryOrder) -> u64 {
        self.bytes.usage.load_signed(order).max(0) as u64
    }

    /// Bytes that are charged or held as stock, and those of operations under way that fit.
    pub(crate) fn reserved(&self) -> u64 {
        // Full: pairs with the stores of `raise_max` and `lower_max`.
        let max = || self.settings.max.load(MemoryOrder::Full);
        // Claims that do not fit lie above the limit. Bytes above it that do count were charged whatever it says, or it was
        // lowered since. A limit that changes meanwhile counts as the higher one. Full, all: the claims are looked at last.
        let max_before = max();
        let usage = self.usage(MemoryOrder::Full);
        let overshot = self.overshot.load(MemoryOrder::Full);
        let bound = usage.max(overshot).max(max_before).max(max());
        self.bytes.claimed.load(MemoryOrder::Full).min(bound)
    }

    /// Claims `bytes` whatever the limit says. Returns whether that is above the limit.
    #[doc(alias = "page_counter_charge")]
    pub(super) fn claim_anyway(&self, bytes: u64) -> bool {
        // Full, all: pair with `reserved`, and with the stores of `lower_max` and `raise_max`. The bytes are recorded afterwards.
        let before = self.bytes.claimed.fetch_add(bytes, MemoryOrder::Full);
        let claimed = before.wrapping_add(bytes);
        let is_over = claimed > self.settings.max.load(MemoryOrder::Full);
        if is_over {
            // Full: before the bytes are recorded.
            self.overshot.fetch_max(claimed, MemoryOrder::Full);
        }
        is_over
    }

    /// Bytes claimed now.
    pub(super) fn claimed(&self) -> u64 {
        // Relaxed: tasks that return bytes that were charged find at least that much.
        let claimed = self.bytes.claimed.load_signed(MemoryOrder::Relaxed);
        claimed.max(0) as u64
    }

    /// Gives up a claim. Returns how many bytes were claimed, which is less if more were returned than charged. Then none are left.
    #[doc(alias = "page_counter_uncharge")]
    pub(crate) fn take_claim(&self, bytes: u64) -> u64 {
        let claimed = &self.bytes.claimed;
        // Full, here and below: pairs with `room`. A task that comes to wait is seen by a return, or sees what it returned.
        // `claimed` stays below 2^63. A higher word is negative: another task gave up too much and has not corrected it yet.
        let mut seen = (claimed.fetch_sub(bytes, MemoryOrder::Full)).wrapping_sub(bytes) as i64;
        let mut had = bytes;
        // Only what is below 0 now: others give back, too. If a claim came meanwhile, it misses the rest when it is given up.
        while seen < 0 && had > 0 {
            let back = had.min(seen.unsigned_abs());
            let now = seen.wrapping_add_unsigned(back);
            match claimed.compare_exchange(seen as u64, now as u64, MemoryOrder::Full) {
                Ok(_) => {
                    had -= back;
                    seen = now;
                }
                Err(other) => seen = other as i64,
            }
        }
        had
    }

    /// Bytes that may be held as stock beside a charge of `bytes`: those left below `max` and `high`. 0 if the usage is above
    /// them, a task waits, or stock is being taken back. `None` if [`PageCounter::add_claim`] has no chance.
    pub(super) fn room_beside(&self, bytes: u64) -> Option<u64> {
        let limit = self.stock_limit();
        let left = if limit == Limit::MAX {
            // Spares a look at a word that all CPUs write.
            USAGE_MAX
        } else {
            // Full, both: a task that comes to wait is seen by a return, or sees what it returned.
            let claimed = self
                .bytes
                .claimed
                .load(MemoryOrder::Full)
                .checked_add(bytes)?;
            if claimed > self.settings.max.load(MemoryOrder::Full) {
                return None;
            }
            limit.saturating_sub(claimed)
        };
        // Relaxed, both: a drain looks again when all operations that may have missed it have left, and a task that comes to
        // wait closes the group before it sleeps.
        let settings = &self.settings;
        let is_free = settings.draining.load(MemoryOrder::Relaxed) == 0
            && settings.waiting.load(MemoryOrder::Relaxed) == 0;
        Some(if is_free { left } else { 0 })
    }

    /// The limit above which stock must not bring the usage: stock must cause neither a refusal nor a debt.
    fn stock_limit(&self) -> Limit {
        // Relaxed: a hint, like the claims that it is compared with.
        let max = self.settings.max.load(MemoryOrder::Relaxed);
        max.min(self.settings.high.load(MemoryOrder::Relaxed))
    }

    /// An upper bound on the stock at and below this group.
    pub(crate) fn stock_max(&self) -> u64 {
        // In this order, and Full: a cap counts before there is stock, and until the stock is returned.
        let disarmed = self.disarmed.load(MemoryOrder::Full);
        let armed = self.armed.load(MemoryOrder::Full);
        armed.wrapping_sub(disarmed)
    }

    /// The budget of stock at and below this group; `None` if it has no limit.
    pub(super) fn budget(&self) -> Option<Budget> {
        let limit = self.stock_limit();
        (limit != Limit::MAX).then(|| Budget {
            // Relaxed: a charge that misses these bytes takes the stock back before it is refused.
            room: limit.saturating_sub(self.bytes.claimed.load(MemoryOrder::Relaxed)),
            caps: self.stock_max(),
        })
    }

    /// Whether the CPUs may hold so much stock below that upkeep takes it back.
    pub(crate) fn has_much_stock(&self) -> bool {
        self.budget().is_some_and(Budget::is_spent)
    }

    /// Bounds on the bytes charged at and below this group, each at some moment of this call. The usage is charged or stock, and
    /// the stock is at most the sum of all holders' caps.
    pub(crate) fn usage_range(&self) -> (u64, u64) {
        let reserved = self.reserved();
        // Full, all: pair with `arm` and `drain_slice`. The usage between the two: so the bound is one on the stock of that moment.
        let disarmed = self.disarmed.load(MemoryOrder::Full);
        let usage = self.usage(MemoryOrder::Full);
        let stock_max = self.armed.load(MemoryOrder::Full).wrapping_sub(disarmed);
        let lo = usage.saturating_sub(stock_max);
        (lo, reserved.max(lo))
    }

    /// Puts the counter right in a forked child: the usage is this, without stock, and no operation is under way.
    pub(crate) fn put_right(&self, usage: u64) {
        self.operations.forget_tasks();
        self.drains.forget_tasks();
        // Full, all: pair with nothing. The child has no other thread.
        self.armed.store(0, MemoryOrder::Full);
        self.disarmed.store(0, MemoryOrder::Full);
        self.bytes.claimed.store(usage, MemoryOrder::Full);
        self.bytes.usage.store(usage, MemoryOrder::Full);
        self.peak.fetch_max(usage, MemoryOrder::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::Host;

    use super::*;

    const MAX: u64 = 100;

    /// A group of one shard with that limit.
    fn limited() -> PageCounter<Host> {
        let counter = PageCounter::new(1).expect("memory");
        counter.begin_life(Limits::max(MAX), Owner::NOBODY);
        counter
    }

    #[test]
    fn pages_are_zeroed_for_groups_that_want_it() {
        let counter = limited();
        assert!(!counter.zeroes_on_free());
        counter.set_zeroes_on_free(true);
        assert!(counter.zeroes_on_free());
    }

    #[test]
    fn a_usage_below_zero_is_no_peak() {
        let counter = limited();
        counter.lower(10);
        counter.raise(5);
        assert_eq!(counter.peak.load(MemoryOrder::Full), 0);
        counter.raise(20);
        assert_eq!(counter.peak.load(MemoryOrder::Full), 15);
    }

    #[test]
    fn a_claim_that_reaches_the_limit_is_not_above_it() {
        let counter = limited();
        assert!(!counter.claim_anyway(MAX));
        assert_eq!(counter.overshot.load(MemoryOrder::Full), 0);
        assert!(counter.claim_anyway(1));
        assert_eq!(counter.overshot.load(MemoryOrder::Full), MAX + 1);
    }

    /// Another task gave up 5 bytes too many, and has not corrected that yet.
    #[test]
    fn a_return_gives_up_no_more_than_is_left() {
        let counter = limited();
        counter.bytes.claimed.fetch_sub(5, MemoryOrder::Full);
        assert_eq!(counter.take_claim(3), 0);
        counter.bytes.claimed.fetch_add(7, MemoryOrder::Full);
        assert_eq!(counter.take_claim(3), 2);
        assert_eq!(counter.bytes.claimed.load(MemoryOrder::Full), 0);
    }

    #[test]
    fn there_is_no_room_for_stock_while_a_group_is_drained_or_waited_for() {
        let counter = limited();
        counter.add_claim(10);
        assert_eq!(counter.room_beside(20), Some(MAX - 30));
        assert_eq!(counter.room_beside(MAX - 10), Some(0));
        assert_eq!(counter.room_beside(MAX - 9), None);
        for word in [&counter.settings.draining, &counter.settings.waiting] {
            word.store(1, MemoryOrder::Full);
            assert_eq!(counter.room_beside(20), Some(0));
            word.store(0, MemoryOrder::Full);
        }
    }

    #[test]
    fn a_group_without_a_limit_never_has_much_stock() {
        let counter = PageCounter::<Host>::new(1).expect("memory");
        counter.armed.store(u64::MAX >> 2, MemoryOrder::Full);
        assert!(!counter.has_much_stock());
        let counter = limited();
        counter.armed.store(MAX, MemoryOrder::Full);
        assert!(counter.has_much_stock());
    }
}
