//! What a memory's pages are like: plain values.

use std::time::Duration;

use bursar_machine::pages::{HugePages, LISTS_MAX, NodeBinding, Order};

use super::sizes::Watermarks;
use super::tuned::CAPACITY_MAX;

/// Orders that have per-CPU lists, unless said otherwise, and how many blocks each may hold: 8 MiB, 4 KiB to 64 KiB a block.
///
/// The kernel has lists for orders 0 to 3 and for huge pages. Servers' buffers are 64 KiB; what is larger costs its user
/// more to fill than the buddy's lock.
const LISTS: [ListOptions; 5] = [
    ListOptions::new(0, 2048),
    ListOptions::new(1, 1024),
    ListOptions::new(2, 512),
    ListOptions::new(3, 256),
    ListOptions::new(4, 128),
];

/// A per-CPU list of blocks of one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// Their order.
    pub order: Order,
    /// The most blocks that a CPU's list may ever hold; auto-tuning stays below, and below `high_max` of the zone.
    pub capacity: u16,
}

impl ListOptions {
    /// Blocks of `order`, at most `capacity` on each CPU.
    pub const fn new(order: u8, capacity: u16) -> Self {
        Self {
            order: Order::new(order),
            capacity,
        }
    }
}

/// How long a lock of the page allocator is held at most: until either is used up. What is left waits for the next hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldBounds {
    /// Blocks moved under one hold.
    pub blocks: u32,
    /// Nanoseconds by the clock, looked at after each block. A holder that is preempted holds it for longer.
    pub ns: u64,
}

impl Default for HoldBounds {
    /// 63 blocks, the kernel's batch, and 2 us.
    fn default() -> Self {
        Self {
            blocks: 63,
            ns: 2_000,
        }
    }
}

/// How to set up the pages of a [`crate::Memory`]; see [`crate::Builder::pages`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageOptions {
    /// Bytes reserved on each node, rounded up to 4 MiB. Reserving takes address space; memory is taken when it is first
    /// touched. `None`: what the machine has, or the limit of this process's cgroup if that is less, shared among nodes.
    pub bytes_per_node: Option<u64>,
    /// See there.
    pub huge_pages: HugePages,
    /// See there.
    pub binding: NodeBinding,
    /// The orders that have per-CPU lists.
    pub lists: Vec<ListOptions>,
    /// Blocks of order 0 that move at a time; larger ones by their size, at least 16 of them. `None`: by the size of the zone, as
    /// the kernel does (63).
    pub batch: Option<u32>,
    /// `None`: by the size of the zone, as the kernel does.
    pub watermarks: Option<Watermarks>,
    /// See there.
    pub hold: HoldBounds,
    /// CPUs that share a shelf of the depot.
    pub cpus_per_shelf: usize,
    /// Batches that a shelf holds of each order.
    pub shelf_batches: usize,
    /// How often idle lists, the depot and memory that nobody uses are looked at. The kernel's `stat_interval`: 1 s.
    pub decay_period: Duration,
    /// Periods in which nobody uses a CPU's list before it is emptied. The kernel's `expire`: 3.
    pub idle_periods: u32,
    /// Bytes of free pages with memory behind them that are kept for each CPU; what is more, and was at the period before, goes
    /// back to the system.
    pub retained_bytes_per_cpu: u64,
    /// Bytes of each node that go back to the system in a second at most, rounded up to one block a period. Blocks below 32 KiB
    /// go only when there are no larger ones, and 256 of them in a period at most.
    pub return_bytes_per_second: u64,
}

impl Default for PageOptions {
    fn default() -> Self {
        Self {
            bytes_per_node: None,
            huge_pages: HugePages::default(),
            binding: NodeBinding::default(),
            lists: LISTS.to_vec(),
            batch: None,
            watermarks: None,
            hold: HoldBounds::default(),
            cpus_per_shelf: 8,
            shelf_batches: 64,
            decay_period: Duration::from_secs(1),
            idle_periods: 3,
            retained_bytes_per_cpu: 1 << 20,
            return_bytes_per_second: 256 << 20,
        }
    }
}

impl PageOptions {
    /// What is wrong with them.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let lists = self.lists.len();
        if !(1..=LISTS_MAX).contains(&lists) {
            return Err("there are 1 to 11 per-CPU lists");
        }
        for (index, list) in self.lists.iter().enumerate() {
            if self.lists[..index]
                .iter()
                .any(|other| other.order == list.order)
            {
                return Err("two lists have the same order");
            }
            if !(1..=CAPACITY_MAX).contains(&list.capacity) {
                return Err("a list holds 1 to 4,095 blocks");
            }
        }
        let blocks: usize = self
            .lists
            .iter()
            .map(|list| usize::from(list.capacity))
            .sum();
        if blocks > 8_000 {
            return Err("the lists of a CPU hold at most 8,000 blocks together");
        }
        if self.shelf_batches > 1 << 16 {
            return Err("a shelf holds at most 65,536 batches of an order");
        }
        if self.batch == Some(0) || self.hold.blocks == 0 || self.shelf_batches == 0 {
            return Err("a batch, a hold and a shelf have room for one at least");
        }
        if self
            .watermarks
            .is_some_and(|marks| marks.min > marks.low || marks.low > marks.high)
        {
            return Err("watermarks rise from min to low to high");
        }
        if self.bytes_per_node == Some(0) {
            return Err("no bytes to reserve");
        }
        Ok(())
    }
}

/// What the bytes of a new page are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroed {
    /// Zeroes.
    Yes,
    /// Whatever the group left there, or zeroes; never what another group wrote.
    No,
}
