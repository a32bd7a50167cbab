//! All zones of a memory: which one an allocation comes from, and what happens when that has nothing.

use bursar_machine::pages::{Block, Order, Pfn, ReserveError, ReserveOptions};
use bursar_machine::{Machine, Shard};

use super::hold::Work;
use super::options::PageOptions;
use super::table::Table;
use super::zone::{Counts, Mark, Zone, ZoneError};

/// The zones, by node.
pub(crate) struct Zones<M: Machine> {
    pub(super) zones: Box<[Zone<M>]>,
    pub(super) options: PageOptions,
    pub(crate) table: Table<M>,
}

/// Which zones an allocation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Placement {
    /// That of the CPU that asks, then others.
    #[default]
    Local,
    /// That of a node, then others.
    Prefer(usize),
    /// That of a node only.
    Only(usize),
}

/// What an allocation may use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Urgency {
    /// All but what is kept for emergencies.
    #[default]
    Normal,
    /// All: for work that frees memory when it ends, such as spilling.
    #[doc(alias = "__GFP_MEMALLOC")]
    Emergency,
}

/// Why there is no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoBlock {
    NoSuchNode { nodes: usize },
    Exhausted,
}

impl<M: Machine> Zones<M> {
    /// Reserves what `options` say, on each node.
    pub(crate) fn new(
        machine: &M,
        options: PageOptions,
        bytes_per_node: u64,
    ) -> Result<Self, ReserveError> {
        let zone = |node: usize| {
            let reserve = ReserveOptions {
                pages: bytes_per_node.div_ceil(Order::ZERO.bytes() as u64),
                node,
                binding: options.binding,
                huge_pages: options.huge_pages,
            };
            Zone::new(machine, &reserve, &options).map_err(|error| match error {
                ZoneError::Reserve(error) => error,
                ZoneError::OutOfMemory => ReserveError::Refused {
                    bytes: bytes_per_node,
                    reason: "no memory for per-CPU lists".to_owned(),
                },
            })
        };
        let zones = (0..machine.nodes()).map(zone).collect::<Result<_, _>>()?;
        Ok(Self {
            zones,
            options,
            table: Table::new(),
        })
    }

    /// The zone at a number that [`Zones::local`] or a page gave.
    #[inline(always)]
    pub(crate) fn zone(&self, number: u16) -> &Zone<M> {
        &self.zones[usize::from(number)]
    }

    /// The zone of the CPU that this task is on.
    #[inline(always)]
    pub(crate) fn local(&self) -> u16 {
        if self.zones.len() == 1 {
            return 0;
        }
        self.local_of_many()
    }

    fn local_of_many(&self) -> u16 {
        let machine = &self.zones[0].machine;
        machine.node_of(machine.current_shard()).unwrap_or(0) as u16
    }

    /// Takes a block of a list without a lock.
    #[inline(always)]
    pub(crate) fn pop(&self, zone: u16, order: Order) -> Option<Block> {
        let zone = self.zone(zone);
        zone.pop(zone.list_of(order)?)
    }

    /// Puts a block onto its list without a lock.
    ///
    /// # Errors
    /// The block, to be given to [`Zones::free_slowly`].
    #[inline(always)]
    pub(crate) fn push(&self, zone: u16, block: Block) -> Result<(), Block> {
        let zone = self.zone(zone);
        match zone.list_of(block.order()) {
            Some(list) => zone.push(list, block),
            None => Err(block),
        }
    }

    /// A block from wherever there is one, with the number of its zone. Call in an operation.
    pub(crate) fn alloc_slowly(
        &self,
        order: Order,
        placement: Placement,
        urgency: Urgency,
    ) -> Result<(u16, Block), NoBlock> {
        let nodes = self.zones.len();
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
                (0..count).map(order_of).find_map(|at| {
                    let block = self.zones[at].take_one(order, mark)?;
                    Some((at as u16, block))
                })
            })
        };
        if let Some(found) = attempt(marks) {
            return Ok(found);
        }
        // Pages may be waiting on the lists of other CPUs, or in pieces that make a larger one together.
        for at in (0..count).map(order_of) {
            Counts::add(&self.zones[at].counts.stalls, 1);
            self.zones[at].drain_all();
        }
        attempt(&marks[1..]).ok_or(NoBlock::Exhausted)
    }

    /// Takes a block back that its list had no room for. Call in an operation.
    #[cold]
    pub(crate) fn free_slowly(&self, zone: u16, block: Block) {
        let zone = self.zone(zone);
        match zone.list_of(block.order()) {
            Some(list) => zone.spill(list, block),
            None => zone.give(&mut vec![block], Work::Free),
        }
    }

    /// Up to `count` blocks off the current CPU's list in one step.
    pub(crate) fn pop_many(&self, zone: u16, order: Order, count: usize, blocks: &mut Vec<Block>) {
        use bursar_machine::pages::BlockStacks;
        let at = self.zone(zone);
        if let Some(list) = at.list_of(order) {
            let popped = at.lists.stacks.pop_many(list, count, blocks);
            Counts::add(&at.counts.slow_allocs, popped as u64 * u64::from(order.pages()));
        }
    }

    /// Puts blocks of one zone and order onto the current CPU's list, and what does not fit beyond. Call in an operation.
    pub(crate) fn free_many(&self, zone: u16, order: Order, mut blocks: Vec<Block>) {
        use bursar_machine::pages::BlockStacks;
        let at = self.zone(zone);
        let Some(list) = at.list_of(order) else {
            return at.give(&mut blocks, Work::Free);
        };
        at.lists.stacks.push_many(list, &mut blocks);
        let batch = at.lists.lists[list].batch as usize;
        while !blocks.is_empty() {
            let shard = at.machine.current_shard();
            let mut some = at.depot.spare(&at.machine, shard);
            some.extend(blocks.drain(blocks.len() - batch.min(blocks.len())..));
            at.put_batch(shard, list, some);
        }
    }

    /// Periodic upkeep of all zones. Call in an operation.
    pub(crate) fn tick(&self) {
        self.zones.iter().for_each(|zone| zone.tick(&self.options));
    }

    /// The zone that a page is of.
    pub(crate) fn zone_of(&self, pfn: Pfn) -> Option<u16> {
        let zone = self.zones.iter().position(|zone| zone.contains(pfn))?;
        Some(zone as u16)
    }

    /// All shards of the machine.
    pub(super) fn shards(&self) -> impl Iterator<Item = Shard> + use<M> {
        (0..=self.zones[0].machine.cpus() as u32).map(Shard)
    }
}

impl<M: Machine> Zone<M> {
    fn take_one(&self, order: Order, mark: Mark) -> Option<Block> {
        if let Some(list) = self.list_of(order) {
            return self.refill(list, mark);
        }
        let mut blocks = Vec::with_capacity(1);
        self.take(order, 1, mark, &mut blocks);
        let block = blocks.pop()?;
        Counts::add(&self.counts.slow_allocs, u64::from(order.pages()));
        Some(block)
    }
}
