//! Options of a memory's pages, as plain values.

use std::time::Duration;

use bursar_machine::pages::{HugePages, LISTS_MAX, NodeBinding, Order};

use super::sizes::Watermarks;

/// Default orders with per-CPU lists, and the number of blocks of each list: 8 MiB in blocks of 4 KiB to 64 KiB.
///
/// The kernel has lists for orders 0 to 3 and for huge pages. Servers use buffers of 64 KiB. Filling a larger block
/// costs more than the buddy's lock.
const LISTS: [ListOptions; 5] = [
    ListOptions::new(0, 2048),
    ListOptions::new(1, 1024),
    ListOptions::new(2, 512),
    ListOptions::new(3, 256),
    ListOptions::new(4, 128),
];

/// Maximum number of blocks in a list, given by its bits in a word (`tuned.rs`): 2^12 - 1.
pub(super) const CAPACITY_MAX: u16 = (1 << 12) - 1;

/// A per-CPU list of blocks of one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// Order of the blocks.
    pub order: Order,
    /// Maximum number of blocks in a CPU's list. Tuning stays below it, and below `high_max` of the zone.
    pub capacity: u16,
}

impl ListOptions {
    /// List of blocks of `order`, at most `capacity` on each CPU.
    pub const fn new(order: u8, capacity: u16) -> Self {
        Self {
            order: Order::new(order),
            capacity,
        }
    }
}

/// Bounds of one hold of a page allocator's lock: it ends when either is reached. The remaining work waits for the next
/// hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldBounds {
    /// Maximum number of blocks moved under one hold.
    pub blocks: u32,
    /// Maximum nanoseconds; the clock is read after each block. A holder that is preempted holds the lock for longer.
    pub ns: u64,
}

impl Default for HoldBounds {
    /// Bounds of 63 blocks, the kernel's batch, and 2 us.
    fn default() -> Self {
        Self {
            blocks: 63,
            ns: 2_000,
        }
    }
}

/// Options of the pages of a [`crate::Memory`]; see [`crate::Builder::pages`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageOptions {
    /// Bytes reserved on each node, rounded up to 4 MiB. Reserving takes address space; memory is taken at its first
    /// use. `None`: the machine's memory, or the limit of this process's cgroup if that is less, shared among nodes; at
    /// most 1 TiB a node.
    ///
    /// After `mlockall(MCL_FUTURE)` the first page takes RAM for all of it. Add `MCL_ONFAULT` to that call, or reserve
    /// less. Locked memory never goes back to the system.
    pub bytes_per_node: Option<u64>,
    /// Use of huge pages.
    pub huge_pages: HugePages,
    /// Binding of the reserved memory to its node.
    pub binding: NodeBinding,
    /// Orders that have per-CPU lists.
    pub lists: Vec<ListOptions>,
    /// Number of blocks of order 0 that move at a time. Larger blocks move in smaller numbers by their size, down to
    /// 16. `None`: from the size of the zone, as in the kernel (63 from 1 GiB on).
    pub batch: Option<u32>,
    /// Watermarks of each zone. `None`: from the size of the zone, as in the kernel.
    pub watermarks: Option<Watermarks>,
    /// Bounds of the holds of locks.
    pub hold: HoldBounds,
    /// Number of CPUs that share a shelf of the depot.
    pub cpus_per_shelf: usize,
    /// Number of batches of each order that a shelf holds.
    pub shelf_batches: usize,
    /// Period of the upkeep of idle lists, the depot and unused memory. Default: 1 s, the kernel's `stat_interval`.
    pub decay_period: Duration,
    /// Number of periods without use after which a CPU's list is emptied. Default: 3, the kernel's `expire`.
    pub idle_periods: u32,
    /// Bytes of free memory kept for each CPU that the machine may have, also one that is offline or not allowed. Memory beyond this that was free one period earlier as well goes back to
    /// the system.
    pub retained_bytes_per_cpu: u64,
    /// Maximum number of bytes of each node that go back to the system in a second, rounded up to one block a period.
    /// Blocks below 32 KiB go only if there are no larger ones, at most 256 of them in a period.
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
    /// Checks the options.
    ///
    /// # Errors
    /// The rule that they break.
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

/// Contents of a new page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroed {
    /// Zeroes.
    Yes,
    /// Zeroes, or bytes that the same group left there; never the bytes of another group.
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(min: u64, low: u64, high: u64) -> PageOptions {
        PageOptions {
            watermarks: Some(Watermarks { min, low, high }),
            ..PageOptions::default()
        }
    }

    #[test]
    fn watermarks_rise() {
        for (min, low, high) in [(2, 1, 3), (1, 3, 2), (3, 2, 1)] {
            let refused = marks(min, low, high).check();
            assert_eq!(refused, Err("watermarks rise from min to low to high"));
        }
        assert_eq!(marks(1, 2, 3).check(), Ok(()));
        assert_eq!(marks(0, 0, 0).check(), Ok(()));
    }
}
