//! Parts that tests of pools share.

use std::sync::Arc;

use bursar::{Freshness, Group, Limits, Memory};
use bursar_datafusion::{FairShare, GroupPool};
use datafusion_common::DataFusionError;
use datafusion_execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;

/// A tenant with a limit, in a memory of its own.
pub fn tenant(max: usize) -> Group {
    let memory = Memory::host().unwrap();
    memory
        .root()
        .child("tenant", Limits::max(max as u64))
        .unwrap()
}

/// A group without a limit of its own.
pub fn child(parent: &Group, name: &str) -> Group {
    parent.child(name, Limits::none()).unwrap()
}

/// The pool of a query that takes part in a share of its tenant.
pub fn sharing(tenant: &Group) -> Arc<GroupPool> {
    let builder = GroupPool::builder(child(tenant, "query"));
    builder.share(&FairShare::new(tenant)).build()
}

/// A consumer that cannot spill.
pub fn fixed(pool: &Arc<GroupPool>, name: &str) -> MemoryReservation {
    MemoryConsumer::new(name).register(&shared(pool))
}

/// A consumer that can spill.
pub fn spiller(pool: &Arc<GroupPool>, name: &str) -> MemoryReservation {
    MemoryConsumer::new(name)
        .with_can_spill(true)
        .register(&shared(pool))
}

pub fn shared(pool: &Arc<GroupPool>) -> Arc<dyn MemoryPool> {
    Arc::clone(pool) as _
}

/// Bytes charged to a group and below.
pub fn usage(group: &Group) -> usize {
    let reading = group.read(Freshness::Exact).unwrap();
    usize::try_from(reading.usage().value).unwrap()
}

/// The text of an error, which is one that operators spill at.
pub fn exhausted(refused: Result<(), DataFusionError>) -> String {
    match refused {
        Err(DataFusionError::ResourcesExhausted(text)) => text,
        other => panic!("{other:?}"),
    }
}
