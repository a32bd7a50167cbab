//! Allocation and return of many pages, with one charge, one section and one lock for many.

use std::mem;

use bursar_machine::pages::{Block, Order};
use bursar_machine::{Machine, Outcome, Slot};

use super::error::AllocPagesError;
use super::page::{Page, Tag, UNCHARGED, scrub, uncharge};
use super::request::{get_block_slowly, request};
use crate::charge::Charge;
use crate::group::Group;
use crate::react::slow_charge;
use crate::react::{Core, fork};
use crate::zones::Zeroed;

/// Allocates `count` blocks with one charge.
pub(crate) fn alloc_many<M: Machine>(
    group: &Group<M>,
    order: Order,
    count: usize,
    zeroed: Zeroed,
) -> Result<Vec<Page<M>>, AllocPagesError> {
    let request = request(order, zeroed);
    let too_many = || AllocPagesError::TooMany { order, count };
    let bytes = order.bytes().checked_mul(count).ok_or_else(too_many)? as u64;
    if count == 0 {
        return Ok(Vec::new());
    }
    // Before the charge, which others would see.
    let (mut pages, mut blocks) = (Vec::new(), Vec::new());
    pages.try_reserve_exact(count).map_err(|_| too_many())?;
    let at_once = count.min(TOGETHER);
    let has_room = blocks.try_reserve_exact(at_once);
    has_room.map_err(|_| too_many())?;
    let mut charge = {
        let outcome = group.slot().charge(bytes);
        if outcome != Outcome::Done {
            slow_charge::try_charge(group.core(), group.index(), bytes, outcome)?;
        }
        Charge::new(group, bytes)
    };
    let core = group.core();
    while pages.len() < count {
        if let Some(zones) = core.pages.zones() {
            let zone = zones.local();
            let most = at_once.min(count - pages.len());
            zones.pop_many(zone, order, most, &mut blocks);
            for block in blocks.drain(..).rev() {
                let block = zones.prepare(zone, block, group.owner(), zeroed);
                pages.push(Page::new(group, zone, order, block, zeroed));
            }
            if pages.len() == count {
                break;
            }
        }
        // This call also fills the list.
        let (zone, block) = match get_block_slowly(core, request, group.owner()) {
            Ok(found) => found,
            Err(error) if pages.is_empty() => return Err(*error),
            Err(error) => {
                // The bytes that the pages will return are part of the charge.
                let held = (pages.len() * order.bytes()) as u64;
                let rest = charge.split(bytes - held).expect("not more than all");
                charge.forget_bytes();
                drop((pages, rest));
                return Err(*error);
            }
        };
        pages.push(Page::new(group, zone, order, block, zeroed));
    }
    // The pages return the bytes from now on.
    charge.forget_bytes();
    Ok(pages)
}

impl<M: Machine> Page<M> {
    /// Frees pages of any groups in fewer steps than one drop for each.
    #[doc(alias = "free_unref_folios")]
    pub fn free_many(pages: impl IntoIterator<Item = Self>) {
        let mut run: Option<Run<M>> = None;
        for mut page in pages {
            let order = page.order();
            if let Some(run) = &mut run
                && run.fits(&page, order)
                && run.blocks.try_reserve(1).is_ok()
            {
                run.blocks.extend(page.block.take());
                continue;
            }
            let mut next = Run::new(&page, order);
            if next.blocks.try_reserve(1).is_err() {
                // No memory for many: one by one.
                drop(page);
                continue;
            }
            next.blocks.extend(page.block.take());
            drop(run.replace(next));
        }
    }
}

/// Maximum number of blocks that return together. Tasks that wait for memory are told after each run of them.
const TOGETHER: usize = 512;

/// Pages of one group, zone and order that return together when this value is dropped.
struct Run<M: Machine> {
    core: M::Shared<Core<M>>,
    slot: M::Slot,
    tag: Tag,
    order: Order,
    blocks: Vec<Block>,
}

impl<M: Machine> Run<M> {
    fn new(page: &Page<M>, order: Order) -> Self {
        Self {
            core: page.core.clone(),
            slot: page.slot.clone(),
            tag: page.tag,
            order,
            blocks: Vec::new(),
        }
    }

    fn fits(&self, page: &Page<M>, order: Order) -> bool {
        let same_memory = std::ptr::eq::<Core<M>>(&*self.core, &*page.core);
        let of = |tag: Tag| (tag.index(), tag.zone());
        let is_same = of(self.tag) == of(page.tag);
        let has_room = self.blocks.len() < TOGETHER;
        has_room && same_memory && is_same && self.order == order
    }
}

impl<M: Machine> Drop for Run<M> {
    fn drop(&mut self) {
        let mut blocks = mem::take(&mut self.blocks);
        let bytes = (blocks.len() * self.order.bytes()) as u64;
        let zones = self.core.pages.zones().expect("pages come from zones");
        if self.core.pages.scrubs() {
            for block in &mut blocks {
                scrub(&*self.core, self.tag, block);
            }
        }
        {
            let _operation = fork::operation(&self.core);
            zones.free_many(self.tag.zone(), self.order, blocks);
        }
        if self.tag.index() != UNCHARGED {
            uncharge(&*self.core, self.slot.clone(), self.tag.index(), bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Memory};

    #[test]
    fn a_run_has_blocks_of_one_kind_up_to_its_bound() {
        let memory = Memory::host().unwrap();
        let make = |name: &str| memory.root().child(name, Limits::none()).unwrap();
        let (group, other) = (make("group"), make("other"));
        let many = |group: &Group<_>, order| {
            let pages = alloc_many(group, order, TOGETHER + 1, Zeroed::No);
            pages.expect("there is memory")
        };
        let one = |group: &Group<_>, order| alloc_many(group, order, 1, Zeroed::No).unwrap();
        let mut pages = many(&group, Order::ZERO);
        let last = pages.pop().expect("there are some");
        let mut run = Run::new(&last, Order::ZERO);
        for mut page in pages {
            assert!(run.fits(&last, Order::ZERO));
            run.blocks.extend(page.block.take());
        }
        assert!(!run.fits(&last, Order::ZERO), "it is full");
        let mut run = Run::new(&last, Order::ZERO);
        run.blocks.extend(one(&group, Order::ZERO)[0].block.take());
        assert!(run.fits(&last, Order::ZERO));
        assert!(!run.fits(&one(&other, Order::ZERO)[0], Order::ZERO));
        let larger = Order::new(1);
        assert!(!run.fits(&one(&group, larger)[0], larger));
        let elsewhere = Memory::host().unwrap();
        let same_name = elsewhere.root().child("group", Limits::none()).unwrap();
        assert!(!run.fits(&one(&same_name, Order::ZERO)[0], Order::ZERO));
    }
}
