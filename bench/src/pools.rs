//! DataFusion's pools as contenders.

use std::num::NonZeroUsize;
use std::sync::Arc;

use datafusion_execution::memory_pool::{
    FairSpillPool, GreedyMemoryPool, MemoryConsumer, MemoryPool, MemoryReservation,
    TrackConsumersPool,
};

use crate::account::Account;
use crate::contender::Contender;

/// DataFusion's pools. Each thread has its own consumer and reservation, as operators have; they share the pool.
pub fn all() -> Vec<Contender<Reservation>> {
    const SIZE: usize = 1 << 50;
    let top = NonZeroUsize::new(5).expect("five is not zero");
    let entry = |name: &str, pool: Arc<dyn MemoryPool>, spills: Spills| {
        Contender::per_thread(name, || Reservation::register(&pool, spills))
    };
    let greedy = GreedyMemoryPool::new(SIZE);
    let fair = FairSpillPool::new(SIZE);
    let tracked = TrackConsumersPool::new(GreedyMemoryPool::new(SIZE), top);
    vec![
        entry("DataFusion Greedy", Arc::new(greedy), Spills::No),
        entry("DataFusion FairSpill", Arc::new(fair), Spills::Yes),
        entry("DataFusion Track(Greedy)", Arc::new(tracked), Spills::No),
    ]
}

/// A reservation of a DataFusion pool, grown and shrunk as its operators do.
pub struct Reservation {
    reservation: MemoryReservation,
    pool: Arc<dyn MemoryPool>,
}

impl Reservation {
    /// Registers one more consumer with `pool`.
    pub fn register(pool: &Arc<dyn MemoryPool>, spills: Spills) -> Self {
        let consumer = MemoryConsumer::new("bench").with_can_spill(spills == Spills::Yes);
        Self {
            reservation: consumer.register(pool),
            pool: Arc::clone(pool),
        }
    }

    /// A request that cannot fail.
    #[inline(always)]
    pub fn grow(&self, bytes: usize) {
        self.reservation.grow(bytes);
    }
}

/// Whether a consumer says that it can spill: FairSpillPool shares among those that do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spills {
    Yes,
    No,
}

impl Account for Reservation {
    type Token = usize;

    #[inline(always)]
    fn charge(&self, bytes: usize) -> usize {
        self.reservation
            .try_grow(bytes)
            .expect("the limits are far away");
        bytes
    }

    #[inline(always)]
    fn uncharge(&self, token: usize) {
        self.reservation.shrink(token);
    }

    fn outstanding(&self) -> i64 {
        self.pool.reserved() as i64
    }
}
