//! A zone of which a few pages are left, groups that want them, and the work of tasks there.

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bursar::housekeeping::{Options, Upkeep, Upkeeper};
use bursar::pages::{HoldBounds, ListOptions, Order, PageOptions, Pfn, Watermarks, Zeroed};
use bursar::{AllocPagesError, Freshness, Group, Limits, Memory, Page, PageRequest};
use bursar_kernel::upkeep::{Clocked, Firing, KERNEL_SKEW, Period};
use bursar_machine::Machine;
use bursar_rig::Watched;

use crate::model::pages::{At, Truth, Who, Work};
use crate::protocols::locked::locked;
use crate::random::Random;

/// Pages of the zone: one block of the largest order, so that at the end all are one again.
pub(super) const PAGES: u64 = 1 << Order::MAX.get();

/// A page that a task holds. Only [`World::release`] drops it: a page that is held twice would panic again while a
/// failure unwinds.
pub(super) struct Held<M: Machine> {
    pub(super) page: ManuallyDrop<Page<M>>,
    pub(super) at: At,
}

/// See the module.
pub(super) struct World<M: Machine> {
    pub(super) memory: Memory<M>,
    /// Does the memory's upkeep CPU by CPU, beside its ticks.
    upkeeper: Upkeeper<M, Box<dyn Upkeep>, Clocked>,
    /// Groups that stay, from 1 on.
    pub(super) groups: Vec<Group<M>>,
    truth: Mutex<Truth>,
    /// Number of times that the truth was looked at or changed.
    records: AtomicU64,
    /// Changes of words, and records, when held pages were checked last.
    checked: Mutex<Option<(u64, u64)>>,
    first: Pfn,
    /// Pages that are held to make the others scarce.
    ballast: Mutex<Vec<Held<M>>>,
    /// Number of holders so far.
    holders: AtomicUsize,
}

/// Returns small lists, and every kind of shelf, hold and tuning.
pub(super) fn some_options(random: &mut Random) -> PageOptions {
    let mut options = PageOptions::default();
    let capacity = [2, 2, 3, 8][random.below(4) as usize];
    options.lists = vec![ListOptions::new(0, capacity)];
    if random.below(2) == 0 {
        options.lists.push(ListOptions::new(1, 2));
    }
    options.bytes_per_node = Some(Order::MAX.bytes() as u64);
    options.batch = Some(1 + random.below(2) as u32);
    options.watermarks = Some(Watermarks {
        min: 0,
        low: random.below(3),
        high: 2,
    });
    options.hold = HoldBounds {
        blocks: 1 + random.below(2) as u32,
        ns: 1000,
    };
    options.cpus_per_shelf = 1 + random.below(2) as usize;
    options.shelf_batches = 1;
    options.decay_period = Duration::from_nanos(1);
    options.idle_periods = 1 + random.below(2) as u32;
    options.retained_bytes_per_cpu = [0, u64::MAX][random.below(2) as usize];
    options.return_bytes_per_second = u64::MAX;
    options
}

/// Returns lists of one block: all other blocks go through the depot.
pub(super) fn tiny_options(random: &mut Random) -> PageOptions {
    let mut options = some_options(random);
    options.lists = vec![ListOptions::new(0, 1 + random.below(2) as u16)];
    options
}

impl<M: Watched> World<M> {
    /// Checks after each step that held pages are charged.
    pub(super) fn check_held(&self) {
        // Most steps change neither words nor records.
        let records = self.records.load(Ordering::Relaxed);
        let state = (self.memory.machine().changes(), records);
        if locked(&self.checked).replace(state) == Some(state) {
            return;
        }
        let truth = locked(&self.truth);
        for (who, group) in self.groups.iter().enumerate() {
            let held = truth.bytes(who);
            if held == 0 {
                continue;
            }
            let reserved = group.reserved();
            assert!(
                held <= reserved,
                "lost: {held} bytes of pages are held by {who}, and {reserved} are reserved"
            );
        }
    }
}

impl<M: Machine> World<M> {
    /// Makes a memory of which `left` pages are left, with a group for each of `limits`.
    pub(super) fn new(machine: &M, options: PageOptions, left: u64, limits: &[Limits]) -> Self {
        let marks = options.watermarks.expect("they are set");
        let returns_memory = options.retained_bytes_per_cpu == 0;
        let memory = Memory::builder()
            .pages(options)
            .build_on(machine.clone())
            .expect("a small memory");
        let root = memory.root();
        let group = |(number, limits): (usize, &Limits)| {
            root.child(number.to_string(), *limits)
                .expect("a name of its own")
        };
        let groups: Vec<Group<M>> = std::iter::once(root.clone())
            .chain((1..).zip(limits).map(group))
            .collect();
        let period = Period::new(100_000, 10_000).expect("a tick");
        // At once where there is work, and not for long again.
        let firing = Firing::RoundJiffies { skew: KERNEL_SKEW };
        let upkeep = Options::new(Clocked::new(firing, period));
        let upkeeper = memory.housekeeping(upkeep).expect("a period");
        let mut world = Self {
            holders: AtomicUsize::new(groups.len()),
            memory,
            upkeeper,
            groups,
            truth: Mutex::new(Truth::new(PAGES, marks.min)),
            records: AtomicU64::new(0),
            checked: Mutex::default(),
            first: Pfn(0),
            ballast: Mutex::default(),
        };
        if returns_memory {
            world.truth().zeroed_in_secret();
        }
        world.fill(left);
        world
    }

    /// Leaves so many pages; the rest has merged as far as it can.
    fn fill(&mut self, left: u64) {
        let mut wanted = PAGES - left;
        while let Some(order) = wanted.checked_ilog2() {
            let order = Order::new(order as u8);
            let request = PageRequest::new(order).urgent();
            // Not the root's: the process's own are charged to no group.
            let page = match request.alloc(&self.groups[0]) {
                Ok(page) => page,
                Err(error) => panic!("ballast of order {}: {error}", order.get()),
            };
            if wanted == PAGES - left {
                self.first = Pfn(page.pfn().0 / PAGES as u32 * PAGES as u32);
            }
            let held = self.take(page, 0);
            locked(&self.ballast).push(held);
            wanted -= u64::from(order.pages());
        }
    }

    pub(super) fn truth(&self) -> MutexGuard<'_, Truth> {
        // Relaxed, here and in the check: one thread of the host runs all tasks.
        self.records.fetch_add(1, Ordering::Relaxed);
        locked(&self.truth)
    }

    /// Returns a new holder, which has never held pages.
    pub(super) fn new_holder(&self) -> Who {
        self.holders.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs an operation that moves pages, or looks at them.
    pub(super) fn work<R>(&self, work: Work, operation: impl FnOnce() -> R) -> R {
        self.truth().begin(work);
        let result = operation();
        self.truth().end(work);
        result
    }

    /// Records a page that was allocated.
    pub(super) fn take(&self, page: Page<M>, who: Who) -> Held<M> {
        let at = (page.pfn().0 - self.first.0) as At;
        self.truth()
            .take(at, page.order(), who, page.is_known_zero());
        let page = ManuallyDrop::new(page);
        Held { page, at }
    }

    /// Removes the record of a page that is about to be freed.
    pub(super) fn release(&self, held: Held<M>) -> Page<M> {
        self.truth().give(held.at, held.page.order());
        ManuallyDrop::into_inner(held.page)
    }

    /// Allocates a page for a group; `None` if there is none, or the group is refused.
    pub(super) fn alloc(&self, who: Who, request: &Request) -> Option<Held<M>> {
        self.alloc_for(&self.groups[who], who, request)
    }

    /// Allocates a page for a group that comes and goes.
    pub(super) fn alloc_for(
        &self,
        group: &Group<M>,
        who: Who,
        request: &Request,
    ) -> Option<Held<M>> {
        let &Request {
            order,
            zeroed,
            is_urgent,
        } = request;
        let attempt = || {
            let result = if is_urgent {
                let urgent = PageRequest::new(order).urgent();
                match zeroed {
                    Zeroed::Yes => urgent.zeroed(),
                    Zeroed::No => urgent,
                }
                .alloc(group)
            } else {
                group.alloc_pages(order, zeroed)
            };
            let page = self.judge(result, order, is_urgent)?;
            let is_zero = page.is_known_zero();
            assert!(is_zero || zeroed == Zeroed::No, "zeroes were asked for");
            Some(self.take(page, who))
        };
        self.work(Work::Alloc(u64::from(order.pages())), attempt)
    }

    /// Records a refusal for want of pages.
    pub(super) fn judge<R>(
        &self,
        result: Result<R, AllocPagesError>,
        order: Order,
        is_urgent: bool,
    ) -> Option<R> {
        match result {
            Ok(pages) => return Some(pages),
            Err(AllocPagesError::Exhausted { .. }) => self.truth().refuse(order, is_urgent),
            Err(AllocPagesError::Refused(_)) => {}
            Err(error) => panic!("refused for no reason: {error}"),
        }
        None
    }

    /// Writes all bytes of a page.
    pub(super) fn write(&self, held: &mut Held<M>) {
        self.truth().write(held.at, held.page.order());
        let _ = held.page.uninit_mut();
    }

    pub(super) fn free(&self, held: Held<M>) {
        let work = Work::Free(u64::from(held.page.order().pages()));
        // It is under way from before it is not held any more, so that it is counted at any time.
        self.work(work, || drop(self.release(held)));
    }

    /// Does upkeep, or reads.
    pub(super) fn tend(&self, random: &mut Random) {
        self.work(Work::Other, || match random.below(6) {
            0 => drop(self.memory.zone_info()),
            1 => drop(self.memory.stuck(Duration::ZERO)),
            2 => {
                let next_ns = self.upkeeper.tick();
                if random.below(2) == 0 {
                    // Time passes: the next task does the work that is due then.
                    self.memory.machine().sleep_until(next_ns);
                }
            }
            _ => self.memory.tick(),
        });
    }

    /// Returns the pages in lists, depot and buddy, while no task works.
    pub(super) fn at_rest(&self) -> u64 {
        let info = self.memory.zone_info().expect("there was an allocation");
        let zone = &info.zones[0];
        assert_eq!(zone.managed, PAGES);
        let by_order = (0u32..).zip(zone.free_blocks);
        let in_blocks: u64 = by_order.map(|(order, blocks)| blocks << order).sum();
        assert_eq!(in_blocks, zone.free, "pages of free blocks, and free");
        assert!(zone.free_backed <= zone.free, "more backed than free");
        for list in zone.pagesets.iter().flat_map(|set| &set.lists) {
            let most = u64::from(list.high_max);
            assert!(
                list.count <= most,
                "more than a list has room for: {list:?}"
            );
        }
        zone.free + zone.depot + zone.listed
    }

    /// Takes all pages that are at rest, and gives them back; returns which.
    pub(super) fn all_at_rest(&self) -> BTreeSet<At> {
        let mut all = BTreeSet::new();
        let mut held = Vec::new();
        let request = Request {
            is_urgent: true,
            ..Request::page()
        };
        while let Some(page) = self.alloc(0, &request) {
            assert!(all.insert(page.at), "page {} is there twice", page.at);
            held.push(page);
        }
        let info = self.memory.zone_info().expect("there was an allocation");
        let zone = &info.zones[0];
        let left = (zone.free, zone.listed, zone.depot);
        assert_eq!(
            left,
            (0, 0, 0),
            "free, listed, in the depot after all were taken"
        );
        held.into_iter().for_each(|page| self.free(page));
        let info = self.memory.zone_info().expect("there was an allocation");
        // No list stays frozen behind a drain.
        let is_listed = info.zones[0].listed > 0;
        assert!(is_listed || all.is_empty(), "no list takes a page");
        all
    }

    /// Checks, while no task works and all held pages are recorded, that each page is in one place, and that held pages
    /// are charged.
    pub(super) fn check(&self) {
        assert_eq!(
            self.at_rest(),
            self.truth().free(),
            "pages at rest, and not held"
        );
        for (who, group) in self.groups.iter().enumerate().skip(1) {
            let usage = group.read(Freshness::Exact).expect("readers may flush");
            let held = self.truth().bytes(who);
            assert_eq!(
                usage.usage().value,
                held as i64,
                "bytes used by {who}, and held"
            );
        }
    }

    /// Checks, after all pages are freed, that no page is lost or present twice, and that all become one block again.
    pub(super) fn finish(&self) {
        self.check();
        let held = self.truth().places();
        let free = self.all_at_rest();
        assert!(
            held.is_disjoint(&free),
            "pages that are held were handed out"
        );
        assert_eq!(
            held.len() + free.len(),
            PAGES as usize,
            "pages held or free"
        );
        for held in std::mem::take(&mut *locked(&self.ballast)) {
            self.free(held);
        }
        let urgent = |order| PageRequest::new(order).urgent().alloc(&self.groups[0]);
        let whole = urgent(Order::MAX).expect("all are free, and buddies merge");
        assert!(urgent(Order::ZERO).is_err(), "a page more than there are");
        drop(whole);
        let info = self.memory.zone_info().expect("there was an allocation");
        assert_eq!(info.zones[0].free_blocks[Order::MAX.index()], 1);
        for (who, group) in self.groups.iter().enumerate().rev() {
            let usage = group.read(Freshness::Exact).expect("readers may flush");
            assert_eq!(usage.usage().value, 0, "bytes used by {who} at the end");
            group.set_max(0);
            assert_eq!(group.reserved(), 0, "bytes of {who} that no drain finds");
        }
    }
}

/// Properties of a requested page.
pub(super) struct Request {
    pub(super) order: Order,
    pub(super) zeroed: Zeroed,
    pub(super) is_urgent: bool,
}

impl Request {
    pub(super) fn page() -> Self {
        Self {
            order: Order::ZERO,
            zeroed: Zeroed::No,
            is_urgent: false,
        }
    }

    /// Returns a random request, mostly of one page.
    pub(super) fn some(random: &mut Random) -> Self {
        Self {
            order: Order::new([0, 0, 0, 1, 1, 2][random.below(6) as usize]),
            zeroed: match random.below(4) {
                0 => Zeroed::Yes,
                _ => Zeroed::No,
            },
            is_urgent: random.below(8) == 0,
        }
    }
}
