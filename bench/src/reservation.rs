//! `reservation`: what a request costs an operator of DataFusion, through DataFusion's own API, beside its pools.
//!
//! The floor is a pool that does nothing: what is left is the call and the reservation's own count. Each thread has a consumer and
//! a reservation of its own, as operators have; they share the pool. Bursar's pools are a query's group below a tenant's, with
//! limits far away.

use std::fmt;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bursar::{Level, Limits, Memory};
use bursar_datafusion::{FairShare, GroupPool, Operators, PoolBuilder};
use datafusion_common::Result;
use datafusion_execution::memory_pool::{
    FairSpillPool, GreedyMemoryPool, MemoryPool, MemoryReservation, TrackConsumersPool,
};

use crate::account::{Account, BYTES};
use crate::contender::{Contender, unrolled};
use crate::pools::{Reservation, Spills};
use crate::rounds::{Heat, Racer};
use crate::series::BURSAR;
use crate::timing::{Slice, Spent, on_cpus};

/// The pool that does nothing.
pub const FLOOR: &str = "no-op pool";
/// Contenders that may cost at most 15 % more than that: the target.
pub const NEAR_THE_FLOOR: [&str; 4] = [
    BURSAR,
    "bursar together",
    "bursar each",
    "bursar early spills",
];
/// Below the root: tenant, query, operator.
pub const DEPTH: usize = 3;

/// Operations of a block of all but `ramp`, which does twice `RAMP`.
const BLOCK: u64 = 4096;
/// Requests held at once in `ramp`.
const RAMP: usize = 1024;
/// Bytes that a consumer holds meanwhile: neither nothing, nor a whole number of anybody's pieces.
const HELD: usize = (1 << 20) + (20 << 10);
/// Bytes of a request by a consumer that holds batches of 8,192 rows.
const BATCH: usize = 1 << 20;
/// A limit that no request comes near, bytes.
const FAR_AWAY: usize = 1 << 50;

/// Pattern of the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A page is asked for and given back, again and again, by one who holds a MiB.
    Hot,
    /// The same with the requests that cannot fail.
    Infallible,
    /// The same by one who holds nothing else.
    FromNothing,
    /// 1,024 pages are asked for, then given back one by one.
    Ramp,
    /// A MiB is asked for and given back: more than a CPU's stock, unless it is set.
    Batch,
}

impl Shape {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 5] = [
        Self::Hot,
        Self::Infallible,
        Self::FromNothing,
        Self::Ramp,
        Self::Batch,
    ];

    /// Name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Infallible => "infallible",
            Self::FromNothing => "from nothing",
            Self::Ramp => "ramp 1024",
            Self::Batch => "1 MiB",
        }
    }

    fn held(self) -> usize {
        if self == Self::FromNothing { 0 } else { HELD }
    }
}

/// All heats of this benchmark.
pub fn heats() -> Vec<Heat> {
    let heat = |shape: Shape| Heat {
        scenario: shape.name().to_owned(),
        depth: DEPTH,
        threads: &[1, 2],
        racers: racers(shape),
    };
    Shape::ALL.map(heat).into()
}

/// Contenders.
fn racers(shape: Shape) -> Vec<Box<dyn Racer>> {
    let mut pools = pools();
    if shape == Shape::Batch {
        let host = Memory::builder().stock_max(8 << 20).build();
        let (pool, _) = query_of(&host.expect("a memory on this machine"));
        pools.push(("bursar, 8 MiB of stock", pool.build(), Spills::No));
    }
    let racer = |(name, pool, spills): (&str, Arc<dyn MemoryPool>, Spills)| {
        let contender = Contender::per_thread(name, || Reservation::register(&pool, spills));
        Box::new(Requesting { contender, shape }) as Box<dyn Racer>
    };
    pools.into_iter().map(racer).collect()
}

fn pools() -> Vec<(&'static str, Arc<dyn MemoryPool>, Spills)> {
    let top = NonZeroUsize::new(5).expect("five is not zero");
    let greedy = || GreedyMemoryPool::new(FAR_AWAY);
    let fair = || FairSpillPool::new(FAR_AWAY);
    let of = |operators| ours(|pool| pool.operators(operators));
    let sharing = || {
        let (pool, share) = query();
        pool.share(&share).build()
    };
    vec![
        (FLOOR, Arc::new(Nothing), Spills::No),
        (BURSAR, of(Operators::ByName), Spills::No),
        ("bursar together", of(Operators::Together), Spills::No),
        ("bursar each", of(Operators::Each), Spills::No),
        (
            "bursar early spills",
            ours(|pool| pool.spill_from(Level::High)),
            Spills::Yes,
        ),
        ("bursar share", sharing(), Spills::Yes),
        ("bursar share, who cannot spill", sharing(), Spills::No),
        ("Greedy", Arc::new(greedy()), Spills::No),
        ("FairSpill", Arc::new(fair()), Spills::Yes),
        (
            "Track(no-op)",
            Arc::new(TrackConsumersPool::new(Nothing, top)),
            Spills::No,
        ),
        (
            "Track(Greedy)",
            Arc::new(TrackConsumersPool::new(greedy(), top)),
            Spills::No,
        ),
        (
            "Track(FairSpill)",
            Arc::new(TrackConsumersPool::new(fair(), top)),
            Spills::Yes,
        ),
    ]
}

fn ours(set: impl FnOnce(PoolBuilder) -> PoolBuilder) -> Arc<GroupPool> {
    set(query().0).build()
}

/// A query's pool to be, and the share of its tenant.
fn query() -> (PoolBuilder, FairShare) {
    query_of(&Memory::host().expect("a memory on this machine"))
}

fn query_of(memory: &Memory) -> (PoolBuilder, FairShare) {
    let limits = Limits::max(FAR_AWAY as u64);
    let tenant = memory.root().child("tenant", limits).expect("a new group");
    let query = tenant.child("query", limits).expect("a new group");
    (GroupPool::builder(query), FairShare::new(&tenant))
}

/// The floor.
#[derive(Debug)]
struct Nothing;

impl fmt::Display for Nothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FLOOR)
    }
}

impl MemoryPool for Nothing {
    fn name(&self) -> &str {
        FLOOR
    }

    fn grow(&self, _reservation: &MemoryReservation, _additional: usize) {}

    fn shrink(&self, _reservation: &MemoryReservation, _shrink: usize) {}

    fn try_grow(&self, _reservation: &MemoryReservation, _additional: usize) -> Result<()> {
        Ok(())
    }

    fn reserved(&self) -> usize {
        0
    }
}

struct Requesting {
    contender: Contender<Reservation>,
    shape: Shape,
}

impl Racer for Requesting {
    fn name(&self) -> &str {
        &self.contender.name
    }

    fn race(&self, cpus: &[usize], slice: Slice) -> Spent {
        on_cpus(cpus, |thread, meeting| {
            let account = self.contender.of_thread(thread)[0];
            let meet = || meeting.join();
            let held = account.charge(self.shape.held());
            let spent = match self.shape {
                Shape::Hot | Shape::FromNothing => slice.run(meet, || hot(account, BYTES)),
                Shape::Infallible => slice.run(meet, || infallible(account)),
                Shape::Ramp => slice.run(meet, || ramp(account)),
                Shape::Batch => slice.run(meet, || hot(account, BATCH)),
            };
            account.uncharge(held);
            spent
        })
    }

    fn check(&self) -> std::result::Result<(), String> {
        match self.contender.of_thread(0)[0].outstanding() {
            0 => Ok(()),
            bytes => Err(format!("{bytes} bytes are still reserved")),
        }
    }
}

#[inline(never)]
fn hot(account: &Reservation, bytes: usize) -> u64 {
    let bytes = black_box(bytes);
    for _ in 0..BLOCK / 2 / 4 {
        unrolled!([0 1 2 3] |_number| {
            let token = account.charge(bytes);
            account.uncharge(token);
        });
    }
    BLOCK
}

#[inline(never)]
fn infallible(account: &Reservation) -> u64 {
    let bytes = black_box(BYTES);
    for _ in 0..BLOCK / 2 / 4 {
        unrolled!([0 1 2 3] |_number| {
            account.grow(bytes);
            account.uncharge(bytes);
        });
    }
    BLOCK
}

#[inline(never)]
fn ramp(account: &Reservation) -> u64 {
    let bytes = black_box(BYTES);
    for _ in 0..RAMP {
        account.charge(bytes);
    }
    for _ in 0..RAMP {
        account.uncharge(bytes);
    }
    2 * RAMP as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds;
    use crate::timing::Effort;
    use bursar_machine::host;

    #[test]
    fn everything_is_given_back() {
        // `run` fails if anything is still reserved anywhere.
        let series = rounds::run(&heats(), &host::allowed_cpus(), Effort::smoke()).unwrap();
        assert!(series.iter().all(|series| series.samples.len() == 1));
    }
}
