//! Three levels of groups that threads charge in every way while others read; every reading is compared with the truth.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bursar::{Charge, Freshness, Group, Limits, Memory};
use bursar_check::model::{Before, Flow};

use super::world::check_conservation;
use super::{ROWS, Random, Short, hop, memory};

pub const TENANT_MAX: u64 = 4 << 20;
pub const DEPARTMENT_MAX: u64 = 3 << 20;
const DEPARTMENTS: usize = 2;
const QUERIES: usize = 3;
/// Charges that a thread holds, and that wait to be returned by another thread.
const HELD_MAX: usize = 12;

/// A group without children, and what threads did to it.
pub struct Query {
    pub group: Group,
    pub truth: Flow,
}

/// Charges by the position of their query.
pub type Held = Vec<(usize, Charge)>;

/// A tenant, its departments and their queries.
pub struct Site {
    pub memory: Memory,
    pub tenant: Group,
    pub departments: Vec<Group>,
    pub queries: Vec<Query>,
    pub rows: Flow,
    /// Rows that were counted in other groups of the memory.
    pub rows_elsewhere: AtomicU64,
    /// Charges for other threads to return.
    exchange: Mutex<Held>,
}

impl Site {
    pub fn new() -> Self {
        let memory = memory();
        let tenant = memory.root().child("tenant", Limits::max(TENANT_MAX));
        let tenant = tenant.unwrap();
        let mut departments = Vec::new();
        let mut queries = Vec::new();
        for department in 0..DEPARTMENTS {
            let name = format!("d{department}");
            let department = tenant.make_max(&name, DEPARTMENT_MAX);
            for query in 0..QUERIES {
                let name = format!("q{query}");
                queries.push(Query {
                    group: department.make(&name),
                    truth: Flow::default(),
                });
            }
            departments.push(department);
        }
        Self {
            memory,
            tenant,
            departments,
            queries,
            rows: Default::default(),
            rows_elsewhere: AtomicU64::new(0),
            exchange: Mutex::default(),
        }
    }

    /// One random step of a thread.
    pub fn step(&self, random: &mut Random, held: &mut Held) {
        let at = random.below(self.queries.len());
        match random.below(32) {
            0..10 => self.charge(at, random, held),
            10..13 => {
                let Query { group, truth } = &self.queries[at];
                let charge = |bytes| group.engine().try_charge_nowait(bytes);
                let charged = truth.attempt(1 + random.below(60_000) as u64, charge);
                held.extend(charged.ok().map(|charge| (at, charge)));
            }
            13..16 => self.add(&self.queries[at].group),
            16 => self.move_one(at, random, held),
            17 | 18 => self.hand_over(random, held),
            19 | 20 => self.watch(random),
            // On a machine that lets it: the thread goes on elsewhere.
            21 => hop(random),
            22 if random.below(16) == 0 => self.memory.tick(),
            _ => {}
        }
        while held.len() > HELD_MAX || !held.is_empty() && random.below(3) == 0 {
            let (at, charge) = held.swap_remove(random.below(held.len()));
            self.give_back(at, charge);
        }
    }

    fn charge(&self, at: usize, random: &mut Random, held: &mut Held) {
        let most = [6_000, 60_000, 400_000][random.below(8).saturating_sub(5)];
        let Query { group, truth } = &self.queries[at];
        let charged = truth.attempt(1 + random.below(most) as u64, |bytes| {
            group.try_charge(bytes)
        });
        held.extend(charged.ok().map(|charge| (at, charge)));
    }

    pub fn add(&self, group: &Group) {
        self.rows.change(1, || group.add(ROWS, 1));
    }

    fn move_one(&self, to: usize, random: &mut Random, held: &mut Held) {
        if held.is_empty() {
            return;
        }
        let one = random.below(held.len());
        let (from, charge) = &mut held[one];
        let (source, target) = (&self.queries[*from], &self.queries[to]);
        let bytes = charge.bytes();
        let mut move_it = || {
            let moved = || charge.move_to(&target.group);
            source.truth.move_to(&target.truth, bytes, moved)
        };
        if *from != to && move_it().is_ok() {
            *from = to;
        }
    }

    /// Leaves a charge to others, and returns one that another thread left.
    fn hand_over(&self, random: &mut Random, held: &mut Held) {
        let other = {
            let mut exchange = self.exchange.lock().unwrap();
            if !held.is_empty() {
                exchange.push(held.swap_remove(random.below(held.len())));
            }
            let waiting = exchange.len();
            (waiting > HELD_MAX).then(|| exchange.swap_remove(random.below(waiting)))
        };
        if let Some((at, charge)) = other {
            self.give_back(at, charge);
        }
    }

    /// Leaves all to others: the thread ends.
    pub fn leave(&self, held: Held) {
        self.exchange.lock().unwrap().extend(held);
    }

    /// Returns what threads left behind.
    pub fn clear(&self) {
        let left = std::mem::take(&mut *self.exchange.lock().unwrap());
        left.into_iter()
            .for_each(|(at, charge)| self.give_back(at, charge));
    }

    fn give_back(&self, at: usize, charge: Charge) {
        let bytes = charge.bytes();
        self.queries[at].truth.give_back(bytes, || drop(charge));
    }

    /// A group and the truths of the queries at or below it.
    pub fn part(&self, at: usize) -> (&Group, impl Iterator<Item = &Flow> + Clone) {
        let all = self.queries.len();
        let (group, below) = match at {
            0 => (&self.tenant, 0..all),
            _ if at <= DEPARTMENTS => {
                let first = (at - 1) * QUERIES;
                (&self.departments[at - 1], first..first + QUERIES)
            }
            _ => {
                let query = at - 1 - DEPARTMENTS;
                (&self.queries[query].group, query..query + 1)
            }
        };
        (group, self.queries[below].iter().map(|query| &query.truth))
    }

    /// Reads something while others work, and compares.
    pub fn watch(&self, random: &mut Random) {
        let (group, truths) = self.part(random.below(1 + DEPARTMENTS + self.queries.len()));
        let error = random.below(1 << 20) as u64;
        let freshness = match random.below(3) {
            0 => Freshness::Exact,
            1 => Freshness::UsageWithin(error),
            _ => Freshness::Cached,
        };
        let (rows_done, _) = self.rows.added();
        let before = Before::of(truths.clone());
        let usage = group.read(freshness).unwrap();
        let reserved = group.reserved() as i64;
        let (lo, hi) = before.bounds(truths);
        let (_, rows_begun) = self.rows.added();
        let (rows, usage) = (usage.get(ROWS).value, usage.usage());
        let seen =
            format!("{group:?} {freshness:?}: {usage:?}, {lo}..={hi} charged, {reserved} reserved");
        assert!(reserved >= lo, "{seen}");
        assert!(usage.lo <= hi && usage.hi >= lo, "{seen}");
        assert!(rows <= rows_begun, "{seen}: invented rows");
        let error = match freshness {
            Freshness::Exact => 0,
            Freshness::UsageWithin(_) => error as i64,
            _ => return,
        };
        let value = usage.value;
        assert!(value - error <= hi && value + error >= lo, "{seen}");
        let is_whole = freshness == Freshness::Exact && group == &self.tenant;
        assert!(!is_whole || rows >= rows_done, "{seen}: lost rows");
    }

    /// Compares everything exactly while no thread works.
    pub fn check(&self) {
        for at in 0..1 + DEPARTMENTS + self.queries.len() {
            let (group, truths) = self.part(at);
            let usage = check_conservation(group).usage().value;
            let truth: i64 = truths.map(Flow::value).sum();
            assert_eq!(usage, truth, "{group:?}");
        }
        let root = check_conservation(&self.memory.root());
        let elsewhere = self.rows_elsewhere.load(Ordering::SeqCst) as i64;
        let rows = self.rows.value() + elsewhere;
        assert_eq!(root.get(ROWS).value, rows);
    }

    /// Returns everything. All that is still reserved must be stock, and none of it may be lost.
    pub fn end(&self) {
        self.clear();
        self.check();
        let usage = self.tenant.used();
        assert_eq!(usage, 0);
        for at in 0..1 + DEPARTMENTS + self.queries.len() {
            self.part(at).0.set_max(0);
        }
        assert_eq!(self.memory.reserved(), 0, "lost stock");
    }
}
