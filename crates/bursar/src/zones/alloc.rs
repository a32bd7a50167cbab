//! All zones of a memory: choice of the zone for an allocation, and the steps when it has no page.

use bursar_machine::pages::{
    Block, BlockStacks, Frames, Order, Owner, Pfn, ReserveError, ReserveOptions,
};
use bursar_machine::{Machine, Shard};

use super::hold::Work;
use super::options::{PageOptions, Zeroed};
use super::table::Table;
use super::upkeep;
use super::zone::{Counts, Mark, Reserved, Zone, ZoneError};

/// Zones by node.
pub(crate) struct Zones<M: Machine> {
    /// Zone of node 0. A field of its own, because most machines have no other and nothing is found faster.
    first: Zone<M>,
    others: Box<[Zone<M>]>,
    pub(super) options: PageOptions,
    pub(crate) table: Table<M>,
}

/// Zones of a set-up that is not complete.
pub(super) struct Begun<M: Machine> {
    /// Zones by node.
    zones: Vec<Zone<M>>,
    /// Reservation for the next one.
    reserved: Option<Reserved<M>>,
}

impl<M: Machine> Begun<M> {
    pub(super) fn nothing() -> Self {
        Self {
            zones: Vec::new(),
            reserved: None,
        }
    }
}

/// Number of times that an allocation empties all lists before it gives up.
const DRAINS: usize = 4;
/// Default maximum of bytes reserved on a node. Page numbers suffice for eight times as many.
const RESERVED_MAX: u64 = 1 << 40;

/// Zones that an allocation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Placement {
    /// The zone of the current CPU, then others.
    #[default]
    Local,
    /// The zone of a node, then others.
    Prefer(usize),
    /// The zone of a node only.
    Only(usize),
}

/// Free pages that an allocation may use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Urgency {
    /// All pages except those kept for emergencies.
    #[default]
    Normal,
    /// All pages: for work that frees memory when it ends, such as spilling.
    #[doc(alias = "__GFP_MEMALLOC")]
    Emergency,
}

/// Reason why there is no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoBlock {
    NoSuchNode { nodes: usize },
    Exhausted,
}

impl<M: Machine> Zones<M> {
    /// Reserves the zones that `options` describe, one on each node. After an error, the next call with the same `begun`
    /// goes on where this one stopped: reservations are never given back.
    pub(super) fn new(
        machine: &M,
        options: PageOptions,
        begun: &mut Begun<M>,
    ) -> Result<Self, ReserveError> {
        let share = machine.memory_bytes() / machine.nodes() as u64;
        let bytes_per_node = options.bytes_per_node.unwrap_or(share.min(RESERVED_MAX));
        let zone = |node: usize, reserved: &mut Option<Reserved<M>>| {
            let reserve = ReserveOptions {
                pages: bytes_per_node.div_ceil(Order::ZERO.bytes() as u64),
                node,
                binding: options.binding,
                huge_pages: options.huge_pages,
            };
            Zone::new(machine, &reserve, &options, reserved).map_err(|error| match error {
                ZoneError::Reserve(error) => error,
                ZoneError::OutOfMemory => ReserveError::Refused {
                    bytes: bytes_per_node,
                    reason: "no memory for per-CPU lists".to_owned(),
                },
            })
        };
        for node in begun.zones.len()..machine.nodes() {
            let next = zone(node, &mut begun.reserved)?;
            begun.zones.push(next);
        }
        let mut zones = begun.zones.drain(..);
        Ok(Self {
            first: zones.next().expect("a machine has a node"),
            others: zones.collect(),
            options,
            table: Table::new(),
        })
    }

    /// Returns the zone with a number that [`Zones::local`] or a page gave.
    #[inline(always)]
    pub(crate) fn zone(&self, number: u16) -> &Zone<M> {
        match number {
            0 => &self.first,
            _ => self.other(number),
        }
    }

    /// Not inlined, so that callers stay small enough to be inlined.
    #[inline(never)]
    fn other(&self, number: u16) -> &Zone<M> {
        &self.others[usize::from(number) - 1]
    }

    /// Number of zones.
    pub(super) fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// All zones.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Zone<M>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Number of the zone of the current CPU.
    #[inline(always)]
    pub(crate) fn local(&self) -> u16 {
        if self.others.is_empty() {
            return 0;
        }
        self.local_of_many()
    }

    #[inline(never)]
    fn local_of_many(&self) -> u16 {
        let machine = &self.first.machine;
        machine.node_of(machine.current_shard()).unwrap_or(0) as u16
    }

    /// Takes a block off the current CPU's list in a section.
    #[inline(always)]
    pub(crate) fn try_pop(&self, zone: u16, order: Order) -> Option<Block> {
        self.zone(zone).lists.stacks.try_pop(order.index())
    }

    /// Puts a block of `order` onto the current CPU's list in a section.
    ///
    /// # Errors
    /// The block, for [`Zones::free_slowly`].
    #[inline(always)]
    pub(crate) fn try_push(&self, zone: u16, order: u8, block: Block) -> Result<(), Block> {
        debug_assert_eq!(block.order().get(), order);
        let list = usize::from(order);
        self.zone(zone).lists.stacks.try_push(list, block)
    }

    /// Takes a block from any zone that may be used and has one. Call in an operation.
    pub(crate) fn alloc_slowly(
        &self,
        order: Order,
        placement: Placement,
        urgency: Urgency,
    ) -> Result<Block, NoBlock> {
        let nodes = self.count();
        let first = match placement {
            Placement::Local => usize::from(self.local()),
            Placement::Prefer(node) | Placement::Only(node) if node < nodes => node,
            _ => return Err(NoBlock::NoSuchNode { nodes }),
        };
        let count = match placement {
            Placement::Only(_) => 1,
            _ => nodes,
        };
        let order_of = |offset: usize| (first + offset) % nodes;
        let marks: &[Mark] = match urgency {
            Urgency::Normal => &[Mark::Low, Mark::Min],
            Urgency::Emergency => &[Mark::Low, Mark::Min, Mark::Reserve],
        };
        let attempt = |marks: &[Mark]| {
            marks.iter().find_map(|&mark| {
                (0..count)
                    .map(order_of)
                    .find_map(|at| self.zone(at as u16).take_one(order, mark))
            })
        };
        if let Some(found) = attempt(marks) {
            return Ok(found);
        }
        // Pages may be on the lists of other CPUs, or in pieces that together make a larger block. Other tasks may take
        // the drained pages, so we try again as long as there was anything to drain.
        for _ in 0..DRAINS {
            let mut drained = 0;
            for at in (0..count).map(order_of) {
                let zone = self.zone(at as u16);
                Counts::add(&zone.counts.stalls, 1);
                drained += zone.drain_all();
            }
            if let Some(found) = attempt(&marks[1..]) {
                return Ok(found);
            }
            if drained == 0 {
                break;
            }
        }
        Err(NoBlock::Exhausted)
    }

    /// Frees a block that its list had no room for. Call in an operation.
    #[cold]
    pub(crate) fn free_slowly(&self, zone: u16, block: Block) {
        let zone = self.zone(zone);
        let order = block.order().index();
        if zone.lists.lists[order].exists() {
            return zone.spill(order, block);
        }
        zone.give_one(block, Work::Free);
    }

    /// Prepares a block for its new owner: zeroes it on request, or if the owner may not see its bytes.
    #[cold]
    #[inline(never)]
    pub(crate) fn prepare(
        &self,
        zone: u16,
        mut block: Block,
        owner: Owner,
        zeroed: Zeroed,
    ) -> Block {
        if zeroed == Zeroed::Yes || !block.is_clean_for(owner) {
            self.zero(zone, &mut block);
        }
        block.set_owner(owner);
        block
    }

    /// Makes all bytes of a block zero.
    pub(crate) fn zero(&self, zone: u16, block: &mut Block) {
        if block.content().is_zero() {
            return;
        }
        let zone = self.zone(zone);
        Counts::add(&zone.counts.zeroed, u64::from(block.order().pages()));
        zone.frames.zero(block);
    }

    /// Number of free pages in all zones, and the number of these that an ordinary allocation leaves.
    pub(crate) fn free_and_reserve(&self) -> (u64, u64) {
        let sum = |pages: fn(&Zone<M>) -> u64| self.iter().map(pages).sum();
        (sum(Zone::free_pages), sum(|zone| zone.marks.min))
    }

    /// Takes up to `count` blocks off the current CPU's list in one step.
    pub(crate) fn pop_many(&self, zone: u16, order: Order, count: usize, blocks: &mut Vec<Block>) {
        let at = self.zone(zone);
        let popped = at.lists.stacks.pop_many(order.index(), count, blocks);
        let pages = popped as u64 * u64::from(order.pages());
        Counts::add(&at.counts.slow_allocs, pages);
    }

    /// Puts blocks of one zone and order onto the current CPU's list, and the rest into the depot or the buddy. Call in
    /// an operation.
    pub(crate) fn free_many(&self, zone: u16, order: Order, mut blocks: Vec<Block>) {
        let at = self.zone(zone);
        let list = order.index();
        if !at.lists.lists[list].exists() {
            return at.give(&mut blocks, Work::Free);
        }
        at.lists.stacks.push_many(list, &mut blocks);
        let batch = at.lists.lists[list].batch as usize;
        while !blocks.is_empty() {
            let shard = at.machine.current_shard();
            let Some(mut some) = at.depot.spare(&at.machine, shard, list) else {
                // No memory for a batch.
                return at.give(&mut blocks, Work::Free);
            };
            some.extend(blocks.drain(blocks.len() - batch.min(blocks.len())..));
            at.put_batch(shard, list, some);
        }
    }

    /// Does the periodic upkeep of all zones, except for the lists of CPUs that are `left_alone`. Call in an operation.
    pub(crate) fn tick(&self, left_alone: &dyn Fn(Shard) -> bool) {
        self.iter()
            .for_each(|zone| upkeep::tick(zone, &self.options, left_alone));
    }

    /// Does the periodic upkeep of one CPU's lists; returns whether there will be work the next time. Call in an
    /// operation.
    pub(crate) fn tick_cpu(&self, shard: Shard) -> bool {
        let each = self
            .iter()
            .map(|zone| upkeep::tick_cpu(zone, shard, &self.options));
        // Each zone does its upkeep, whatever the first one returns.
        each.fold(false, |left, more| left | more)
    }

    /// Does the periodic upkeep that is not about a CPU's lists. Call in an operation.
    pub(crate) fn tick_rest(&self) {
        self.iter()
            .for_each(|zone| upkeep::tick_rest(zone, &self.options));
    }

    /// Returns whether there is anything for [`Zones::tick_cpu`] to do. Changes nothing.
    pub(crate) fn has_work(&self, shard: Shard) -> bool {
        self.iter().any(|zone| upkeep::has_work(zone, shard))
    }

    /// Returns the zone that a page belongs to.
    pub(crate) fn zone_of(&self, pfn: Pfn) -> Option<u16> {
        let zone = self.iter().position(|zone| zone.contains(pfn))?;
        Some(zone as u16)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use bursar_machine::Host;

    use super::super::fixture::{options, pages, stays_on_a_cpu, zones};
    use super::super::refusing::Refusing;
    use super::*;

    #[test]
    fn pages_are_of_the_node_of_the_cpu() {
        let (machine, choices) = Refusing::new(2);
        let zones = zones(&machine, options());
        for node in [0, 1] {
            choices.home.store(node, Ordering::Relaxed);
            let local = zones.local();
            assert_eq!(zones.zone(local).node, node);
            let block = zones.alloc_slowly(Order::ZERO, Placement::Local, Urgency::Normal);
            assert_eq!(zones.zone_of(block.unwrap().pfn()), Some(local));
        }
    }

    #[test]
    fn a_section_takes_what_a_section_has_put() {
        let zones = zones(&Host::start().unwrap(), options());
        let block = pages(zones.zone(0), 1).pop().unwrap();
        let pfn = block.pfn();
        if !stays_on_a_cpu() || zones.try_push(0, 0, block).is_err() {
            // A backend without sections.
            return;
        }
        let taken = zones.try_pop(0, Order::ZERO);
        assert_eq!(taken.map(|block| block.pfn()), Some(pfn));
        assert!(zones.try_pop(0, Order::ZERO).is_none());
    }
}
