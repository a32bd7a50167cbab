//! Charging as the kernel does: counters up the tree with limits, and per-CPU stock (`mm/page_counter.c`, `mm/memcontrol.c`).
//!
//! A charge first takes from its CPU's stock of the group. If that has too little, it adds a batch of 64 pages to
//! the group and all ancestors, or what it needs if the batch does not fit, and keeps the rest as stock. A counter adds,
//! compares with its limit, and undoes what is too much. So usage contains all stock, and a large charge that fails may
//! make a small one fail that would fit.
//!
//! A CPU's stock has slots, one for each of the groups that charged there last: one slot until 2025, seven since. A group
//! without a slot takes that of another, whose pages then go back to the counters. A slot above one batch goes back whole.
//!
//! Or each counter has stock on each CPU, a word without a lock, as proposed in 2026 (*move stock from mem_cgroup to
//! page_counter*). No group drains another. Others take a word back by an exchange. Only the group that is charged keeps stock,
//! not its ancestors; that is our reading of the proposal.
//!
//! Draining looks at the stock of each CPU. The kernel queues work on the CPUs that hold some of the group; here the
//! drainer does that work itself, with the lock of their stock. Isolated CPUs are not modelled.
//!
//! Simplified: victims of a full stock are taken in turn, and a slot without pages is free for any group.

use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use crate::Padded;
use crate::stats::GroupIndex;

/// Pages of a batch, and most pages of a slot.
#[doc(alias = "MEMCG_CHARGE_BATCH")]
const BATCH: u64 = 64;

/// Slots of a CPU's stock since 2025.
#[doc(alias = "NR_MEMCG_STOCK")]
pub const SLOTS_MAX: usize = 7;

/// No limit.
pub const UNLIMITED: u64 = u64::MAX;

/// The place of a CPU's stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StockKind {
    /// On each CPU so many slots for the groups that charged there last, 1 to [`SLOTS_MAX`].
    Slots(usize),
    /// On each CPU a word for each group.
    PerCounter,
}

/// Events so far. The machine does not know of their words: a kernel does not count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChargeCounts {
    /// Walks up the tree, of charges and of returns.
    pub walks: u64,
    /// Slots that a group took from another.
    pub evictions: u64,
}

/// Counters of all groups, and the stock of all CPUs.
pub struct Charging<M: Machine> {
    machine: M,
    parents: Vec<Option<GroupIndex>>,
    counters: Vec<Padded<Counter<M>>>,
    stocks: Stocks<M>,
    /// Held by the task that drains; only tried.
    draining: M::Mutex<()>,
    walks: AtomicU64,
    evictions: AtomicU64,
}

/// Stock by shard.
enum Stocks<M: Machine> {
    Slots(Vec<Padded<M::Spin<Stock>>>),
    /// Pages by group.
    PerCounter(Vec<Vec<M::Word>>),
}

#[doc(alias = "page_counter")]
struct Counter<M: Machine> {
    /// Pages charged, stock included.
    usage: M::Word,
    max: u64,
}

#[doc(alias = "memcg_stock_pcp")]
struct Stock {
    slots: Vec<Held>,
    /// Slot that the next stranger takes.
    victim: usize,
}

/// Pages of one group.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    group: GroupIndex,
    pages: u64,
}

impl<M: Machine> Charging<M> {
    /// Makes counters where group `i` has the parent `parents[i]` and the limit `max[i]`, pages, and stock of a kind.
    ///
    /// # Panics
    /// If the slots are none or more than [`SLOTS_MAX`], or a group has no limit.
    pub fn new(machine: &M, parents: &[Option<GroupIndex>], max: &[u64], stock: StockKind) -> Self {
        assert_eq!(parents.len(), max.len(), "one limit for each group");
        let shards = 0..=machine.cpus();
        let stocks = match stock {
            StockKind::Slots(slots) => {
                assert!((1..=SLOTS_MAX).contains(&slots), "1 to 7 slots");
                let stock = || Stock {
                    slots: vec![Held::default(); slots],
                    victim: 0,
                };
                Stocks::Slots(shards.map(|_| Padded(Lock::new(stock()))).collect())
            }
            StockKind::PerCounter => {
                let words = || parents.iter().map(|_| M::Word::new(0)).collect();
                Stocks::PerCounter(shards.map(|_| words()).collect())
            }
        };
        let counter = |&max| {
            Padded(Counter {
                usage: M::Word::new(0),
                max,
            })
        };
        Self {
            machine: machine.clone(),
            parents: parents.to_vec(),
            counters: max.iter().map(counter).collect(),
            stocks,
            draining: Lock::new(()),
            walks: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// Charges pages to `group`; `false` if a limit refuses them. Drains nothing and reclaims nothing.
    #[doc(alias = "try_charge_memcg")]
    pub fn try_charge(&self, group: GroupIndex, pages: u64) -> bool {
        if self.consume(group, pages) {
            return true;
        }
        let batch = pages.max(BATCH);
        if self.try_add(group, batch) {
            self.refill(group, batch - pages);
            return true;
        }
        batch > pages && self.try_add(group, pages)
    }

    /// Charges pages above all limits.
    pub fn charge(&self, group: GroupIndex, pages: u64) {
        self.walked();
        for group in self.ancestry(group) {
            // Relaxed, here and below: a counter is one word, and says nothing about other words.
            let usage = &self.counters[group].0.usage;
            usage.fetch_add(pages, MemoryOrder::Relaxed);
        }
    }

    /// Returns pages to the counters, as the release of pages does.
    #[doc(alias = "page_counter_uncharge")]
    pub fn uncharge(&self, group: GroupIndex, pages: u64) {
        self.walked();
        for group in self.ancestry(group) {
            let usage = &self.counters[group].0.usage;
            usage.fetch_sub(pages, MemoryOrder::Relaxed);
        }
    }

    /// Returns pages to the stock of the current CPU, as sockets do.
    #[doc(alias = "refill_stock")]
    pub fn refill(&self, group: GroupIndex, pages: u64) {
        if pages == 0 {
            return;
        }
        match &self.stocks {
            Stocks::Slots(stocks) => {
                let mut stock = self.here(stocks).0.lock();
                let place = stock.place_of(group).unwrap_or_else(|| stock.give_way());
                let held = &mut stock.slots[place];
                if held.group != group {
                    if held.pages > 0 {
                        // Relaxed: a tally orders nothing.
                        self.evictions.fetch_add(1, Ordering::Relaxed);
                    }
                    self.take_back(held);
                    held.group = group;
                }
                held.pages += pages;
                if held.pages > BATCH {
                    self.take_back(held);
                }
            }
            Stocks::PerCounter(stocks) => {
                let held = &self.here(stocks)[group];
                if held.fetch_add(pages, MemoryOrder::Relaxed) + pages > BATCH {
                    self.take_word_back(group, held);
                }
            }
        }
    }

    /// Takes back the stock of all CPUs that hold some of `group` or below it, unless another task drains.
    #[doc(alias = "drain_all_stock")]
    pub fn drain(&self, group: GroupIndex) {
        let Some(_draining) = self.draining.try_lock() else {
            return;
        };
        let is_below = |of: GroupIndex| self.ancestry(of).any(|at| at == group);
        match &self.stocks {
            Stocks::Slots(stocks) => {
                for Padded(stock) in stocks {
                    let mut stock = stock.lock();
                    let holds = |held: &Held| held.pages > 0 && is_below(held.group);
                    if stock.slots.iter().any(holds) {
                        stock.slots.iter_mut().for_each(|held| self.take_back(held));
                    }
                }
            }
            Stocks::PerCounter(stocks) => {
                for of in (0..self.parents.len()).filter(|&of| is_below(of)) {
                    for words in stocks {
                        // Relaxed, as for a counter.
                        if words[of].load(MemoryOrder::Relaxed) > 0 {
                            self.take_word_back(of, &words[of]);
                        }
                    }
                }
            }
        }
    }

    /// Returns the events so far.
    pub fn counts(&self) -> ChargeCounts {
        ChargeCounts {
            walks: self.walks.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    /// Returns the pages charged to `group` and below it, stock included.
    #[doc(alias = "memory.current")]
    pub fn usage(&self, group: GroupIndex) -> u64 {
        self.counters[group].0.usage.load(MemoryOrder::Relaxed)
    }

    /// Returns the group and its ancestors.
    fn ancestry(&self, group: GroupIndex) -> impl Iterator<Item = GroupIndex> + '_ {
        std::iter::successors(Some(group), |&at| self.parents[at])
    }

    fn here<'a, T>(&self, stocks: &'a [T]) -> &'a T {
        // The task may move to another CPU before it uses the stock, which then is another CPU's: right, and a little dearer.
        &stocks[self.machine.current_shard().index()]
    }

    fn walked(&self) {
        // Relaxed: a tally orders nothing.
        self.walks.fetch_add(1, Ordering::Relaxed);
    }

    #[doc(alias = "consume_stock")]
    fn consume(&self, group: GroupIndex, pages: u64) -> bool {
        if pages > BATCH {
            return false;
        }
        match &self.stocks {
            Stocks::Slots(stocks) => {
                let mut stock = self.here(stocks).0.lock();
                let Some(place) = stock.place_of(group) else {
                    return false;
                };
                let held = &mut stock.slots[place];
                let is_enough = held.pages >= pages;
                if is_enough {
                    held.pages -= pages;
                }
                is_enough
            }
            Stocks::PerCounter(stocks) => {
                let held = &self.here(stocks)[group];
                // Relaxed: the pages of a word are all that it says.
                let mut had = held.load(MemoryOrder::Relaxed);
                while had >= pages {
                    match held.compare_exchange(had, had - pages, MemoryOrder::Relaxed) {
                        Ok(_) => return true,
                        Err(now) => had = now,
                    }
                }
                false
            }
        }
    }

    /// Adds up the tree; undoes it all where a limit is exceeded.
    #[doc(alias = "page_counter_try_charge")]
    fn try_add(&self, group: GroupIndex, pages: u64) -> bool {
        self.walked();
        for (levels, at) in self.ancestry(group).enumerate() {
            let Counter { usage, max } = &self.counters[at].0;
            if usage.fetch_add(pages, MemoryOrder::Relaxed) + pages > *max {
                for at in self.ancestry(group).take(levels + 1) {
                    let usage = &self.counters[at].0.usage;
                    usage.fetch_sub(pages, MemoryOrder::Relaxed);
                }
                return false;
            }
        }
        true
    }

    fn take_word_back(&self, group: GroupIndex, held: &M::Word) {
        let pages = held.swap(0, MemoryOrder::Relaxed);
        if pages > 0 {
            self.uncharge(group, pages);
        }
    }

    fn take_back(&self, held: &mut Held) {
        if held.pages > 0 {
            self.uncharge(held.group, std::mem::take(&mut held.pages));
        }
    }
}

impl Stock {
    fn place_of(&self, group: GroupIndex) -> Option<usize> {
        let mut slots = self.slots.iter();
        slots.position(|held| held.pages > 0 && held.group == group)
    }

    /// Returns a slot for another group: an empty one, else each in turn.
    fn give_way(&mut self) -> usize {
        let mut slots = self.slots.iter();
        slots.position(|held| held.pages == 0).unwrap_or_else(|| {
            self.victim = (self.victim + 1) % self.slots.len();
            self.victim
        })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use bursar_machine::Host;
    use bursar_sim::{Settings, Sim, Simulator, Topology};

    use super::StockKind::{PerCounter, Slots};
    use super::*;

    /// 0 - 1 - {2, 3}, 0 - 4; the limit is that of group 1.
    const PARENTS: [Option<GroupIndex>; 5] = [None, Some(0), Some(1), Some(1), Some(0)];

    fn of<M: Machine>(machine: &M, limit: u64, stock: StockKind) -> Charging<M> {
        let max = [UNLIMITED, limit, UNLIMITED, UNLIMITED, UNLIMITED];
        Charging::new(machine, &PARENTS, &max, stock)
    }

    /// One CPU, so that all have the same stock.
    fn on_one_cpu(limit: u64, stock: StockKind, test: impl FnOnce(&Charging<Sim>)) {
        let simulator = Simulator::new(Settings::new(Topology::new(1, 1, 1000), 1));
        test(&of(&simulator.machine(), limit, stock));
    }

    fn usages<M: Machine>(charging: &Charging<M>) -> [u64; 5] {
        [0, 1, 2, 3, 4].map(|group| charging.usage(group))
    }

    const KINDS: [StockKind; 3] = [Slots(1), Slots(7), PerCounter];

    fn on_each_kind(limit: u64, test: fn(&Charging<Sim>)) {
        KINDS
            .into_iter()
            .for_each(|kind| on_one_cpu(limit, kind, test));
    }

    #[test]
    fn a_charge_takes_a_batch_and_the_next_ones_are_stock() {
        on_each_kind(UNLIMITED, |charging| {
            for _ in 0..64 {
                assert!(charging.try_charge(2, 1));
                assert_eq!(usages(charging), [64, 64, 64, 0, 0]);
            }
            assert!(charging.try_charge(2, 1));
            assert_eq!(charging.usage(2), 128);
            assert_eq!(charging.counts().walks, 2);
            charging.drain(1);
            assert_eq!(usages(charging), [65, 65, 65, 0, 0]);
        });
    }

    #[test]
    fn a_stranger_drains_the_only_slot_and_takes_another_of_seven() {
        for (kind, kept) in [(Slots(1), 1), (Slots(7), 64), (PerCounter, 64)] {
            on_one_cpu(UNLIMITED, kind, |charging| {
                assert!(charging.try_charge(2, 1) && charging.try_charge(3, 1));
                assert_eq!(charging.usage(2), kept, "{kind:?}");
                assert_eq!(charging.usage(3), 64);
                assert_eq!(charging.counts().evictions, u64::from(kept == 1));
            });
        }
    }

    #[test]
    fn a_full_slot_goes_back_whole() {
        on_each_kind(UNLIMITED, |charging| {
            charging.charge(2, 100);
            charging.refill(2, 64);
            assert_eq!(charging.usage(0), 100);
            charging.refill(2, 1);
            assert_eq!(charging.usage(0), 35);
        });
    }

    #[test]
    fn a_limit_refuses_what_is_too_much_and_keeps_nothing_of_it() {
        on_one_cpu(70, Slots(1), |charging| {
            assert!(charging.try_charge(2, 1));
            // No second batch fits, and what is asked for does.
            assert!(charging.try_charge(3, 6));
            assert_eq!(usages(charging), [70, 70, 64, 6, 0]);
            assert!(!charging.try_charge(3, 1), "63 pages are stock");
            assert_eq!(usages(charging), [70, 70, 64, 6, 0]);
            charging.drain(1);
            assert!(charging.try_charge(3, 1));
            assert!(charging.try_charge(4, 1), "another has no limit");
            charging.charge(2, 1_000);
            assert_eq!(charging.usage(1), 1_008);
        });
    }

    #[test]
    fn a_drain_leaves_other_groups_their_stock() {
        on_one_cpu(UNLIMITED, Slots(7), |charging| {
            assert!(charging.try_charge(4, 1));
            charging.drain(1);
            assert_eq!(charging.usage(4), 64);
            assert!(charging.try_charge(2, 1));
            charging.drain(1);
            assert_eq!(charging.usage(4), 1, "all slots of a CPU that holds some");
        });
        on_one_cpu(UNLIMITED, PerCounter, |charging| {
            assert!(charging.try_charge(4, 1) && charging.try_charge(2, 1));
            charging.drain(1);
            assert_eq!(usages(charging), [65, 1, 1, 0, 64], "only its own");
        });
    }

    #[test]
    fn nothing_is_lost_while_threads_charge_and_drain() {
        let host = Host::start().expect("the host has a backend");
        for kind in KINDS {
            let charging = of(&host, 1_000, kind);
            let charging = &charging;
            thread::scope(|scope| {
                for group in [2, 3, 4, 2] {
                    scope.spawn(move || {
                        for round in 0..5_000_u64 {
                            let pages = 1 + round % 70;
                            if charging.try_charge(group, pages) {
                                match round % 2 {
                                    0 => charging.uncharge(group, pages),
                                    _ => charging.refill(group, pages),
                                }
                            }
                            assert!(charging.usage(group) < u64::MAX / 2, "below 0");
                            if round % 64 == 0 {
                                charging.drain(0);
                            }
                        }
                    });
                }
            });
            charging.drain(0);
            assert_eq!(usages(charging), [0; 5]);
        }
    }
}
