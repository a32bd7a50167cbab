//! Queries that ask an arbiter, charge what they were promised, and end in any order, while others give up, resize and ask again.
//!
//! All grants end, and all asks fit then: an ask that never ends was lost or not woken. Grants never exceed a limit, and promised bytes
//! can be charged.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bursar::Charge;
use bursar_arbiter::{Arbiter, Ask, Grant, Order, Policy};
use bursar_machine::Machine;
use bursar_rig::Watched;

use super::books::{Books, NO_LIMIT, run};
use super::executor::{self, Patience};
use crate::model::GroupIndex;
use crate::random::Random;

const MAX: u64 = 1000;
const NARROW: u64 = 600;
/// Greatest ask that fits everywhere, alone.
const BYTES_MAX: u64 = 500;

/// An arbiter, and the bytes that its tasks know to be theirs: granted, or charged by a grant that has ended.
struct Admitting<M: Machine> {
    books: Books<M>,
    arbiter: Arbiter<M>,
    // Not the machine's words: counting costs no step.
    theirs: [AtomicU64; 3],
}

impl<M: Machine> Admitting<M> {
    fn new(machine: &M) -> Self {
        let books = Books::new(machine, MAX, &[(0, NARROW), (0, NO_LIMIT)]);
        let mut policy = Policy::default();
        policy.passes_max = 2;
        policy.narrow_after = Duration::ZERO;
        Self {
            arbiter: Arbiter::new(&books.memory, policy),
            books,
            theirs: [0, 0, 0].map(AtomicU64::new),
        }
    }

    // Relaxed, here and below: one thread of the host runs all tasks.
    fn gained(&self, tenant: GroupIndex, bytes: u64) {
        for at in [0, tenant] {
            self.theirs[at].fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn lost(&self, tenant: GroupIndex, bytes: u64) {
        for at in [0, tenant] {
            self.theirs[at].fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn check(&self) -> impl FnMut() + use<'_, M> {
        || {
            for (at, max) in [(0, MAX), (1, NARROW)] {
                let theirs = self.theirs[at].load(Ordering::Relaxed);
                assert!(theirs <= max, "{theirs} bytes are granted of {max}");
            }
        }
    }

    fn ask(
        &self,
        tenant: GroupIndex,
        name: String,
        bytes: u64,
        score: i32,
        patience: Patience,
    ) -> Option<Grant<M>> {
        let ask = Ask::new(&self.books.groups[tenant], name)
            .least(bytes, 0)
            .wanted(bytes)
            .score(score);
        let mut admit = self.arbiter.admit(ask);
        let granted = executor::wait::<M, _>(patience, |context| {
            Future::poll(Pin::new(&mut admit), context)
        })?;
        let grant = granted.expect("it fits when others end");
        self.gained(tenant, bytes);
        Some(grant)
    }

    /// Charges a part of what was promised.
    fn charge(&self, grant: &Grant<M>, bytes: u64) -> Charge<M> {
        grant.group().try_charge(bytes).expect("it was promised")
    }

    /// Ends a grant of `bytes` and its charge, in one order or the other.
    fn end(
        &self,
        tenant: GroupIndex,
        (grant, bytes): (Grant<M>, u64),
        charge: Charge<M>,
        charge_first: bool,
    ) {
        let charged = charge.bytes();
        if charge_first {
            drop(charge);
            self.lost(tenant, bytes);
            drop(grant);
        } else {
            self.lost(tenant, bytes - charged);
            drop(grant);
            self.lost(tenant, charged);
            drop(charge);
        }
    }
}

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64) {
    let admitting = Admitting::new(machine);
    let all = &admitting;
    let query = move |mut random: Random| {
        for round in 0..1 + random.below(2) {
            let tenant = 1 + random.below(2) as usize;
            let name = format!("q{}-{round}", random.number());
            let patience = match random.below(6) {
                0 => Patience::None,
                1 => Patience::UntilWoken,
                _ => Patience::Endless,
            };
            let bytes = 1 + BYTES_MAX / 2 + random.below(BYTES_MAX / 2);
            let Some(grant) = all.ask(tenant, name, bytes, random.below(2) as i32, patience) else {
                continue;
            };
            let charge = all.charge(&grant, 1 + random.below(bytes));
            let mut left = bytes;
            if random.below(3) == 0 {
                left = charge.bytes() + (bytes - charge.bytes()) / 2;
                all.lost(tenant, bytes - left);
                let resized = grant.resize(left).expect("it is made smaller");
                // Stock of the group may keep it larger.
                all.gained(tenant, resized - left);
                left = resized;
            }
            all.end(tenant, (grant, left), charge, random.below(2) == 0);
        }
    };
    let change = move |mut random: Random| match random.below(3) {
        0 => {
            let order = Order {
                precedence: 1,
                ..Order::default()
            };
            all.arbiter.set_order(&all.books.groups[2], order);
            all.arbiter.set_order(&all.books.groups[2], None);
        }
        1 => all.arbiter.tick(),
        _ => (),
    };
    run(
        machine,
        seed,
        all.check(),
        tasks![query, query, query, change],
    );
    let shown = admitting.arbiter.admissions();
    assert!(
        shown.grants.is_empty() && shown.waiting.is_empty(),
        "{shown:?}"
    );
    assert_eq!(
        shown.counts.admitted, shown.counts.ended,
        "{:?}",
        shown.counts
    );
    admitting.books.check_empty();
}
