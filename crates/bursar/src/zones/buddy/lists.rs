//! Lists of free blocks, two for each order.

use bursar_machine::pages::{MAX_ORDER, Order};

use super::frames::{Frames, Links, NONE};

const ORDERS: usize = MAX_ORDER as usize + 1;

/// Presence of memory behind a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    There = 0,
    Absent = 1,
}

/// End at which a block enters its list. Blocks are taken from the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Front,
    Back,
}

/// List of blocks of one order with or without memory, threaded through their frames.
#[derive(Clone, Copy)]
struct List {
    front: u32,
    back: u32,
    blocks: u64,
}

pub(super) struct Lists {
    lists: [[List; ORDERS]; 2],
    /// One bit for each order that has blocks.
    filled: [u32; 2],
}

impl Lists {
    pub(super) fn new() -> Self {
        let empty = List {
            front: NONE,
            back: NONE,
            blocks: 0,
        };
        Self {
            lists: [[empty; ORDERS]; 2],
            filled: [0; 2],
        }
    }

    /// Smallest order of at least `least` that has blocks, and the list to take one from.
    pub(super) fn smallest(&self, least: Order) -> Option<(Backing, Order)> {
        let [there, absent] = self.filled.map(|filled| filled >> least.get());
        let above = (there | absent).trailing_zeros();
        if above == u32::BITS {
            return None;
        }
        let backing = match there >> above & 1 {
            1 => Backing::There,
            _ => Backing::Absent,
        };
        Some((backing, Order::new(least.get() + above as u8)))
    }

    /// Largest order from `least` to `most` that has blocks with such backing.
    pub(super) fn largest(&self, backing: Backing, least: Order, most: Order) -> Option<Order> {
        let up_to_most = u32::MAX >> (u32::BITS - 1 - u32::from(most.get()));
        let largest = (self.filled[backing as usize] & up_to_most).checked_ilog2()?;
        (largest >= u32::from(least.get())).then(|| Order::new(largest as u8))
    }

    /// Index of the block at the front of a list that is not empty.
    pub(super) fn first(&self, backing: Backing, order: Order) -> u32 {
        self.lists[backing as usize][order.index()].front
    }

    /// Index of the block at the back of a list that is not empty.
    pub(super) fn last(&self, backing: Backing, order: Order) -> u32 {
        self.lists[backing as usize][order.index()].back
    }

    /// Number of blocks of an order.
    pub(super) fn blocks(&self, order: Order) -> u64 {
        let blocks = self.lists.map(|lists| lists[order.index()].blocks);
        blocks.iter().sum()
    }

    pub(super) fn insert(
        &mut self,
        frames: &mut Frames,
        index: u32,
        (backing, order): (Backing, Order),
        end: End,
    ) {
        let list = &mut self.lists[backing as usize][order.index()];
        let links = match end {
            End::Front => Links {
                previous: NONE,
                next: list.front,
            },
            End::Back => Links {
                previous: list.back,
                next: NONE,
            },
        };
        *frames.links(index) = links;
        list.blocks += 1;
        list.join(frames, links.previous, index);
        list.join(frames, index, links.next);
        self.filled[backing as usize] |= 1 << order.get();
    }

    pub(super) fn remove(
        &mut self,
        frames: &mut Frames,
        index: u32,
        (backing, order): (Backing, Order),
    ) {
        let list = &mut self.lists[backing as usize][order.index()];
        let Links { previous, next } = core::mem::replace(frames.links(index), Links::NONE);
        list.blocks -= 1;
        list.join(frames, previous, next);
        if list.blocks == 0 {
            self.filled[backing as usize] &= !(1 << order.get());
        }
    }
}

impl List {
    /// Makes two blocks neighbours. If only one of them exists, it becomes an end of the list.
    fn join(&mut self, frames: &mut Frames, previous: u32, next: u32) {
        match previous {
            NONE => self.front = next,
            _ => frames.links(previous).next = next,
        }
        match next {
            NONE => self.back = previous,
            _ => frames.links(next).previous = previous,
        }
    }
}
