//! Budgets that are equal to limits: no charge within its budget may be refused.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use bursar::{Charge, ChargeError, Group, Limits};
use bursar_machine::host::allowed_cpus;

use crate::Stage;
use crate::common::site::Held;
use crate::common::{Leaves, Random, Short, cpus, crew, hop, memory};

/// Bytes that may be charged to a group: a token is taken before each charge, and returned after each return.
struct Budget(AtomicI64);

impl Budget {
    fn new(bytes: u64) -> Self {
        Self(AtomicI64::new(bytes as i64))
    }

    fn take(&self, bytes: u64) -> bool {
        let bytes = bytes as i64;
        let rest = |left: i64| (left >= bytes).then_some(left - bytes);
        let taken = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, rest);
        taken.is_ok()
    }

    fn put(&self, bytes: u64) {
        self.0.fetch_add(bytes as i64, Ordering::SeqCst);
    }
}

/// A tenant and queries whose limits are their budgets.
struct Budgets {
    tenant: (Group, Budget),
    queries: Vec<(Group, Budget)>,
    refused: AtomicU64,
}

impl Budgets {
    const TENANT: u64 = 2 << 20;
    const QUERY: u64 = 900 << 10;

    /// A charge to a query, if the budgets allow it; then no limit may refuse it.
    fn charge(&self, query: usize, bytes: u64) -> Option<Charge> {
        let (group, budget) = &self.queries[query];
        if !budget.take(bytes) {
            return None;
        }
        if !self.tenant.1.take(bytes) {
            budget.put(bytes);
            return None;
        }
        let charged = group.try_charge(bytes);
        Some(charged.unwrap_or_else(|error| panic!("refused within the budget: {error}")))
    }

    fn give_back(&self, query: usize, charge: Charge) {
        let bytes = charge.bytes();
        drop(charge);
        self.tenant.1.put(bytes);
        self.queries[query].1.put(bytes);
    }

    fn step(&self, random: &mut Random, held: &mut Held) {
        let query = random.below(self.queries.len());
        let most = [5_000, 100_000, 700_000][random.below(3)];
        let bytes = 1 + random.below(most) as u64;
        match random.below(8) {
            0 if !held.is_empty() => {
                let one = random.below(held.len());
                let (from, charge) = &mut held[one];
                let (target, budget) = &self.queries[query];
                if *from != query && budget.take(charge.bytes()) {
                    if let Err(error) = charge.move_to(target) {
                        panic!("not moved within the budget: {error}");
                    }
                    self.queries[*from].1.put(charge.bytes());
                    *from = query;
                }
            }
            1 => hop(random),
            _ => match self.charge(query, bytes) {
                Some(charge) => held.push((query, charge)),
                None if held.is_empty() => std::thread::yield_now(),
                None => {
                    let (query, charge) = held.swap_remove(random.below(held.len()));
                    self.give_back(query, charge);
                }
            },
        }
        if held.len() > 20 {
            let (query, charge) = held.swap_remove(random.below(held.len()));
            self.give_back(query, charge);
        }
    }

    /// Asks for what never fits: somewhere it is reserved for a moment, and given up.
    fn ask_too_much(&self, greedy: &Group, random: &mut Random) {
        let refused = match random.below(3) {
            0 => self.queries[0].0.try_charge(Self::QUERY + 1),
            1 => self.tenant.0.try_charge(Self::TENANT + 1),
            _ => greedy.try_charge(Self::TENANT + 1),
        };
        match refused {
            Err(ChargeError::LimitReached(_)) => self.refused.fetch_add(1, Ordering::SeqCst),
            other => panic!("above the limit: {other:?}"),
        };
    }

    /// Lowers a limit by what nobody else may charge then, and raises it again.
    fn change(&self, random: &mut Random) {
        let at = random.below(1 + self.queries.len());
        let ((group, budget), max) = match at {
            0 => (&self.tenant, Self::TENANT),
            _ => (&self.queries[at - 1], Self::QUERY),
        };
        let bytes = random.below(max as usize) as u64;
        if !budget.take(bytes) {
            return;
        }
        let lowered = max - bytes;
        group.set_max(lowered);
        for _ in 0..random.below(50) {
            let reserved = group.reserved();
            assert!(
                reserved <= lowered,
                "{group:?}: {reserved} reserved, limit {lowered}"
            );
            std::thread::yield_now();
        }
        group.set_max(max);
        budget.put(bytes);
    }
}

/// Threads share budgets that are equal to the limits, so every refusal would be false.
#[test]
fn budgets_that_fit_limits_exactly() {
    let stage = Stage::begin();
    let memory = memory();
    let tenant = memory.root().child("tenant", Limits::max(Budgets::TENANT));
    let tenant = tenant.unwrap();
    let query = |index| {
        let group = tenant.child(format!("q{index}"), Limits::max(Budgets::QUERY));
        (group.unwrap(), Budget::new(Budgets::QUERY))
    };
    // Reserves more than the tenant has, and gives it up.
    let greedy = tenant.make("greedy");
    let budgets = Budgets {
        queries: (0..3).map(query).collect(),
        tenant: (tenant, Budget::new(Budgets::TENANT)),
        refused: AtomicU64::new(0),
    };
    let mut epochs = 0;
    while epochs < 2 || !stage.is_over() {
        let charging = AtomicUsize::new(4);
        let threads: [AtomicUsize; 4] = Default::default();
        let work = |thread: u64| {
            let mut random = stage.random(epochs << 8 | thread);
            if let Some(number) = threads.get(thread as usize) {
                number.store(cpus::this_thread() as usize, Ordering::SeqCst);
                let _leaves = Leaves(&charging);
                let mut held = Held::new();
                (0..6_000).for_each(|_| budgets.step(&mut random, &mut held));
                let left = held.into_iter();
                return left.for_each(|(query, charge)| budgets.give_back(query, charge));
            }
            while charging.load(Ordering::SeqCst) > 0 {
                budgets.ask_too_much(&greedy, &mut random);
                (0..random.below(8)).for_each(|_| std::thread::yield_now());
            }
        };
        let mut random = stage.random(epochs << 8 | 101);
        let cpus = allowed_cpus();
        crew(5, work, || {
            budgets.change(&mut random);
            let thread = threads[random.below(4)].load(Ordering::SeqCst);
            if thread != 0 {
                // In the middle of whatever it does. It may have ended meanwhile.
                cpus::move_to(thread as i32, cpus[random.below(cpus.len())]);
            }
            let queries = budgets.queries.iter().map(|query| (query, Budgets::QUERY));
            for ((group, _), max) in queries.chain([(&budgets.tenant, Budgets::TENANT)]) {
                let reserved = group.reserved();
                assert!(reserved <= max, "{group:?}: {reserved} of {max}");
            }
            std::thread::yield_now();
        });
        let usage = memory.used();
        assert!(usage == 0, "{usage} bytes are charged after all returns");
        epochs += 1;
    }
    let refused = budgets.tenant.0.events().refused;
    assert!(
        refused == budgets.refused.load(Ordering::SeqCst),
        "{refused} refusals were counted, {:?} were seen",
        budgets.refused
    );
    budgets.tenant.0.set_max(0);
    assert!(memory.reserved() == 0, "lost stock");
}
