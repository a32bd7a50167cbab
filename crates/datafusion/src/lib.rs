//! DataFusion's memory pools as Bursar's groups.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::fmt;
use std::sync::Arc;

use bursar::{Freshness, Group};
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::memory_pool::{MemoryPool, MemoryReservation};

/// A group as a memory pool.
#[derive(Debug)]
pub struct GroupPool {
    group: Group,
}

impl GroupPool {
    /// The pool of a group.
    pub fn new(group: Group) -> Arc<Self> {
        Arc::new(Self { group })
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }
}

/// Pools of groups.
pub trait GroupExt {
    /// The pool that is this group.
    fn pool(&self) -> Arc<GroupPool>;
}

impl GroupExt for Group {
    fn pool(&self) -> Arc<GroupPool> {
        GroupPool::new(self.clone())
    }
}

impl fmt::Display for GroupPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.group)
    }
}

impl MemoryPool for GroupPool {
    fn name(&self) -> &str {
        "bursar"
    }

    fn grow(&self, _reservation: &MemoryReservation, additional: usize) {
        self.group.charge(additional).forget();
    }

    fn shrink(&self, _reservation: &MemoryReservation, shrink: usize) {
        self.group.uncharge(shrink);
    }

    fn try_grow(&self, _reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let charged = self.group.try_charge(additional);
        let charge =
            charged.map_err(|error| DataFusionError::ResourcesExhausted(error.to_string()))?;
        charge.forget();
        Ok(())
    }

    fn reserved(&self) -> usize {
        let reading = self.group.read(Freshness::Exact);
        reading.map_or(0, |reading| {
            usize::try_from(reading.usage().value).unwrap_or(0)
        })
    }
}
