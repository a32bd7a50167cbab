//! The zones of a node: allocations take from the highest that has pages, and frees go back to where pages came from.

use bursar_kernel::pages::{PageLists, Reclaim, Settings};
use bursar_machine::Shard;
use bursar_machine::pages::{Block, Frames, Order};
use bursar_rig::timer::Timers;

/// Pages of the zones `DMA` and `DMA32` as `/proc/zoneinfo` of a machine of 24 GiB has them (`managed`).
const LOWER_PAGES: [u64; 2] = [3_840, 772_918];
/// Part of a zone's pages that every lower zone keeps from its allocations.
#[doc(alias = "lowmem_reserve_ratio")]
const RESERVE_RATIO: u64 = 256;

/// Page lists of a zone, and the free pages below which allocations for `Normal` leave the zone alone.
struct Zone<M: Timers> {
    lists: PageLists<M>,
    reserve_pages: u64,
}

/// `DMA`, `DMA32` and `Normal`, each with a lock and with lists of its own on each CPU.
pub(super) struct Zones<M: Timers>(Vec<Zone<M>>);

/// Returns the pages of the two lower zones, on a machine whose pages are divided by `scale`.
pub(super) fn lower_pages(scale: u64) -> u64 {
    LOWER_PAGES.iter().map(|pages| pages / scale).sum()
}

/// Returns how many pages the two lower zones keep from tasks, below a `Normal` of so many pages. All are divided by `scale`.
pub(super) fn reserved_pages(normal_pages: u64, scale: u64) -> u64 {
    let reserve = normal_pages / RESERVE_RATIO;
    let of = |pages: &u64| (pages / scale).min(reserve);
    LOWER_PAGES.iter().map(of).sum()
}

impl<M: Timers> Zones<M> {
    /// Makes the zones: `normal`, and below it those of `lower`, which makes settings for a number of pages.
    ///
    /// # Errors
    /// If there is no room.
    pub(super) fn new(
        machine: &M,
        normal: Settings,
        scale: u64,
        lower: impl Fn(u64) -> Settings,
    ) -> Result<Self, String> {
        let reserve_pages = normal.pages / RESERVE_RATIO;
        let lower = LOWER_PAGES.iter().map(|pages| {
            // Lists and marks are those of the whole zone.
            let settings = Settings {
                pages: pages.div_ceil(scale),
                ..lower(*pages)
            };
            (settings, reserve_pages)
        });
        let zones = lower.chain([(normal, 0)]).map(|(settings, reserve_pages)| {
            let lists = PageLists::new(machine, settings).map_err(|error| error.to_string())?;
            Ok(Zone {
                lists,
                reserve_pages,
            })
        });
        zones.collect::<Result<_, _>>().map(Self)
    }

    /// Page lists of the zones, in the kernel's order: `Normal` is the last.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = &PageLists<M>> {
        self.0.iter().map(|zone| &zone.lists)
    }

    /// Page lists of `Normal`.
    pub(super) fn normal(&self) -> &PageLists<M> {
        &self.0[self.0.len() - 1].lists
    }

    /// Takes up to `count` blocks from the highest zones that have some to spare.
    pub(super) fn alloc(&self, order: Order, count: usize) -> Vec<Block> {
        let mut blocks = Vec::with_capacity(count);
        for zone in self.0.iter().rev() {
            let mut wanted = count - blocks.len();
            if zone.reserve_pages > 0 {
                let free_pages = zone.lists.about_free_pages();
                let spare_pages = free_pages.saturating_sub(zone.reserve_pages);
                wanted = wanted.min((spare_pages / u64::from(order.pages())) as usize);
            }
            zone.lists.alloc_run(order, wanted, &mut blocks);
            if blocks.len() == count {
                break;
            }
        }
        blocks
    }

    /// Puts blocks back to their zones.
    pub(super) fn free_many(&self, mut blocks: Vec<Block>) {
        for lists in self.all().rev() {
            // Nearly always all.
            let others = blocks.extract_if(.., |block| !owns(lists, block)).collect();
            lists.free_run(std::mem::replace(&mut blocks, others));
            if blocks.is_empty() {
                return;
            }
        }
    }

    /// Makes a block zero.
    pub(super) fn zero(&self, block: &mut Block) {
        if let Some(lists) = self.all().rev().find(|lists| owns(lists, block)) {
            lists.frames().zero(block);
        }
    }

    /// Gives all pages of all lists back.
    pub(super) fn drain_all(&self) {
        self.all().for_each(PageLists::drain_all);
    }

    /// Sets whether memory is being reclaimed from now on.
    pub(super) fn set_reclaim(&self, reclaim: Reclaim) {
        self.all().for_each(|lists| lists.set_reclaim(reclaim));
    }

    /// Decays a CPU's lists, zone by zone. Returns whether there will be work at the next call.
    pub(super) fn decay(&self, shard: Shard) -> bool {
        let is_left = self.all().map(|lists| lists.decay(shard));
        is_left.fold(false, |any, is_left| any | is_left)
    }

    /// Returns how long the lists of a CPU have waited so far for locks in decay and drains, nanoseconds.
    pub(super) fn upkeep_waited_ns(&self, shard: Shard) -> u64 {
        self.all().map(|lists| lists.upkeep_waited_ns(shard)).sum()
    }
}

/// Returns whether a block is of a zone.
fn owns<M: Timers>(lists: &PageLists<M>, block: &Block) -> bool {
    let frames = lists.frames();
    let first = u64::from(frames.first().0);
    (first..first + frames.pages()).contains(&u64::from(block.pfn().0))
}

#[cfg(test)]
mod tests {
    use bursar_kernel::pages::Release;
    use bursar_sim::{Settings as Machine, Simulator, Topology};

    use super::*;

    #[test]
    fn allocations_leave_normal_for_lower_zones_and_keep_their_reserve() {
        let simulator = Simulator::new(Machine::new(Topology::new(1, 1, 1000), 1));
        let machine = simulator.machine();
        let of = |pages| Settings::of(pages, 1, Release::Batched);
        let zones = Zones::new(&machine, of(16_384), 256, of).expect("room");
        let free_pages = || -> Vec<u64> {
            let each = zones.all();
            each.map(|it| it.zone_free_pages() + it.all_listed_pages())
                .collect()
        };
        let before = free_pages();
        let all = before.iter().sum::<u64>() as usize;
        let blocks = zones.alloc(Order::ZERO, all);
        let left = free_pages();
        assert_eq!(left[2], 0, "Normal is used up");
        assert!(
            left[1] > 0 && left[1] < before[1],
            "DMA32: {left:?} of {before:?}"
        );
        assert_eq!(blocks.len() as u64, all as u64 - left.iter().sum::<u64>());
        zones.free_many(blocks);
        assert_eq!(free_pages(), before, "each to its zone");
    }
}
