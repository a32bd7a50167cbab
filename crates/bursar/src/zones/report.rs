//! Reports of zones, in the words of `/proc/zoneinfo` and `/proc/vmstat`.
//!
//! The numbers of one report are not of one moment: a page that moves while the report is made may be counted twice or
//! not at all. The numbers are exact while nothing moves.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use bursar_machine::Machine;
use bursar_machine::pages::{BlockStacks, MAX_ORDER, Order, PAGE_BYTES, depth, pops};

use super::alloc::Zones;
use super::histogram::Histogram;
use super::hold::{Holder, Work};
use super::sizes::Watermarks;
use super::zone::Zone;

/// Contents of a memory's zones, and counts of their events. Its text is like `/proc/zoneinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZoneInfo {
    /// Zones by node.
    pub zones: Vec<ZoneReport>,
}

/// Report of one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZoneReport {
    /// The node.
    pub node: usize,
    /// Number of pages of the zone.
    pub managed: u64,
    /// Pages free in the buddy.
    #[doc(alias = "nr_free_pages")]
    pub free: u64,
    /// Free pages in the buddy with memory behind them.
    pub free_backed: u64,
    /// Free blocks by order, as `/proc/buddyinfo` has them.
    #[doc(alias = "buddyinfo")]
    pub free_blocks: [u64; MAX_ORDER as usize + 1],
    /// Pages in the depot.
    pub depot: u64,
    /// Pages on per-CPU lists.
    pub listed: u64,
    /// Watermarks of the zone.
    pub watermarks: Watermarks,
    /// Lists of each CPU that has used any. The number of CPUs stands for threads without a CPU.
    pub pagesets: Vec<PageSet>,
    /// Counts of events.
    pub counts: ZoneCounts,
    /// Durations of the holds of the zone lock.
    pub zone_holds: Histogram,
    /// Durations of the waits for the zone lock, when there was a wait.
    pub zone_waits: Histogram,
    /// Pages put into the buddy under each hold that put any in; pages, not nanoseconds.
    pub zone_given: Histogram,
    /// Durations of the holds of the depot's locks.
    pub depot_holds: Histogram,
    /// Durations of the waits for the depot's locks, when there was a wait.
    pub depot_waits: Histogram,
}

/// Lists of one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSet {
    /// The CPU.
    pub cpu: u32,
    /// Lists of the CPU, by order.
    pub lists: Vec<ListReport>,
}

/// One list of one CPU, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListReport {
    /// The order of the blocks.
    pub order: Order,
    /// Number of blocks in the list.
    pub count: u64,
    /// Number of blocks that it may hold now.
    pub high: u32,
    /// Number of blocks moved at once.
    pub batch: u32,
    /// Lower bound of `high`.
    pub high_min: u32,
    /// Upper bound of `high`.
    pub high_max: u32,
}

/// Counts of a zone's events, in pages unless a field says otherwise. Its text is like `/proc/vmstat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZoneCounts {
    /// Pages allocated.
    pub pgalloc: u64,
    /// Pages freed.
    pub pgfree: u64,
    /// Refills of lists that ran empty.
    pub pcp_refill: u64,
    /// Overflows of lists.
    pub pcp_spill: u64,
    /// Blocks taken off the lists of CPUs that did not use them.
    pub pcp_drain: u64,
    /// Allocations that found no page and emptied all lists.
    pub allocstall: u64,
    /// Pages zeroed on request, or because another group had used them.
    pub pgzero: u64,
    /// Pages given back to the system.
    pub pgreturn: u64,
}

impl ZoneInfo {
    /// Sum over all zones.
    pub fn counts(&self) -> ZoneCounts {
        let mut all = ZoneCounts::default();
        for zone in &self.zones {
            let mut counts = zone.counts;
            for ((_, sum), (_, count)) in all.rows().into_iter().zip(counts.rows()) {
                *sum += *count;
            }
        }
        all
    }
}

impl ZoneCounts {
    /// All counts, with their names in `/proc/vmstat`.
    fn rows(&mut self) -> [(&'static str, &mut u64); 8] {
        [
            ("pgalloc_normal", &mut self.pgalloc),
            ("pgfree", &mut self.pgfree),
            ("pcp_refill", &mut self.pcp_refill),
            ("pcp_spill", &mut self.pcp_spill),
            ("pcp_drain", &mut self.pcp_drain),
            ("allocstall_normal", &mut self.allocstall),
            ("pgzero", &mut self.pgzero),
            ("pgreturn", &mut self.pgreturn),
        ]
    }
}

impl ZoneReport {
    /// Bytes of memory behind pages that are not in use.
    pub fn retained_bytes(&self) -> u64 {
        (self.free_backed + self.depot + self.listed) * PAGE_BYTES as u64
    }

    /// Number of pages held by callers.
    pub fn in_use(&self) -> u64 {
        // The numbers are not of one moment.
        self.managed
            .saturating_sub(self.free + self.depot + self.listed)
    }
}

impl<M: Machine> Zones<M> {
    /// Makes a report. Call in an operation.
    pub(crate) fn info(&self) -> ZoneInfo {
        ZoneInfo {
            zones: self.iter().map(report).collect(),
        }
    }

    /// Resources that have been held for at least `threshold_ns`. Takes no lock.
    pub(crate) fn stuck(&self, threshold_ns: u64) -> Vec<Stuck> {
        let each = self.iter();
        each.flat_map(|zone| stuck_in(zone, threshold_ns)).collect()
    }
}

fn report<M: Machine>(zone: &Zone<M>) -> ZoneReport {
    let mut listed = 0;
    let mut popped = 0;
    let mut pagesets = Vec::new();
    for shard in zone.shards() {
        let lists = zone.lists.existing().map(|(order, list)| {
            let head = zone.lists.head(shard, order);
            let pages = u64::from(list.order.pages());
            let count = depth(head) as u64;
            listed += count * pages;
            popped += pops(head) * pages;
            let report = ListReport {
                order: list.order,
                count,
                high: zone.lists.tuned(shard, order).high,
                batch: list.batch,
                high_min: list.high_min,
                high_max: list.high_max,
            };
            (head != 0, report)
        });
        let (used, lists): (Vec<bool>, Vec<ListReport>) = lists.unzip();
        if used.contains(&true) {
            pagesets.push(PageSet {
                cpu: shard.0,
                lists,
            });
        }
    }
    let depot = zone
        .lists
        .existing()
        .map(|(order, list)| zone.depot.blocks(order) * u64::from(list.order.pages()))
        .sum();
    let buddy = zone.buddy(Work::Report);
    let (zone_holds, zone_waits) = buddy.times();
    let (zone_holds, zone_waits) = (zone_holds.clone(), zone_waits.clone());
    let zone_given = buddy.given().clone();
    let free = buddy.free_pages();
    let free_backed = buddy.backed_pages();
    let free_blocks = std::array::from_fn(|order| buddy.free_blocks(Order::new(order as u8)));
    drop(buddy);
    let (depot_holds, depot_waits) = zone.depot.times(&zone.machine);
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let counts = &zone.counts;
    let mut report = ZoneReport {
        node: zone.node,
        managed: zone.managed,
        free,
        free_backed,
        free_blocks,
        depot,
        listed,
        watermarks: zone.marks,
        pagesets,
        counts: ZoneCounts {
            pgalloc: popped + read(&counts.slow_allocs),
            pgfree: 0,
            pcp_refill: read(&counts.refills),
            pcp_spill: read(&counts.spills),
            pcp_drain: read(&counts.drained),
            allocstall: read(&counts.stalls),
            pgzero: read(&counts.zeroed),
            pgreturn: read(&counts.returned),
        },
        zone_holds,
        zone_waits,
        zone_given,
        depot_holds,
        depot_waits,
    };
    // Allocated pages that are no longer in use were freed.
    report.counts.pgfree = report.counts.pgalloc.saturating_sub(report.in_use());
    report
}

impl fmt::Display for ZoneInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for zone in &self.zones {
            zone.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for ZoneReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Node {}, zone   Normal", self.node)?;
        writeln!(f, "  pages free     {}", self.free)?;
        let rows = [
            ("min", self.watermarks.min),
            ("low", self.watermarks.low),
            ("high", self.watermarks.high),
            ("managed", self.managed),
        ];
        for (name, pages) in rows {
            writeln!(f, "        {name:<8} {pages}")?;
        }
        let rows = [
            ("nr_free_pages", self.free),
            ("nr_free_backed", self.free_backed),
            ("nr_depot", self.depot),
            ("nr_pcp", self.listed),
            ("nr_in_use", self.in_use()),
        ];
        for (name, pages) in rows {
            writeln!(f, "      {name:<14} {pages}")?;
        }
        write!(f, "  free blocks  ")?;
        for blocks in self.free_blocks {
            write!(f, " {blocks:>6}")?;
        }
        writeln!(f)?;
        for (name, holds, waits) in [
            ("zone lock", &self.zone_holds, &self.zone_waits),
            ("depot locks", &self.depot_holds, &self.depot_waits),
        ] {
            writeln!(
                f,
                "  {name:<11} held {} times, p99.9 {} ns, max {} ns; waited for {} times, p99.9 {} ns, max {} ns",
                holds.count(),
                holds.quantile_ns(0.999),
                holds.max_ns(),
                waits.count(),
                waits.quantile_ns(0.999),
                waits.max_ns(),
            )?;
        }
        writeln!(f, "  pagesets")?;
        for set in &self.pagesets {
            writeln!(f, "    cpu: {}", set.cpu)?;
            for list in set.lists.iter().filter(|list| list.count > 0) {
                let ListReport {
                    order,
                    count,
                    high,
                    batch,
                    high_min,
                    high_max,
                } = list;
                let order = order.get();
                writeln!(
                    f,
                    "      order: {order} count: {count} high: {high} batch: {batch} high_min: {high_min} high_max: {high_max}"
                )?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for ZoneCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts = *self;
        let mut rows = counts.rows().into_iter();
        rows.try_for_each(|(name, count)| writeln!(f, "{name} {count}"))
    }
}

/// A lock or other resource that is held for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stuck {
    /// The resource.
    pub place: Place,
    /// Node of the zone.
    pub node: usize,
    /// Its holder, and the holder's work.
    pub holder: Holder,
    /// Duration of the hold, nanoseconds.
    pub held_ns: u64,
    /// Number of waiters.
    pub waiting: u64,
    /// Number of lists that are frozen meanwhile. Their CPUs go to the depot for each page.
    pub frozen_lists: usize,
}

/// Resource that can be held too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The zone lock.
    Zone,
    /// A shelf of the depot.
    Shelf(usize),
    /// Upkeep; one task at a time decays and drains.
    Upkeep,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zone => f.write_str("zone lock"),
            Self::Shelf(shelf) => write!(f, "lock of depot shelf {shelf}"),
            Self::Upkeep => f.write_str("upkeep"),
        }
    }
}

/// Shows a line like the kernel's `BUG: soft lockup`.
impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "stuck: {} of node {} held for {:.3} s by task {:#x}, which took it on CPU {} for {}; {} waiting, {} lists frozen",
            self.place,
            self.node,
            self.held_ns as f64 / 1e9,
            self.holder.task,
            self.holder.cpu,
            self.holder.work.name(),
            self.waiting,
            self.frozen_lists,
        )
    }
}

fn stuck_in<M: Machine>(zone: &Zone<M>, threshold_ns: u64) -> Vec<Stuck> {
    let now_ns = zone.machine.now_ns();
    let buddy = zone.buddy_lock().holder();
    let upkeep = zone.upkeep.holder();
    let shelves = zone.depot.holders();
    let held = buddy.map(|(holder, waiting)| (Place::Zone, holder, waiting));
    let held = held
        .into_iter()
        .chain(upkeep.map(|(holder, waiting)| (Place::Upkeep, holder, waiting)))
        .chain(shelves.map(|(shelf, holder, waiting)| (Place::Shelf(shelf), holder, waiting)));
    let stuck = |(place, holder, waiting): (Place, Holder, u64)| {
        let held_ns = now_ns.saturating_sub(holder.since_ns);
        (held_ns >= threshold_ns).then(|| Stuck {
            place,
            node: zone.node,
            holder,
            held_ns,
            waiting,
            frozen_lists: frozen_lists(zone),
        })
    };
    held.filter_map(stuck).collect()
}

fn frozen_lists<M: Machine>(zone: &Zone<M>) -> usize {
    let stacks = &zone.lists.stacks;
    let is_frozen = |&(shard, list): &(_, usize)| stacks.bounds(shard, list).is_frozen();
    let lists = || zone.lists.existing().map(|(list, _)| list);
    let all = zone
        .shards()
        .flat_map(|shard| lists().map(move |list| (shard, list)));
    all.filter(is_frozen).count()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bursar_machine::Host;

    use super::super::alloc::Begun;
    use super::super::{PageOptions, Zeroed};
    use super::*;

    fn zones() -> Zones<Host> {
        let options = PageOptions {
            bytes_per_node: Some(4 << 20),
            ..PageOptions::default()
        };
        Zones::new(&Host::start().unwrap(), options, &mut Begun::nothing()).unwrap()
    }

    #[test]
    fn whoever_holds_a_lock_is_named() {
        let zones = zones();
        assert_eq!(zones.stuck(0), []);
        let zone = zones.zone(0);
        let held = zone.buddy(Work::Drain);
        let found = zones.stuck(0);
        let [stuck] = found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((stuck.place, stuck.holder.work), (Place::Zone, Work::Drain));
        assert_eq!(stuck.holder.task, zone.machine.task());
        let text = stuck.to_string();
        assert!(
            text.starts_with("stuck: zone lock of node 0 held for"),
            "{text}"
        );
        assert_eq!(zones.stuck(u64::MAX), [], "not for that long");
        drop(held);
        assert_eq!(zones.stuck(0), []);
    }

    #[test]
    fn a_memory_tells_of_locks_of_its_zones() {
        let memory = crate::Memory::host().unwrap();
        let stuck = || memory.stuck(Duration::ZERO);
        assert_eq!(stuck(), [], "there are no zones");
        drop(memory.alloc_pages(Order::ZERO, Zeroed::No).unwrap());
        let zones = memory.core().pages.zones().unwrap();
        let held = zones.zone(0).buddy(Work::Drain);
        assert_eq!(stuck().len(), 1);
        assert_eq!(memory.stuck(Duration::MAX), []);
        drop(held);
        assert_eq!(stuck(), []);
    }

    fn sample() -> ZoneReport {
        let list = |order, count| ListReport {
            order: Order::new(order),
            count,
            high: 70,
            batch: 63,
            high_min: 60,
            high_max: 80,
        };
        let mut free_blocks = [0; MAX_ORDER as usize + 1];
        free_blocks[10] = 7;
        let mut holds = Histogram::default();
        (1..=3).for_each(|ns| holds.record(ns));
        ZoneReport {
            node: 1,
            managed: 10_000,
            free: 7_168,
            free_backed: 1_000,
            free_blocks,
            depot: 200,
            listed: 30,
            watermarks: Watermarks {
                min: 10,
                low: 20,
                high: 40,
            },
            pagesets: vec![PageSet {
                cpu: 5,
                lists: vec![list(0, 30), list(1, 0)],
            }],
            counts: ZoneCounts::default(),
            zone_holds: holds,
            zone_waits: Histogram::default(),
            zone_given: Histogram::default(),
            depot_holds: Histogram::default(),
            depot_waits: Histogram::default(),
        }
    }

    #[test]
    fn retained_are_pages_with_memory_that_nobody_uses() {
        let zone = sample();
        assert_eq!(zone.retained_bytes(), (1_000 + 200 + 30) * 4_096);
        assert_eq!(zone.in_use(), 10_000 - 7_168 - 200 - 30);
    }

    #[test]
    fn a_text_has_all_lists_that_hold_anything() {
        let expected = "\
Node 1, zone   Normal
  pages free     7168
        min      10
        low      20
        high     40
        managed  10000
      nr_free_pages  7168
      nr_free_backed 1000
      nr_depot       200
      nr_pcp         30
      nr_in_use      2602
  free blocks        0      0      0      0      0      0      0      0      0      0      7
  zone lock   held 3 times, p99.9 3 ns, max 3 ns; waited for 0 times, p99.9 0 ns, max 0 ns
  depot locks held 0 times, p99.9 0 ns, max 0 ns; waited for 0 times, p99.9 0 ns, max 0 ns
  pagesets
    cpu: 5
      order: 0 count: 30 high: 70 batch: 63 high_min: 60 high_max: 80
";
        assert_eq!(sample().to_string(), expected);
    }

    #[test]
    fn counts_have_the_names_of_the_kernel() {
        let counts = ZoneCounts {
            pgalloc: 1,
            pgfree: 2,
            pcp_refill: 3,
            pcp_spill: 4,
            pcp_drain: 5,
            allocstall: 6,
            pgzero: 7,
            pgreturn: 8,
        };
        let expected = "\
pgalloc_normal 1
pgfree 2
pcp_refill 3
pcp_spill 4
pcp_drain 5
allocstall_normal 6
pgzero 7
pgreturn 8
";
        assert_eq!(counts.to_string(), expected);
    }
}
