//! Prepared statements: DataFusion keeps their plans, and the group pays for them until they are deallocated.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::LogicalPlan;

use super::TenantSqlError;
use super::depth::Shape;
use super::values::References;
use crate::engine_version::PART_BYTES;

/// Bytes charged for each byte of the text, which is in names and literals of the plan.
const TEXT_BYTES: usize = 4;

/// Bytes charged for a statement that is kept.
pub(crate) fn prepared_bytes(text: &str, shape: Shape) -> usize {
    text.len() * TEXT_BYTES + shape.parts * PART_BYTES
}

pub(super) struct Prepared {
    pub(super) max: usize,
    charged: Mutex<BTreeMap<String, Kept>>,
}

/// A statement that is kept.
struct Kept {
    _charge: MemoryReservation,
    references: Arc<References>,
}

impl Prepared {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            charged: Mutex::default(),
        }
    }

    /// Charges a statement that is about to be kept.
    pub(super) fn charge(
        &self,
        name: &str,
        text: &str,
        (plan, shape): (&LogicalPlan, Shape),
        pool: &Arc<dyn MemoryPool>,
    ) -> Result<(), TenantSqlError> {
        let references = Arc::new(References::of(plan)?);
        let mut charged = self.charged();
        if self.max == 0 {
            let what = "PREPARE".to_owned();
            return Err(TenantSqlError::Forbidden { what });
        }
        if charged.contains_key(name) {
            let error = format!("Prepared statement '{name}' already exists");
            return Err(DataFusionError::Execution(error).into());
        }
        if charged.len() >= self.max {
            return Err(TenantSqlError::TooManyPrepared { max: self.max });
        }
        let reservation = MemoryConsumer::new("PREPARE").register(pool);
        reservation.try_grow(prepared_bytes(text, shape))?;
        let kept = Kept {
            _charge: reservation,
            references,
        };
        charged.insert(name.to_owned(), kept);
        Ok(())
    }

    /// The references to parameters in a statement that is kept.
    pub(super) fn references(&self, name: &str) -> Option<Arc<References>> {
        Some(self.charged().get(name)?.references.clone())
    }

    /// Returns the charge of a statement that is kept no more.
    pub(super) fn uncharge(&self, name: &str) {
        self.charged().remove(name);
    }

    fn charged(&self) -> MutexGuard<'_, BTreeMap<String, Kept>> {
        self.charged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
