//! Random requests of several pools, tenants and operators, beside plain sums.

use std::sync::Arc;

use bursar::{Group, Level, Limits, Memory};
use bursar_datafusion::{FairShare, GroupPool, History, Operators};
use bursar_rig::random::Random;
use datafusion_execution::memory_pool::{MemoryPool, MemoryReservation};

use crate::common::{fixed, spiller, usage};

const LIMIT: u64 = 4 << 20;

/// Random places and sizes.
struct Numbers(Random);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0.below(end as u64) as usize
    }
}

/// A pool and what it has reserved.
struct Query {
    group: Group,
    pool: Arc<GroupPool>,
    operators: Operators,
    reservations: Vec<MemoryReservation>,
}

impl Query {
    fn new(tenant: &Group, share: &FairShare, history: &History, name: &str, kind: usize) -> Self {
        let group = tenant.child(name, Limits::none()).unwrap();
        let operators = [Operators::Together, Operators::ByName, Operators::Each][kind % 3];
        let mut builder = GroupPool::builder(group.clone())
            .operators(operators)
            .history(history);
        if kind & 4 > 0 {
            builder = builder.share(share);
        }
        if kind & 8 > 0 {
            builder = builder.spill_from(Level::High);
        }
        Self {
            group,
            pool: builder.build(),
            operators,
            reservations: Vec::new(),
        }
    }

    /// One operation; what a request that is refused leaves is as it was.
    fn step(&mut self, numbers: &mut Numbers) {
        let bytes = 1 << numbers.below(20);
        if self.reservations.is_empty() || numbers.below(20) == 0 {
            let (kind, at) = (numbers.below(3), numbers.below(4));
            let name = format!("operator-{kind}[{at}]");
            match numbers.below(3) {
                0 => self.reservations.push(fixed(&self.pool, &name)),
                1 => self.reservations.push(spiller(&self.pool, &name)),
                _ => {
                    let merge = format!("operator-{kind}Merge[{at}]");
                    self.reservations.push(spiller(&self.pool, &name));
                    self.reservations.push(fixed(&self.pool, &merge));
                }
            }
            return;
        }
        let at = numbers.below(self.reservations.len());
        let reservation = &mut self.reservations[at];
        let size = reservation.size();
        match numbers.below(11) {
            0..=4 => {
                if reservation.try_grow(bytes).is_err() {
                    assert_eq!(reservation.size(), size);
                    // As an operator that spills.
                    reservation.free();
                }
            }
            5 => reservation.grow(bytes / 16),
            6 => reservation.shrink(numbers.below(size + 1)),
            7 => {
                let _ = reservation.try_resize(bytes);
            }
            8 => {
                let part = reservation.split(numbers.below(size + 1));
                self.reservations.push(part);
            }
            9 => {
                let taken = reservation.take();
                self.reservations.push(taken);
            }
            _ => drop(self.reservations.swap_remove(at)),
        }
    }

    /// Bytes that the reservations have, and that are kept for sorts.
    fn reserved(&self) -> usize {
        let held: usize = self.reservations.iter().map(MemoryReservation::size).sum();
        held + self.pool.report().kept as usize
    }

    /// The pool, the group and each operator's group have what the reservations say.
    fn check(&self) {
        let now = || (self.pool.reserved(), usage(&self.group), self.reserved());
        // Threads of other queries may take bytes that are kept for a sort, between two of these looks. Only this thread keeps more,
        // so the three agree soon.
        let agree = |(pool, group, reservations): (usize, usize, usize)| {
            pool == reservations && group == reservations
        };
        let looks = std::iter::repeat_with(|| {
            std::thread::yield_now();
            now()
        });
        let settled = agree(now()) || looks.take(10_000).any(agree);
        assert!(settled, "pool, group, reservations: {:?}", now());
        if self.operators != Operators::ByName {
            return;
        }
        for operator in self.pool.report().operators {
            let mine = self.reservations.iter().filter(|reservation| {
                reservation.consumer().name().split('[').next() == Some(&*operator.name)
            });
            let expected: usize = mine.map(MemoryReservation::size).sum();
            assert_eq!(operator.reserved, expected as u64, "{}", operator.name);
        }
    }
}

struct Tenant {
    group: Group,
    share: FairShare,
}

fn tenants(memory: &Memory) -> Vec<Tenant> {
    let make = |name| {
        let group = memory.root().child(name, Limits::max(LIMIT)).unwrap();
        let share = FairShare::new(&group);
        Tenant { group, share }
    };
    ["a", "b"].map(make).into()
}

fn seed() -> u64 {
    let seed = std::env::var("BURSAR_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    seed.unwrap_or(1)
}

#[test]
fn one_thread_at_any_time() {
    let seed = seed();
    eprintln!("BURSAR_SEED={seed}");
    let mut numbers = Numbers(Random::new(seed));
    let memory = Memory::host().unwrap();
    let tenants = tenants(&memory);
    let history = History::new(1000);
    let mut queries: Vec<(usize, Query)> = Vec::new();
    for step in 0..20_000_usize {
        if queries.len() < 2 || queries.len() < 6 && numbers.below(100) == 0 {
            let at = numbers.below(2);
            let (tenant, name) = (&tenants[at], format!("query-{step}"));
            let query = Query::new(
                &tenant.group,
                &tenant.share,
                &history,
                &name,
                numbers.below(16),
            );
            queries.push((at, query));
        }
        let at = numbers.below(queries.len());
        queries[at].1.step(&mut numbers);
        if numbers.below(500) == 0 {
            queries.swap_remove(at);
        }
        if numbers.below(300) == 0 {
            let max = LIMIT / 4 * (1 + numbers.below(8) as u64);
            tenants[numbers.below(2)].group.set_max(max);
        }
        if step % 16 == 0 {
            queries.iter().for_each(|(_, query)| query.check());
            for (at, tenant) in tenants.iter().enumerate() {
                let of_tenant = queries.iter().filter(|(of, _)| *of == at);
                let expected: usize = of_tenant.map(|(_, query)| query.reserved()).sum();
                assert_eq!(usage(&tenant.group), expected, "step {step}");
            }
        }
    }
    drop(queries);
    all_is_back(&memory, &tenants, &history);
}

#[test]
fn four_threads_at_once() {
    let memory = Memory::host().unwrap();
    let tenants = tenants(&memory);
    let history = History::new(1000);
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (tenant, history) = (&tenants[thread % 2], &history);
            scope.spawn(move || {
                let mut numbers = Numbers(Random::fork(seed(), thread as u64));
                for round in 0..24 {
                    let name = format!("query-{thread}-{round}");
                    let (share, kind) = (&tenant.share, numbers.below(16));
                    let mut query = Query::new(&tenant.group, share, history, &name, kind);
                    (0..1_000).for_each(|_| query.step(&mut numbers));
                    query.check();
                }
            });
        }
    });
    assert_eq!(history.finished().len(), 4 * 24);
    all_is_back(&memory, &tenants, &history);
}

fn all_is_back(memory: &Memory, tenants: &[Tenant], history: &History) {
    assert_eq!(usage(&memory.root()), 0);
    assert!(history.finished().iter().all(|query| {
        query.reserved == 0
            && query
                .operators
                .iter()
                .all(|operator| operator.reserved == 0)
    }));
    for tenant in tenants {
        assert!(tenant.group.children().is_empty());
        tenant.group.set_max(LIMIT);
        // And of the share nothing is left: one alone may have it all.
        let query = tenant.group.child("last", Limits::none()).unwrap();
        let pool = GroupPool::builder(query).share(&tenant.share).build();
        spiller(&pool, "last").try_grow(LIMIT as usize).unwrap();
    }
}
