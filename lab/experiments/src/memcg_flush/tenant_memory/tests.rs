//! Worked cases of the lists' rules, on pages without memory.

use super::deltas::Deltas;
use super::lists::{Kind, List, PageId};
use super::lruvec::{Evicted, Lruvec, PageTable, Place};
use super::reclaim::{compressed_pages, is_compressible};
use crate::memcg_flush::statistics::Stat;
use crate::random::Random;

/// A tenant whose pages hold their own number.
struct Case {
    table: PageTable,
    lruvec: Lruvec<PageId>,
}

impl Case {
    fn new(pages: usize) -> Self {
        Self {
            table: PageTable::new(pages),
            lruvec: Lruvec::new(pages),
        }
    }

    /// Faults a page in; whether it is active at once.
    fn fault(&mut self, kind: Kind, page: PageId) -> bool {
        let inserted = self.lruvec.insert(&self.table, page, kind, 0, page);
        inserted.expect("not in memory").is_active
    }

    /// Scans, and what leaves memory has left.
    fn scan(&mut self, kind: Kind, pages: u64) -> Vec<PageId> {
        let mut evicted = Vec::new();
        let mut deltas = Deltas::default();
        self.lruvec
            .scan(&self.table, kind, pages, &mut evicted, &mut deltas);
        let leave = |evicted: Evicted<PageId>| {
            let (frame, page, evicted_at) = evicted.into_parts();
            assert_eq!(frame, page, "its own frame");
            if kind == Kind::Anon {
                let to = Place::OnDevice;
                assert!(self.lruvec.leave(&self.table, page, evicted_at, to));
            }
            page
        };
        evicted.into_iter().map(leave).collect()
    }

    fn access(&self, page: PageId) {
        self.table.access(page).expect("in memory");
    }

    fn deactivate(&mut self, kind: Kind, pages: u64) -> u64 {
        let mut deltas = Deltas::default();
        self.lruvec
            .deactivate(&self.table, kind, pages, &mut deltas)
    }

    fn lens(&self, kind: Kind) -> (u64, u64) {
        let lists = &self.lruvec.lists;
        (
            lists.len(List::inactive(kind)),
            lists.len(List::active(kind)),
        )
    }
}

#[test]
fn a_page_gets_a_second_chance_and_then_none() {
    for kind in Kind::BOTH {
        let mut case = Case::new(3);
        for page in 0..3 {
            assert!(!case.fault(kind, page));
        }
        // The fault itself was an access.
        assert!(case.scan(kind, 3).is_empty());
        assert_eq!(case.lens(kind), (3, 0));
        case.access(1);
        // Accessed and referenced: 1 becomes active. The others were not accessed again.
        assert_eq!(case.scan(kind, 3), [0, 2]);
        assert_eq!(case.lens(kind), (0, 1));
        assert_eq!(case.table.place(0), Place::OnDevice);
    }
}

#[test]
fn a_scan_takes_the_oldest_first_and_no_page_twice() {
    let mut case = Case::new(8);
    for page in 0..4 {
        case.fault(Kind::File, page);
    }
    assert!(case.scan(Kind::File, 100).is_empty());
    assert_eq!(case.scan(Kind::File, 1), [0]);
    case.fault(Kind::File, 7);
    assert_eq!(case.scan(Kind::File, 2), [1, 2]);
    assert!(case.scan(Kind::Anon, 100).is_empty(), "the other list");
}

#[test]
fn a_deactivated_page_has_lost_its_accessed_bit() {
    let mut case = Case::new(1);
    case.fault(Kind::Anon, 0);
    case.scan(Kind::Anon, 1);
    case.access(0);
    case.scan(Kind::Anon, 1);
    assert_eq!(case.lens(Kind::Anon), (0, 1));
    case.access(0);
    assert_eq!(case.deactivate(Kind::Anon, 32), 1);
    assert_eq!(case.lens(Kind::Anon), (1, 0));
    assert_eq!(case.scan(Kind::Anon, 1), [0]);
}

/// Evicts 0, then so many others, and brings 0 back with two active pages of each kind in memory.
fn comes_back_after(others: u32) -> bool {
    let mut case = Case::new(64);
    for (kind, page) in [
        (Kind::Anon, 60),
        (Kind::Anon, 61),
        (Kind::File, 62),
        (Kind::File, 63),
    ] {
        case.fault(kind, page);
        case.scan(kind, 1);
        case.access(page);
        case.scan(kind, 1);
    }
    for page in 0..=others {
        case.fault(Kind::File, page);
        case.scan(Kind::File, 1);
        assert_eq!(case.scan(Kind::File, 1), [page]);
    }
    case.fault(Kind::File, 0)
}

#[test]
fn a_page_that_comes_back_soon_enough_is_active() {
    // Its own eviction counts, so the distance is one more than the evictions after it. There are four active pages.
    assert_eq!([2, 3, 4].map(comes_back_after), [true, true, false]);
}

#[test]
fn what_never_was_evicted_is_no_refault() {
    let mut case = Case::new(4);
    case.fault(Kind::Anon, 0);
    case.scan(Kind::Anon, 1);
    let mut evicted = Vec::new();
    let mut deltas = Deltas::default();
    let (table, lruvec) = (&case.table, &mut case.lruvec);
    lruvec.scan(table, Kind::Anon, 1, &mut evicted, &mut deltas);
    let (_, page, evicted_at) = evicted.pop().expect("not accessed").into_parts();
    assert_eq!(table.place(page), Place::Leaving);
    let back = lruvec.insert(table, page, Kind::Anon, 0, page);
    let back = back.expect("it is not in memory");
    assert!(!back.from.is_evicted() && !back.is_active);
    assert!(
        !lruvec.leave(table, page, evicted_at, Place::Zswapped),
        "it is back"
    );
    assert_eq!(table.place(page), Place::Accessed);
}

#[test]
fn a_page_that_left_again_is_not_taken_for_the_first_time() {
    let mut case = Case::new(1);
    let mut stamps = Vec::new();
    for _ in 0..2 {
        case.fault(Kind::Anon, 0);
        let mut evicted = Vec::new();
        for _ in 0..2 {
            let mut deltas = Deltas::default();
            case.lruvec
                .scan(&case.table, Kind::Anon, 1, &mut evicted, &mut deltas);
        }
        stamps.push(evicted.pop().expect("not accessed").into_parts().2);
    }
    let mut leave = |stamp, to| case.lruvec.leave(&case.table, 0, stamp, to);
    assert!(!leave(stamps[0], Place::Zswapped));
    assert!(leave(stamps[1], Place::OnDevice));
}

#[test]
fn who_comes_second_gets_the_frame_back() {
    let mut case = Case::new(1);
    case.fault(Kind::File, 0);
    let second = case.lruvec.insert(&case.table, 0, Kind::File, 0, 77);
    assert_eq!(second, Err(77));
}

#[test]
fn costs_are_halved_as_they_outgrow_the_lists() {
    let mut case = Case::new(400);
    for page in 0..400 {
        case.fault(Kind::Anon, page);
    }
    case.lruvec.note_cost(Kind::Anon, 3, 0);
    assert_eq!(case.lruvec.cost, [96, 0]);
    case.lruvec.note_cost(Kind::File, 0, 10);
    assert_eq!(case.lruvec.cost, [48, 5]);
}

#[test]
fn a_share_of_pages_is_compressible_and_three_of_them_fill_one() {
    let share = |percent| {
        (0..10_000)
            .filter(|&page| is_compressible(page, percent))
            .count()
    };
    assert_eq!((share(0), share(100)), (0, 10_000));
    assert!((2_800..3_200).contains(&share(30)), "{}", share(30));
    assert_eq!((0..300).map(compressed_pages).sum::<i64>(), 100);
}

#[test]
fn giving_a_page_up_forgets_it() {
    let mut case = Case::new(2);
    case.fault(Kind::Anon, 0);
    let mut deltas = Deltas::default();
    let frame = case.lruvec.give_up(&case.table, 0, &mut deltas);
    assert_eq!(frame, Some(0));
    assert_eq!(case.table.place(0), Place::Nowhere);
    assert_eq!(case.lruvec.give_up(&case.table, 0, &mut deltas), None);
    assert!(!case.fault(Kind::Anon, 0), "no refault");
}

/// The rules once more, with queues and no cleverness: newest first.
#[derive(Default)]
struct Naive {
    /// Inactive and active pages of each kind.
    lists: [[Vec<PageId>; 2]; 2],
    accessed: Vec<PageId>,
    referenced: Vec<PageId>,
    /// Evicted pages, and the age at which they were.
    shadows: Vec<(PageId, usize)>,
    age: usize,
}

impl Naive {
    fn is_resident(&self, page: PageId) -> bool {
        self.lists.iter().flatten().any(|list| list.contains(&page))
    }

    fn take(set: &mut Vec<PageId>, page: PageId) -> bool {
        let found = set.contains(&page);
        set.retain(|&one| one != page);
        found
    }

    fn fault(&mut self, kind: Kind, page: PageId) -> bool {
        let could_hold = self.lists[0][1].len()
            + self.lists[1][1].len()
            + self.lists[1 - kind as usize][0].len();
        let at = self.shadows.iter().position(|&(one, _)| one == page);
        let distance = at.map(|at| self.age - self.shadows.swap_remove(at).1);
        let is_active = distance.is_some_and(|distance| distance <= could_hold);
        self.age += usize::from(is_active);
        self.lists[kind as usize][usize::from(is_active)].insert(0, page);
        Self::take(&mut self.accessed, page);
        self.accessed.push(page);
        Self::take(&mut self.referenced, page);
        is_active
    }

    fn scan(&mut self, kind: Kind, pages: u64) -> Vec<PageId> {
        let [inactive, active] = &mut self.lists[kind as usize];
        let mut evicted = Vec::new();
        let keep = inactive.len().saturating_sub(pages as usize);
        for page in inactive.split_off(keep).into_iter().rev() {
            match (
                Self::take(&mut self.accessed, page),
                self.referenced.contains(&page),
            ) {
                (true, true) => {
                    Self::take(&mut self.referenced, page);
                    active.insert(0, page);
                    self.age += 1;
                }
                (true, false) => {
                    self.referenced.push(page);
                    inactive.insert(0, page);
                }
                (false, _) => {
                    self.shadows.push((page, self.age));
                    self.age += 1;
                    evicted.push(page);
                }
            }
        }
        evicted
    }

    fn deactivate(&mut self, kind: Kind, pages: u64) {
        let [inactive, active] = &mut self.lists[kind as usize];
        let keep = active.len().saturating_sub(pages as usize);
        for page in active.split_off(keep).into_iter().rev() {
            Self::take(&mut self.accessed, page);
            inactive.insert(0, page);
        }
    }
}

#[test]
fn random_faults_accesses_and_scans_agree_with_a_naive_model() {
    const PAGES: u64 = 40;
    // Even pages are anonymous.
    let kind_of = |page: PageId| Kind::BOTH[page as usize % 2];
    let (mut activated, mut refaulted) = (0, 0);
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut case = Case::new(PAGES as usize);
        let mut naive = Naive::default();
        for step in 0..600 {
            let page = random.below(PAGES) as PageId;
            let kind = kind_of(page);
            let pages = random.below(6);
            match random.below(8) {
                0 => assert_eq!(
                    case.scan(kind, pages),
                    naive.scan(kind, pages),
                    "{seed} {step}"
                ),
                1 => {
                    case.deactivate(kind, pages);
                    naive.deactivate(kind, pages);
                }
                _ if naive.is_resident(page) => {
                    case.access(page);
                    Naive::take(&mut naive.accessed, page);
                    naive.accessed.push(page);
                }
                _ => {
                    let is_refault = case.table.place(page).is_evicted();
                    let is_active = case.fault(kind, page);
                    assert_eq!(is_active, naive.fault(kind, page), "{seed} {step}");
                    activated += u64::from(is_active);
                    refaulted += u64::from(is_refault);
                }
            }
            for kind in Kind::BOTH {
                let expected = naive.lists[kind as usize]
                    .each_ref()
                    .map(|list| list.len() as u64);
                assert_eq!(<[u64; 2]>::from(case.lens(kind)), expected, "{seed} {step}");
            }
        }
        let mut resident = 0;
        let is_right = case.lruvec.check(&case.table, |_, stat| {
            resident += u64::from(matches!(stat, Stat::Anon | Stat::File));
        });
        assert_eq!(is_right, Ok(resident), "{seed}");
    }
    assert!(
        activated > 1000 && refaulted > activated,
        "{activated} {refaulted}"
    );
}
