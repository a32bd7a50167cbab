//! Pages that threads hold, against a reference: the holder of each page, and the stamp that it carries.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bursar::pages::{Order, PAGE_BYTES, PageOptions, Pfn, Watermarks, Zeroed};
use bursar::{AllocPagesError, Group, Limits, Memory, Page, PageRequest};
use bursar_check::model::pages::Holders;

use super::{Random, Short};

/// Pages of a block of the largest order, which is a piece of the reference.
const PIECE: u32 = Order::MAX.pages();

/// A page in a thread's hands.
pub struct Held {
    pub page: Page,
    /// Number that its owner has written at the beginning of each page, if any.
    stamp: Option<u64>,
}

pub struct World {
    pub memory: Memory,
    pub groups: Vec<Group>,
    /// Places of the pieces in the reference, by number.
    pieces: BTreeMap<u32, usize>,
    holders: Holders,
    /// Pages that a thread is just allocating or freeing.
    pub under_way: AtomicU64,
    /// Pages that others may free.
    pub basket: Mutex<Vec<Held>>,
    pub managed: u64,
}

pub fn options(bytes: u64) -> PageOptions {
    PageOptions {
        bytes_per_node: Some(bytes),
        watermarks: Some(Watermarks {
            min: 0,
            low: 0,
            high: 0,
        }),
        ..PageOptions::default()
    }
}

impl World {
    pub fn new(options: PageOptions) -> Self {
        let memory = Memory::builder().pages(options).build().unwrap();
        let root = memory.root();
        let half = Limits::max(memory_bytes(&memory) / 2);
        let groups = [Limits::none(), Limits::none(), half]
            .into_iter()
            .zip(["a", "b", "small"])
            .map(|(limits, name)| root.make_with(name, limits))
            .collect();
        let mut all = Vec::new();
        while let Ok(page) = memory.alloc_pages(Order::MAX, Zeroed::No) {
            all.push(page);
        }
        let numbers = all.iter().map(|page| page.pfn().0 / PIECE);
        let pieces: BTreeMap<u32, usize> = numbers.zip((0..).step_by(PIECE as usize)).collect();
        assert_eq!(pieces.len(), all.len(), "all are distinct");
        drop(all);
        let holders = Holders::new(pieces.len() * PIECE as usize);
        let managed = holders.len() as u64;
        Self {
            memory,
            groups,
            pieces,
            holders,
            under_way: AtomicU64::new(0),
            basket: Mutex::default(),
            managed,
        }
    }

    fn place(&self, pfn: Pfn, order: Order) -> Range<usize> {
        let piece = self.pieces.get(&(pfn.0 / PIECE));
        let first = piece.expect("a page of a zone") + (pfn.0 % PIECE) as usize;
        first..first + order.pages() as usize
    }

    /// Whether somebody has noted that it holds the page.
    pub fn is_held(&self, pfn: Pfn) -> bool {
        let place = self.place(pfn, Order::ZERO).start;
        self.holders.of(place).is_some()
    }

    /// Pages noted as held.
    pub fn held(&self) -> u64 {
        self.holders.places().count() as u64
    }

    fn note(&self, page: &Page) {
        self.holders.take(self.place(page.pfn(), page.order()), 0);
    }

    fn forget(&self, page: &Page) {
        self.holders.give(self.place(page.pfn(), page.order()));
    }

    /// Counts pages as under way.
    fn around<R>(&self, pages: u64, work: impl FnOnce() -> R) -> R {
        self.under_way.fetch_add(pages, Ordering::SeqCst);
        let result = work();
        self.under_way.fetch_sub(pages, Ordering::SeqCst);
        result
    }

    /// Checks the bytes of a new page, and writes those that are expected when it is freed.
    fn receive(&self, random: &mut Random, mut page: Page, group: u64, zeroed: Zeroed) -> Held {
        self.note(&page);
        if zeroed == Zeroed::Yes {
            let (_, words, _) = as_words(page.bytes());
            assert!(words.iter().all(|&word| word == 0), "{page:?} is not zero");
        } else if random.below(2) == 0 {
            check_foreign(&mut page, group);
        }
        let mut held = Held { page, stamp: None };
        if random.below(3) > 0 {
            held.stamp = Some(random.next() << 8 | group);
            held.write();
        }
        held
    }

    pub fn alloc(&self, random: &mut Random) -> Option<Held> {
        let at = random.below(self.groups.len());
        let order = some_order(random);
        let zeroed = some_zeroed(random);
        let group = &self.groups[at];
        let pages = u64::from(order.pages());
        let result = self.around(pages, || {
            let page = match random.below(4) {
                0 => match zeroed {
                    Zeroed::Yes => PageRequest::new(order).zeroed(),
                    Zeroed::No => PageRequest::new(order),
                }
                .alloc(group),
                _ => group.alloc_pages(order, zeroed),
            };
            page.map(|page| self.receive(random, page, at as u64 + 1, zeroed))
        });
        self.judge(result)
    }

    pub fn alloc_many(&self, random: &mut Random) -> Vec<Held> {
        let at = random.below(self.groups.len());
        let order = Order::new(random.below(4) as u8);
        let count = 1 + random.below(100);
        let zeroed = some_zeroed(random);
        let pages = count as u64 * u64::from(order.pages());
        let result = self.around(pages, || {
            let pages = self.groups[at].alloc_many(order, count, zeroed)?;
            assert_eq!(pages.len(), count);
            let receive = |page| self.receive(random, page, at as u64 + 1, zeroed);
            Ok(pages.into_iter().map(receive).collect())
        });
        self.judge(result).unwrap_or_default()
    }

    fn judge<R>(&self, result: Result<R, AllocPagesError>) -> Option<R> {
        match result {
            Ok(pages) => Some(pages),
            Err(AllocPagesError::Exhausted { .. } | AllocPagesError::Refused(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub fn free(&self, mut held: Held) {
        held.check();
        self.around(u64::from(held.page.order().pages()), || {
            self.forget(&held.page);
            drop(held);
        });
    }

    pub fn free_many(&self, mut held: Vec<Held>) {
        held.iter_mut().for_each(Held::check);
        let pages = held.iter().map(|held| u64::from(held.page.order().pages()));
        self.around(pages.sum(), || {
            held.iter().for_each(|held| self.forget(&held.page));
            Page::free_many(held.into_iter().map(|held| held.page));
        });
    }

    /// One random step of a thread, which holds a few blocks at a time.
    pub fn step(&self, random: &mut Random, held: &mut Vec<Held>) {
        match random.below(32) {
            0 => held.extend(self.alloc_many(random)),
            1 => self.free_many(std::mem::take(held)),
            2..4 => {
                let page = held.pop();
                self.basket().extend(page);
            }
            4..6 => {
                let page = self.basket().pop();
                page.into_iter().for_each(|page| self.free(page));
            }
            6..14 if !held.is_empty() => self.free(held.swap_remove(random.below(held.len()))),
            _ => held.extend(self.alloc(random)),
        }
        if held.len() > 60 {
            self.free_many(held.split_off(20));
        }
    }

    pub fn basket(&self) -> std::sync::MutexGuard<'_, Vec<Held>> {
        self.basket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pages in lists, depots and buddies. Of one moment only while nothing moves.
    pub fn at_rest(&self) -> u64 {
        let info = self.memory.zone_info().unwrap();
        let zones = info.zones.iter();
        zones.map(|zone| zone.free + zone.listed + zone.depot).sum()
    }

    /// Checks when all threads are gone: nothing is lost, and all blocks are whole again.
    pub fn finish(&self) {
        let basket = std::mem::take(&mut *self.basket());
        basket.into_iter().for_each(|page| self.free(page));
        assert_eq!(self.held(), 0);
        assert_eq!(self.at_rest(), self.managed, "pages at rest");
        for group in &self.groups {
            let usage = group.exact().usage();
            assert_eq!(usage.value, 0, "{group:?}");
        }
        let mut all = Vec::new();
        while let Ok(page) = self.memory.alloc_pages(Order::MAX, Zeroed::Yes) {
            self.note(&page);
            let (_, words, _) = as_words(page.bytes());
            assert!(words.iter().all(|&word| word == 0), "{page:?} is not zero");
            all.push(page);
        }
        assert_eq!(all.len(), self.pieces.len(), "blocks of the largest order");
        all.iter().for_each(|page| self.forget(page));
    }
}

impl Held {
    fn write(&mut self) {
        let stamp = self.stamp.expect("there is one").to_ne_bytes();
        self.page
            .uninit_mut()
            .chunks_exact_mut(PAGE_BYTES)
            .for_each(|page| {
                for (to, from) in page.iter_mut().zip(stamp) {
                    to.write(from);
                }
            });
    }

    /// Nobody has written here since.
    fn check(&mut self) {
        if let Some(stamp) = self.stamp {
            let found = stamps(&mut self.page);
            assert!(found.iter().all(|&found| found == stamp), "{:?}", self.page);
        }
    }
}

/// The first word of each page.
fn stamps(page: &mut Page) -> Vec<u64> {
    let pages = page.uninit_mut().chunks_exact(PAGE_BYTES);
    // SAFETY: a page begins with a word, it is borrowed, and the kernel has initialized what nobody has written since.
    pages
        .map(|page| unsafe { page.as_ptr().cast::<u64>().read() })
        .collect()
}

/// Checks that a page of another place has no bytes, or this group's.
fn check_foreign(page: &mut Page, group: u64) {
    for stamp in stamps(page) {
        assert!(
            stamp == 0 || stamp & 0xff == group,
            "{page:?} shows group {group} what group {} wrote",
            stamp & 0xff
        );
    }
}

fn as_words(bytes: &[u8]) -> (&[u8], &[u64], &[u8]) {
    // SAFETY: every word is a number.
    unsafe { bytes.align_to() }
}

fn memory_bytes(memory: &Memory) -> u64 {
    let _ = memory.alloc_pages(Order::ZERO, Zeroed::No).unwrap();
    let info = memory.zone_info().unwrap();
    info.zones.iter().map(|zone| zone.managed).sum::<u64>() * PAGE_BYTES as u64
}

fn some_order(random: &mut Random) -> Order {
    Order::new(match random.below(16) {
        0..9 => 0,
        9..12 => random.below(3) as u8,
        12..15 => random.below(6) as u8,
        _ => random.below(11) as u8,
    })
}

fn some_zeroed(random: &mut Random) -> Zeroed {
    match random.below(3) {
        0 => Zeroed::Yes,
        _ => Zeroed::No,
    }
}
