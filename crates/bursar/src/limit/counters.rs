//! The counters of all groups, and claiming along the way to the root.
//!
//! Nothing here calls a listener. A change that listeners have not been told of leaves a mark ([`Counters::mark_untold`]), which
//! `react` looks at. A signal handler and a drop that unwinds must leave it at that, too.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use bursar_machine::pages::Owner;
use bursar_machine::{AtomicWord, Machine, MemoryOrder};

use super::counter::{PageCounter, USAGE_MAX};
use super::events::Event;
use super::limits::{Limit, Limits};
use crate::arena::Arena;
use crate::gate::{Gate, Operations};
use crate::tree::{LEVELS, ROOT, Tree};

/// The owner of pages that no group pays for.
pub(crate) const PROCESS: Owner = Owner::new(1);
const FIRST_OWNER: u64 = PROCESS.get() as u64 + 1;
/// The largest charge, bytes. The sum of all charges that fit in memory stays below 2^63.
pub(crate) const CHARGE_MAX: u64 = 1 << 56;
/// Default of the largest stock that one CPU holds for one group, bytes. Judgement: four requests of 16 MiB.
const STOCK_MAX: u64 = 64 << 20;
/// Largest setting of `stock_max`, bytes. A million groups on 1,024 CPUs then hold at most 2^60, which fits a counter.
pub(crate) const STOCK_MAX_MAX: u64 = 1 << 30;
/// Levels of the groups that most programs have.
const NEAR_LEVELS: usize = 8;
/// The default number of shards that are frozen at once, and drained in one turn.
pub(crate) const SHARDS_PER_SLICE: usize = 256;

/// Groups, and their counters.
pub(crate) struct Counters<M: Machine> {
    pub(crate) tree: Tree<M>,
    counters: Arena<PageCounter<M>>,
    pub(crate) stock: StockSettings,
    /// Listeners of all groups: tasks that wait for memory, and watchers of pressure.
    pub(crate) listeners: M::Word,
    /// Not 0: something changed, and listeners were not told yet.
    pub(crate) untold: M::Word,
    operations: Operations<M>,
    /// Reasons for upkeep to take stock back; see [`StockNews`].
    stock_news: M::Word,
    /// 0, or a group that returned too much and that no task has looked after yet, or a mark for several: see `over_return.rs`.
    pub(super) over_returned: M::Word,
    /// Not 0: such a group was printed.
    pub(super) has_told: M::Word,
    /// Whether any group ever had a `high`.
    some_high: AtomicBool,
    /// Groups made so far.
    lives: AtomicU64,
}

/// Settings of stock, and of drains that take it back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StockSettings {
    /// The most stock of one (group, CPU), bytes.
    pub(crate) stock_max: u64,
    /// Shards that are frozen at once, and drained in one turn.
    pub(crate) shards_per_slice: usize,
}

impl Default for StockSettings {
    fn default() -> Self {
        Self {
            stock_max: STOCK_MAX,
            shards_per_slice: SHARDS_PER_SLICE,
        }
    }
}

/// Reasons for upkeep to take stock back, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StockNews {
    /// A limit may have too little room for the stock below it.
    Spent = 1,
    /// A charge found no budget for its stock.
    Missed = 2,
    /// A CPU may hold more than the least stock of a group. No group is named: upkeep that refers to one keeps its name taken.
    Large = 4,
}

/// A slow operation under way, until dropped. No group on its way to the root is closed meanwhile.
pub(crate) enum UnderWay<'a, M: Machine> {
    /// Counted in at a word of its CPU.
    Here(&'a M::Word),
    /// Counted in at the gates from this group up.
    Way(&'a Counters<M>, u32),
}

impl<M: Machine> Drop for UnderWay<'_, M> {
    fn drop(&mut self) {
        match self {
            Self::Here(word) => Operations::<M>::give_back(word),
            Self::Way(counters, lowest) => {
                let chain = counters.tree.chain(*lowest);
                chain.for_each(|at| counters.counter(at).operations.exit());
            }
        }
    }
}

/// A group on the way is closed.
#[derive(Debug)]
pub(crate) struct Closed(pub(crate) u32);

impl<M: Machine> Counters<M> {
    /// `None` if there is no memory for the root's.
    pub(crate) fn new(tree: Tree<M>, stock: StockSettings, limits: Limits) -> Option<Self> {
        let counters = Arena::new();
        let root = PageCounter::new(tree.machine.cpus() as u32)?;
        root.begin_life(limits, Owner::new(FIRST_OWNER as u32));
        counters.reserve(ROOT).then(|| counters.put(ROOT, root))?;
        Some(Self {
            counters,
            stock,
            listeners: M::Word::new(0),
            untold: M::Word::new(0),
            operations: Operations::new(&tree.machine)?,
            stock_news: M::Word::new(0),
            over_returned: M::Word::new(0),
            has_told: M::Word::new(0),
            some_high: AtomicBool::new(limits.high != Limit::MAX),
            // The root is one.
            lives: AtomicU64::new(1),
            tree,
        })
    }

    /// Returns an owner of pages that no earlier group was. After 2^29 groups none is left. Then a group's pages are zeroed
    /// also before the group itself gets them again.
    fn next_owner(&self) -> Owner {
        // Relaxed: the numbers only have to differ.
        let life = self.lives.fetch_add(1, Relaxed);
        match u32::try_from(FIRST_OWNER + life) {
            Ok(number) if number <= Owner::MAX => Owner::new(number),
            _ => Owner::NOBODY,
        }
    }

    /// Makes the counter of a new record, unless an attempt that failed later has made it. `false` if there is no memory for it.
    pub(crate) fn put(&self, index: u32) -> bool {
        if self.counters.has(index) {
            return true;
        }
        let counter = PageCounter::new(self.tree.machine.cpus() as u32);
        let made = counter.filter(|_| self.counters.reserve(index));
        made.map(|counter| self.counters.put(index, counter))
            .is_some()
    }

    /// Makes room in a group's marks for a new child. `false` if there is no memory for it.
    pub(crate) fn make_room(&self, parent: u32, ordinal: u32) -> bool {
        self.counter(parent).holding_children.ensure(ordinal)
    }

    #[inline]
    pub(crate) fn counter(&self, index: u32) -> &PageCounter<M> {
        self.counters.get(index)
    }

    /// Begins the life of a new group in a record.
    pub(crate) fn begin_life(&self, index: u32, limits: Limits) {
        self.counter(index).begin_life(limits, self.next_owner());
        self.note_high(limits.high);
    }

    /// Notes that a group has this `high`.
    fn note_high(&self, high: Limit) {
        if high != Limit::MAX {
            // Relaxed: as `high` itself, which is a matter of degree.
            self.some_high.store(true, Relaxed);
        }
    }

    /// Changes a group's `high`.
    pub(crate) fn set_high(&self, index: u32, high: Limit) {
        self.note_high(high);
        // Full: a task that learns that a limit was set finds it set.
        let word = &self.counter(index).settings.high;
        word.store(high, MemoryOrder::Full);
    }

    /// Whether any group ever had a `high`.
    pub(crate) fn has_high(&self) -> bool {
        self.some_high.load(Relaxed)
    }

    /// Whether a change of usage is nobody's business: no listener, no `high`, no bug to look after.
    pub(crate) fn is_unobserved(&self) -> bool {
        // Full: pairs with `lifetime::listen`, whose caller looks at the usage after it.
        self.listeners.load(MemoryOrder::Full) == 0 && !self.has_high() && !self.has_over_returned()
    }

    /// Begins a slow operation, unless a group on its way to the root is closed. Async-signal-safe.
    pub(crate) fn begin(&self, way: &Way<'_, M>) -> Result<UnderWay<'_, M>, Closed> {
        debug_assert!(way.end.is_none());
        let shard = self.tree.machine.current_shard();
        let operation = match self.operations.take(shard, way.index) {
            Some(word) => {
                let begun = |counter: &&PageCounter<M>| counter.begun.mark(shard);
                way.list().iter().for_each(begun);
                UnderWay::Here(word)
            }
            None => {
                let enter = |counter: &&PageCounter<M>| counter.operations.enter();
                way.list().iter().for_each(enter);
                UnderWay::Way(self, way.index)
            }
        };
        let is_closed = |counter: &&PageCounter<M>| counter.operations.is_closed();
        match way.list().iter().position(is_closed) {
            // Dropping `operation` counts it out again.
            Some(at) => Err(Closed(way.group(at))),
            None => Ok(operation),
        }
    }

    /// [`Counters::begin`] that waits for closed groups to open. Do not call it inside of an operation, nor after closing a group.
    pub(super) fn begin_patiently(&self, way: &Way<'_, M>) -> UnderWay<'_, M> {
        loop {
            match self.begin(way) {
                Ok(operation) => return operation,
                Err(Closed(at)) => self.counter(at).operations.wait_until_open(),
            }
        }
    }

    /// Closes a group to operations at and below it, and waits for those under way there. The caller opens the gate.
    pub(super) fn close(&self, index: u32) -> &Gate<M> {
        let gate = &self.counter(index).operations;
        gate.close(&self.tree.machine);
        // While an operation is under way, no record above its group is used again. Once it is over either answer will do, and
        // the look must end.
        let is_below = |at: u32| {
            let mut chain = self.tree.chain(at).take(LEVELS);
            chain.any(|above| above == index)
        };
        let begun = &self.counter(index).begun;
        self.operations
            .wait_for(&self.tree.machine, begun, is_below);
        gate
    }

    /// Forgets operations of tasks that a forked child does not have.
    pub(crate) fn forget_operations(&self) {
        self.operations.forget_tasks();
    }

    /// Groups from `index` up to `end`, which is left out, or to the root if `end` is `None`.
    fn groups(&self, index: u32, end: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        self.tree
            .chain(index)
            .take_while(move |&at| Some(at) != end)
    }

    /// Way from a group up to `end`, which is left out, or to the root if `end` is `None`.
    // Inlined, so that it is not copied.
    #[inline(always)]
    pub(crate) fn way(&self, index: u32, end: Option<u32>) -> Way<'_, M> {
        let root = self.counter(ROOT);
        let mut way = Way {
            counters: self,
            index,
            end,
            len: 0,
            near: [root; NEAR_LEVELS],
            deep: None,
        };
        way.len = match (self.tree.node(index).depth() as usize) < NEAR_LEVELS {
            true => self.fill(&mut way.near, index, end),
            false => self.fill(way.deep.insert([root; LEVELS]), index, end),
        };
        way
    }

    /// Fills a list with the counters of a way; returns their number.
    fn fill<'a>(&'a self, list: &mut [&'a PageCounter<M>], index: u32, end: Option<u32>) -> usize {
        let counters = self.groups(index, end).map(|at| self.counter(at));
        let filled = list.iter_mut().zip(counters).map(|(at, one)| *at = one);
        filled.count()
    }

    /// First group on that way whose limit is smaller than a charge. No memory that is given back makes the charge fit.
    pub(crate) fn never_fits(&self, (index, end): (u32, Option<u32>), bytes: u64) -> Option<u32> {
        // Full: a limit that the caller knows to be raised counts as raised.
        let max = |at: u32| self.counter(at).settings.max.load(MemoryOrder::Full);
        self.groups(index, end).find(|&at| max(at) < bytes)
    }

    /// The first group from `index` up where a charge does not fit beside the usage of this moment.
    pub(crate) fn full(&self, index: u32, bytes: u64) -> Option<u32> {
        self.groups(index, None).find(|&at| {
            // Full, both: after all calls that the caller knows to be over.
            let max = self.counter(at).settings.max.load(MemoryOrder::Full);
            self.usage_now(at).saturating_add(bytes) > max
        })
    }

    /// Takes one more reference to a group.
    pub(crate) fn refer(&self, index: u32) {
        // The root needs none, and all CPUs use its line.
        if index != ROOT {
            self.tree.node(index).refer();
        }
    }

    /// The nearest group that is above or equal to both.
    pub(crate) fn common_ancestor(&self, one: u32, other: u32) -> u32 {
        self.tree
            .chain(one)
            .find(|&at| self.tree.is_ancestor(at, other))
            .expect("the root is above all")
    }

    /// The usage of a group and all below it, as a hint to choose by.
    pub(crate) fn usage(&self, index: u32) -> u64 {
        // Relaxed: a hint.
        self.counter(index).usage(MemoryOrder::Relaxed)
    }

    /// The usage of a group and all below it, after all calls that the caller knows to be over.
    pub(crate) fn usage_now(&self, index: u32) -> u64 {
        // Full: pairs with `raise` and `lower`.
        self.counter(index).usage(MemoryOrder::Full)
    }

    pub(crate) fn limits(&self, index: u32) -> Limits {
        // Full, all: pair with the stores in `react/limits.rs`. A task that learns that a limit was set finds it set.
        let settings = &self.counter(index).settings;
        Limits {
            min: settings.min.load(MemoryOrder::Full),
            low: settings.low.load(MemoryOrder::Full),
            high: settings.high.load(MemoryOrder::Full),
            max: settings.max.load(MemoryOrder::Full),
        }
    }

    /// The part of `bytes` that the tree has numbers for.
    pub(crate) fn chargeable(&self, bytes: u64) -> u64 {
        // Relaxed: far from anything that is ever used.
        let room = USAGE_MAX.saturating_sub(self.usage(ROOT));
        bytes.min(CHARGE_MAX).min(room)
    }

    /// Counts `amount` of an event at a group and in the sums of all above it.
    pub(crate) fn count(&self, index: u32, event: Event, amount: u64) {
        self.counter(index).events.count_own(event, amount);
        for at in self.tree.chain(index) {
            self.counter(at).events.count_total(event, amount);
        }
    }

    /// Leaves a reason to take stock back to upkeep. Async-signal-safe.
    pub(crate) fn note_stock(&self, news: StockNews) {
        // Relaxed, here and below: upkeep looks for itself, and comes again.
        if !self.has_stock_news(news) {
            self.stock_news.fetch_or(news as u64, MemoryOrder::Relaxed);
        }
    }

    /// Whether upkeep has that reason to take stock back.
    pub(crate) fn has_stock_news(&self, news: StockNews) -> bool {
        self.stock_news.load(MemoryOrder::Relaxed) & news as u64 != 0
    }

    /// Takes all reasons: whether there is any, and whether [`StockNews::Large`] is one.
    pub(crate) fn take_stock_news(&self) -> (bool, bool) {
        let news = self.stock_news.swap(0, MemoryOrder::Relaxed);
        (news != 0, news & StockNews::Large as u64 != 0)
    }

    /// Leaves telling listeners to the next operation that may call them, if there are any on the way from `index` up to, and
    /// without, `end`. Async-signal-safe.
    pub(crate) fn mark_untold(&self, index: u32, end: Option<u32>) {
        let is_listened_to = |at: u32| {
            let settings = &self.counter(at).settings;
            // Full: after the change.
            let listening = [&settings.waiting, &settings.watchers];
            listening
                .iter()
                .any(|word| word.load(MemoryOrder::Full) != 0)
        };
        if self.listeners.load(MemoryOrder::Full) != 0
            && self.groups(index, end).any(is_listened_to)
        {
            self.mark_all_untold();
        }
    }

    /// [`Counters::mark_untold`] for any group. Async-signal-safe.
    pub(crate) fn mark_all_untold(&self) {
        // Full, both: the look as in `is_unobserved`. The store pairs with the swap of the task that tells all.
        if self.listeners.load(MemoryOrder::Full) != 0 {
            self.untold.store(1, MemoryOrder::Full);
        }
    }

    /// Bounds on the usage without stock: from the usage less all possible stock, to the bytes reserved.
    pub(crate) fn usage_range(&self, index: u32) -> (i64, i64) {
        let (lo, hi) = self.counter(index).usage_range();
        let signed = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        (signed(lo), signed(hi))
    }
}

/// Counters of a group and its ancestors, up to the root or up to an ancestor that is left out. An operation looks them up once
/// and walks them several times.
pub(crate) struct Way<'a, M: Machine> {
    counters: &'a Counters<M>,
    pub(crate) index: u32,
    /// The group at which it ends; `None` if it has the root.
    pub(super) end: Option<u32>,
    len: usize,
    /// The list, unless there is a longer one. Most groups are not deep, and clearing places for all levels takes as long as a miss otherwise.
    near: [&'a PageCounter<M>; NEAR_LEVELS],
    deep: Option<[&'a PageCounter<M>; LEVELS]>,
}

impl<'a, M: Machine> Way<'a, M> {
    fn list(&self) -> &[&'a PageCounter<M>] {
        match &self.deep {
            None => &self.near[..self.len],
            Some(list) => &list[..self.len],
        }
    }

    /// The group at a position.
    fn group(&self, position: usize) -> u32 {
        let mut groups = self.counters.groups(self.index, self.end);
        groups.nth(position).expect("a position of the way")
    }

    /// Bytes that may be held as stock beside a charge of `bytes`.
    ///
    /// # Errors
    /// The first group where the charge has no chance. So a charge that is refused higher up usually shows nowhere below.
    pub(super) fn room(&self, bytes: u64) -> Result<u64, u32> {
        let mut least = USAGE_MAX;
        for (at, counter) in self.list().iter().enumerate() {
            let room = counter.room_beside(bytes);
            least = least.min(room.ok_or_else(|| self.group(at))?);
        }
        Ok(least)
    }

    /// The stock that a CPU may hold, which may hold `seen` already: the least of what the limits on the way allow.
    pub(super) fn cap(&self, seen: u64, wish: u64) -> u64 {
        let cpus = self.counters.tree.machine.cpus() as u64;
        let budgets = self.list().iter().filter_map(|counter| counter.budget());
        budgets.fold(wish, |cap, budget| cap.min(budget.cap(cpus, seen)))
    }

    /// Counts `more` that a CPU of the group may hold, unless that is more than a limit on the way allows. Returns whether it is counted.
    ///
    /// Counted before there is any stock, so that a reader's range contains it. Of two that are counted at once, the later sees both.
    pub(super) fn add_cap(&self, more: u64) -> bool {
        let refuses = |counter: &&PageCounter<M>| {
            // Full, here and below: pairs with `usage_range`.
            counter.armed.fetch_add(more, MemoryOrder::Full);
            counter.budget().is_some_and(|budget| !budget.holds())
        };
        match self.list().iter().position(refuses) {
            None => true,
            Some(at) => {
                self.remove_cap_below(at + 1, more);
                false
            }
        }
    }

    /// Counts `less` that a CPU of the group may hold no more.
    pub(super) fn remove_cap(&self, less: u64) {
        self.remove_cap_below(self.len, less);
    }

    fn remove_cap_below(&self, len: usize, less: u64) {
        self.list()[..len].iter().for_each(|counter| {
            // Full: pairs with `usage_range`.
            counter.disarmed.fetch_add(less, MemoryOrder::Full);
        });
    }

    /// Bytes that the group's CPUs may hold as stock, for the group and all below it.
    pub(super) fn caps(&self) -> u64 {
        self.list().first().map_or(0, |own| own.stock_max())
    }

    /// Claims `bytes` everywhere or nowhere, from the top down: so what is claimed at a group is claimed above, too.
    ///
    /// # Errors
    /// The first group where they do not fit.
    pub(super) fn claim(&self, bytes: u64) -> Result<(), u32> {
        let refuses = |counter: &&PageCounter<M>| !counter.add_claim(bytes);
        let Some(at) = self.list().iter().rposition(refuses) else {
            return Ok(());
        };
        self.unclaim_from(at, bytes);
        Err(self.group(at))
    }

    /// Gives a claim up, which is in no usage.
    pub(super) fn unclaim(&self, bytes: u64) {
        self.unclaim_from(0, bytes);
    }

    /// Gives up a claim that did not get below a position.
    fn unclaim_from(&self, position: usize, bytes: u64) {
        if bytes > 0 {
            self.give_up(position, bytes, false);
        }
    }

    /// Returns bytes that were stock: lowers the usage, and gives up the claim.
    pub(super) fn release(&self, bytes: u64) {
        if bytes > 0 {
            self.give_up(0, bytes, true);
        }
    }

    /// Returns bytes that were charged, if the group has as many. Returns how many it had, which are fewer if another task came in
    /// between.
    pub(super) fn release_if_there(&self, bytes: u64) -> u64 {
        let mut had = bytes;
        if let Some(own) = self.list().first() {
            if own.claimed() < bytes {
                return 0;
            }
            own.lower(bytes);
            had = own.take_claim(bytes);
            if had < bytes {
                own.raise(bytes - had);
            }
        }
        self.give_up(1, had, true);
        had
    }

    /// Gives claims up from a position on; bytes that are in the usage are taken out of it first. A counter that has fewer bytes lost
    /// them before. That is noted, and the counters above are lowered by no more than it had, so that no other group loses bytes by it.
    fn give_up(&self, from: usize, bytes: u64, in_usage: bool) {
        let mut left = bytes;
        for (at, counter) in self.list().iter().enumerate().skip(from) {
            if in_usage {
                counter.lower(left);
            }
            let had = counter.take_claim(left);
            if had < left {
                let short = left - had;
                if in_usage {
                    counter.raise(short);
                }
                self.counters.note_loss(self.group(at), short, self.end);
                if !in_usage {
                    // The task that took them lowered the usages, too.
                    self.raise_from(at, short);
                }
                left = had;
            }
        }
    }

    /// Bytes that the group has: charged there and below, held as stock, or claimed.
    pub(super) fn claimed(&self) -> u64 {
        let own = self.list().first();
        own.map_or(u64::MAX, |own| own.claimed())
    }

    /// Raises the usage by bytes that are claimed, and charged or held as stock.
    pub(super) fn raise(&self, bytes: u64) {
        self.raise_from(0, bytes);
    }

    fn raise_from(&self, position: usize, bytes: u64) {
        let from = &self.list()[position..];
        from.iter().for_each(|counter| counter.raise(bytes));
    }

    /// Lowers the usage by bytes that are about to be given up.
    pub(super) fn lower(&self, bytes: u64) {
        self.list().iter().for_each(|counter| counter.lower(bytes));
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::host::{allowed_cpus, pin_to};

    use super::*;
    use crate::{Group, Memory};

    const MIB: u64 = 1 << 20;

    /// A tenant of 64 MiB, and a group below it.
    fn tenant() -> (Group, Group) {
        let memory = Memory::host().unwrap();
        let limits = Limits::max(64 * MIB);
        let tenant = memory.root().child("tenant", limits).unwrap();
        let query = tenant.child("query", Limits::none()).unwrap();
        (tenant, query)
    }

    #[test]
    fn each_group_is_an_owner_of_its_own() {
        let (tenant, query) = tenant();
        let counters = &query.core().counters;
        let of = |at| counters.counter(at).owner();
        let groups = [ROOT, tenant.index(), query.index()].map(of);
        let owners = [&[Owner::NOBODY, PROCESS], &groups[..]].concat();
        for (at, owner) in owners.iter().enumerate() {
            assert!(!owners[..at].contains(owner), "{owners:?}");
        }
    }

    #[test]
    fn after_the_last_owner_there_is_nobody() {
        let (_, query) = tenant();
        let counters = &query.core().counters;
        let last = u64::from(Owner::MAX) - FIRST_OWNER;
        counters.lives.store(last, Relaxed);
        assert_eq!(counters.next_owner(), Owner::new(Owner::MAX));
        assert_eq!(counters.next_owner(), Owner::NOBODY);
    }

    #[test]
    fn a_cpu_may_hold_a_gib_at_most() {
        let memory = Memory::builder().stock_max(u64::MAX).build().unwrap();
        assert_eq!(memory.root().core().counters.stock.stock_max, 1 << 30);
    }

    #[test]
    fn a_group_is_full_when_a_charge_would_exceed_its_limit() {
        let (tenant, query) = tenant();
        let _held = query.try_charge(60 * MIB).unwrap();
        let counters = &query.core().counters;
        let full = |bytes| counters.full(query.index(), bytes);
        assert_eq!(full(4 * MIB), None);
        let beyond = [4 * MIB + 1, 5 * MIB, u64::MAX];
        assert_eq!(beyond.map(full), [Some(tenant.index()); 3]);
    }

    #[test]
    fn reasons_to_take_stock_back_are_taken_once() {
        let (_, query) = tenant();
        let counters = &query.core().counters;
        assert_eq!(counters.take_stock_news(), (false, false));
        counters.note_stock(StockNews::Missed);
        assert_eq!(counters.take_stock_news(), (true, false));
        counters.note_stock(StockNews::Missed);
        counters.note_stock(StockNews::Large);
        assert_eq!(counters.take_stock_news(), (true, true));
        assert_eq!(counters.take_stock_news(), (false, false));
    }

    #[test]
    fn only_changes_on_the_way_of_a_listener_are_left_to_tell() {
        let (tenant, query) = tenant();
        let counters = &query.core().counters;
        assert!(counters.is_unobserved());
        let leaves_it = |group: &Group, end| {
            counters.mark_untold(group.index(), end);
            counters.untold.swap(0, MemoryOrder::Full) != 0
        };
        assert!(!leaves_it(&query, None));
        counters.listeners.store(1, MemoryOrder::Full);
        assert!(!counters.is_unobserved());
        assert!(!leaves_it(&query, None));
        let settings = &counters.counter(tenant.index()).settings;
        for word in [&settings.waiting, &settings.watchers] {
            word.store(1, MemoryOrder::Full);
            assert!(leaves_it(&query, None));
            assert!(!leaves_it(&query, Some(tenant.index())));
            word.store(0, MemoryOrder::Full);
        }
        counters.listeners.store(0, MemoryOrder::Full);
    }

    /// Never returns if an operation beside the group is waited for.
    #[test]
    fn a_closed_group_does_not_wait_for_operations_beside_it() {
        pin_to(allowed_cpus()[0]).unwrap();
        let (tenant, query) = tenant();
        let other = tenant.child("other", Limits::none()).unwrap();
        let counters = &query.core().counters;
        let begin = |group: &Group| counters.begin(&counters.way(group.index(), None)).ok();
        // This CPU is looked at, because an operation of the group began here.
        assert!(begin(&query).is_some());
        let beside = begin(&other);
        assert!(beside.is_some());
        counters.close(query.index()).open();
    }

    #[test]
    fn caps_are_counted_on_the_whole_way_or_nowhere() {
        let (tenant, query) = tenant();
        let counters = &query.core().counters;
        let way = counters.way(query.index(), None);
        let indexes = [query.index(), tenant.index(), ROOT];
        let caps = || indexes.map(|at| counters.counter(at).stock_max());
        // The tenant's groups may hold a quarter of its limit.
        assert!(!way.add_cap(16 * MIB + 1));
        assert_eq!(caps(), [0; 3]);
        assert!(way.add_cap(16 * MIB));
        assert_eq!((caps(), way.caps()), ([16 * MIB; 3], 16 * MIB));
        way.remove_cap(16 * MIB);
        assert_eq!(caps(), [0; 3]);
    }
}
