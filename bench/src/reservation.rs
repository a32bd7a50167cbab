//! `reservation`: what a request costs an operator of DataFusion, through DataFusion's own API, beside its pools.
//!
//! The floor is a pool that does nothing: what is left is the call and the reservation's own count. Each thread has a consumer and
//! a reservation of its own, as operators have; they share the pool. Bursar's pools are a query's group below a tenant's, with
//! limits far away unless the scenario says otherwise.
//!
//! Scenarios of batches: *1 MiB* and *16 MiB* are asked for and given back. *ramp 64 MiB* holds 64 requests of 1 MiB. In *handed over* another
//! thread gives them back. *new query* makes a query's group and pool, asks 64 times for 1 MiB, and gives it back each time. *1,000 queries*
//! hold 1 MiB each at once. *64 MiB left* and *2 MiB left* are *1 MiB* that near to the query's limit.

use std::fmt;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bursar::{Group, Level, Limits, Memory};
use bursar_datafusion::{FairShare, GroupPool, Operators, PoolBuilder};
use datafusion_common::Result;
use datafusion_execution::memory_pool::{
    FairSpillPool, GreedyMemoryPool, MemoryPool, MemoryReservation, TrackConsumersPool,
};

use crate::account::{Account, BYTES};
use crate::contender::{Contender, THREADS_MAX, unrolled};
use crate::hand_over;
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
/// The most that a request of a batch may cost, times Greedy: scenario, threads, ratio.
pub const OF_BATCHES: [(Shape, usize, f64); 7] = [
    (Shape::Batch, 1, 1.5),
    (Shape::Batch, 2, 1.0),
    (Shape::LargeBatch, 1, 3.0),
    (Shape::LargeBatch, 2, 2.0),
    (Shape::BatchRamp, 1, 3.0),
    (Shape::BatchRamp, 2, 1.5),
    (Shape::BatchHandOver, 2, 1.5),
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
/// Bytes of a request by one that holds many columns, or builds a hash table.
const LARGE_BATCH: usize = 16 << 20;
/// Requests of batches held at once in `ramp 64 MiB`.
const BATCHES: usize = 64;
/// Queries of `1,000 queries`, of all threads together.
const QUERIES: usize = 1_000;
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
    /// [`BATCH`] is asked for and given back.
    Batch,
    /// [`LARGE_BATCH`] is asked for and given back.
    LargeBatch,
    /// 64 times [`BATCH`] is asked for, then given back one by one.
    BatchRamp,
    /// The same, given back on another thread.
    BatchHandOver,
    /// 64 times [`BATCH`] is asked for and given back in a new query.
    NewQuery,
    /// [`BATCH`] is asked for in each of many queries, then given back in each.
    ManyQueries,
    /// [`Shape::Batch`] with 64 MiB left.
    Near,
    /// [`Shape::Batch`] with 2 MiB left.
    Nearest,
}

impl Shape {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 12] = [
        Self::Hot,
        Self::Infallible,
        Self::FromNothing,
        Self::Ramp,
        Self::Batch,
        Self::LargeBatch,
        Self::BatchRamp,
        Self::BatchHandOver,
        Self::NewQuery,
        Self::ManyQueries,
        Self::Near,
        Self::Nearest,
    ];

    /// Name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Infallible => "infallible",
            Self::FromNothing => "from nothing",
            Self::Ramp => "ramp 1024",
            Self::Batch => "1 MiB",
            Self::LargeBatch => "16 MiB",
            Self::BatchRamp => "ramp 64 MiB",
            Self::BatchHandOver => "handed over",
            Self::NewQuery => "new query",
            Self::ManyQueries => "1,000 queries",
            Self::Near => "64 MiB left",
            Self::Nearest => "2 MiB left",
        }
    }

    fn held(self) -> usize {
        if self == Self::FromNothing { 0 } else { HELD }
    }

    /// The limit of the query, bytes: all that both threads hold, and what is left.
    fn limit(self) -> usize {
        match self {
            Self::Near => THREADS_MAX * HELD + (64 << 20),
            Self::Nearest => THREADS_MAX * HELD + (2 << 20),
            _ => FAR_AWAY,
        }
    }

    fn is_of_pages(self) -> bool {
        matches!(
            self,
            Self::Hot | Self::Infallible | Self::FromNothing | Self::Ramp
        )
    }
}

/// All heats of this benchmark.
pub fn heats() -> Vec<Heat> {
    let heat = |shape: Shape| Heat {
        scenario: shape.name().to_owned(),
        depth: DEPTH,
        threads: match shape {
            Shape::BatchHandOver => &[2],
            _ => &[1, 2],
        },
        racers: racers(shape),
    };
    Shape::ALL.map(heat).into()
}

/// Contenders.
fn racers(shape: Shape) -> Vec<Box<dyn Racer>> {
    match shape {
        Shape::NewQuery => {
            let tenant = tenant_of(&Memory::host().expect("a memory on this machine"));
            let made = AtomicUsize::new(0);
            let ours = move || -> Pool {
                // Relaxed: names only have to differ.
                let name = format!("query-{}", made.fetch_add(1, Ordering::Relaxed));
                GroupPool::builder(query_of(&tenant, &name, FAR_AWAY)).build()
            };
            let contenders: [(&'static str, MakePool); 3] = [
                (FLOOR, Box::new(|| Arc::new(Nothing))),
                (BURSAR, Box::new(ours)),
                (
                    "Greedy",
                    Box::new(|| Arc::new(GreedyMemoryPool::new(FAR_AWAY))),
                ),
            ];
            let racer = |(name, make)| Box::new(NewQuery { name, make }) as Box<dyn Racer>;
            contenders.into_iter().map(racer).collect()
        }
        Shape::ManyQueries => {
            let tenant = tenant_of(&Memory::host().expect("a memory on this machine"));
            let ours = |at: usize| -> Pool {
                GroupPool::builder(query_of(&tenant, &format!("query-{at}"), FAR_AWAY)).build()
            };
            let greedy: Pool = Arc::new(GreedyMemoryPool::new(FAR_AWAY));
            let nothing: Pool = Arc::new(Nothing);
            vec![
                ManyQueries::racer(FLOOR, |_| nothing.clone()),
                ManyQueries::racer(BURSAR, ours),
                ManyQueries::racer("Greedy", |_| greedy.clone()),
            ]
        }
        _ => {
            let racer = |(name, pool, spills): (&str, Pool, Spills)| {
                let contender =
                    Contender::per_thread(name, || Reservation::register(&pool, spills));
                Box::new(Requesting { contender, shape }) as Box<dyn Racer>
            };
            pools(shape).into_iter().map(racer).collect()
        }
    }
}

type Pool = Arc<dyn MemoryPool>;
type MakePool = Box<dyn Fn() -> Pool + Send + Sync>;

fn pools(shape: Shape) -> Vec<(&'static str, Pool, Spills)> {
    let top = NonZeroUsize::new(5).expect("five is not zero");
    let limit = shape.limit();
    let greedy = || GreedyMemoryPool::new(limit);
    let fair = || FairSpillPool::new(limit);
    let ours = |set: fn(PoolBuilder) -> PoolBuilder| set(query(limit).0).build();
    let sharing = || {
        let (pool, share) = query(limit);
        pool.share(&share).build()
    };
    let mut pools: Vec<(&'static str, Pool, Spills)> = vec![
        (FLOOR, Arc::new(Nothing), Spills::No),
        (BURSAR, ours(|pool| pool), Spills::No),
        ("bursar share", sharing(), Spills::Yes),
        ("Greedy", Arc::new(greedy()), Spills::No),
        ("FairSpill", Arc::new(fair()), Spills::Yes),
    ];
    if limit != FAR_AWAY {
        // A share of what is left would refuse a batch.
        pools.retain(|(_, _, spills)| *spills == Spills::No);
    }
    if shape.is_of_pages() {
        let together = |pool: PoolBuilder| pool.operators(Operators::Together);
        let each = |pool: PoolBuilder| pool.operators(Operators::Each);
        pools.extend([
            ("bursar together", ours(together) as Pool, Spills::No),
            ("bursar each", ours(each), Spills::No),
            (
                "bursar early spills",
                ours(|pool| pool.spill_from(Level::High)),
                Spills::Yes,
            ),
            ("bursar share, who cannot spill", sharing(), Spills::No),
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
        ]);
    }
    pools
}

/// A query's pool to be, and the share of its tenant.
fn query(limit: usize) -> (PoolBuilder, FairShare) {
    let tenant = tenant_of(&Memory::host().expect("a memory on this machine"));
    let query = query_of(&tenant, "query", limit);
    (GroupPool::builder(query), FairShare::new(&tenant))
}

fn tenant_of(memory: &Memory) -> Group {
    let tenant = memory.root().child("tenant", Limits::max(FAR_AWAY as u64));
    tenant.expect("a new group")
}

fn query_of(tenant: &Group, name: &str, limit: usize) -> Group {
    let query = tenant.child(name, Limits::max(limit as u64));
    query.expect("a new group")
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
        if self.shape == Shape::BatchHandOver {
            let account = self.contender.of_thread(0)[0];
            return hand_over::race(account, (BATCH, BATCHES), cpus, slice);
        }
        on_cpus(cpus, |thread, meeting| {
            let account = self.contender.of_thread(thread)[0];
            let meet = || meeting.join();
            let held = account.charge(self.shape.held());
            let spent = match self.shape {
                Shape::Hot | Shape::FromNothing => slice.run(meet, || hot(account, BYTES)),
                Shape::Infallible => slice.run(meet, || infallible(account)),
                Shape::Ramp => slice.run(meet, || ramp(account, BYTES, RAMP)),
                Shape::BatchRamp => slice.run(meet, || ramp(account, BATCH, BATCHES)),
                Shape::LargeBatch => slice.run(meet, || hot(account, LARGE_BATCH)),
                _ => slice.run(meet, || hot(account, BATCH)),
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
fn ramp(account: &Reservation, bytes: usize, count: usize) -> u64 {
    let bytes = black_box(bytes);
    for _ in 0..count {
        account.charge(bytes);
    }
    for _ in 0..count {
        account.uncharge(bytes);
    }
    2 * count as u64
}

/// The first requests of a query.
struct NewQuery {
    name: &'static str,
    make: MakePool,
}

impl Racer for NewQuery {
    fn name(&self) -> &str {
        self.name
    }

    fn race(&self, cpus: &[usize], slice: Slice) -> Spent {
        on_cpus(cpus, |_, meeting| {
            slice.run(
                || meeting.join(),
                || {
                    let pool = (self.make)();
                    let account = Reservation::register(&pool, Spills::No);
                    for _ in 0..BATCHES {
                        account.charge(BATCH);
                        account.uncharge(BATCH);
                    }
                    2 * BATCHES as u64
                },
            )
        })
    }

    fn check(&self) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// Many queries that hold memory at once.
struct ManyQueries {
    name: &'static str,
    /// For each thread.
    queries: Vec<Vec<Reservation>>,
}

impl ManyQueries {
    fn racer(name: &'static str, pool: impl Fn(usize) -> Pool) -> Box<dyn Racer> {
        let each = QUERIES / THREADS_MAX;
        let query = |at| Reservation::register(&pool(at), Spills::No);
        let of_thread = |thread: usize| (thread * each..(thread + 1) * each).map(query).collect();
        Box::new(Self {
            name,
            queries: (0..THREADS_MAX).map(of_thread).collect(),
        })
    }
}

impl Racer for ManyQueries {
    fn name(&self) -> &str {
        self.name
    }

    fn race(&self, cpus: &[usize], slice: Slice) -> Spent {
        on_cpus(cpus, |thread, meeting| {
            // With one thread all queries are its own.
            let threads = if cpus.len() == 1 {
                0..THREADS_MAX
            } else {
                thread..thread + 1
            };
            let queries = || self.queries[threads.clone()].iter().flatten();
            slice.run(
                || meeting.join(),
                || {
                    queries().for_each(|query| {
                        query.charge(BATCH);
                    });
                    queries().for_each(|query| query.uncharge(BATCH));
                    2 * queries().count() as u64
                },
            )
        })
    }

    fn check(&self) -> std::result::Result<(), String> {
        match self.queries[0][0].outstanding() {
            0 => Ok(()),
            bytes => Err(format!("{bytes} bytes are still reserved")),
        }
    }
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
