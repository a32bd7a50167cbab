//! State that the queries of an engine, and of a tenant, share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar::{Group, Memory};
use bursar_arbiter::{Arbiter, Bias, Shapes};
use datafusion::execution::context::SessionContext;

use super::repeat::Repeat;
use crate::history::History;
use crate::tenant_session::Rules;

/// Tenants whose estimates are corrected.
const BIASES_MAX: usize = 4096;

/// State that all queries of an engine share.
pub(super) struct Engine {
    pub(super) shared: SessionContext,
    pub(super) arbiter: Arbiter,
    pub(super) disk: Option<Memory>,
    pub(super) history: Option<History>,
    #[cfg(feature = "real-bytes")]
    pub(super) real: Option<crate::real::RealBytes>,
    #[cfg(feature = "real-bytes")]
    pub(super) ends_by_real_bytes: bool,
    pub(super) rules: Rules,
    pub(super) repeat: Repeat,
    pub(super) hold_first: usize,
    pub(super) patience: Option<Duration>,
    pub(super) percent: u32,
    pub(super) estimate: Box<dyn Fn(u64) -> u64 + Send + Sync>,
    pub(super) shapes: Mutex<Shapes>,
    /// By the paths of tenants' groups.
    pub(super) biases: Mutex<BTreeMap<String, Bias>>,
}

impl Engine {
    pub(super) fn shapes(&self) -> MutexGuard<'_, Shapes> {
        self.shapes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Corrects an estimate of a tenant.
    pub(super) fn corrected(&self, tenant: &Group, estimate: u64) -> u64 {
        let biases = self.biases();
        let bias = biases.get(&tenant.path());
        bias.map_or(estimate, |bias| bias.correct(estimate))
    }

    /// Notes what a query of a tenant took that was estimated.
    pub(super) fn record_estimate(&self, tenant: &Group, estimated: u64, took: u64) {
        let path = tenant.path();
        let mut biases = self.biases();
        if biases.len() >= BIASES_MAX && !biases.contains_key(&path) {
            // Any will do: what it knows is learned again in a few queries.
            biases.pop_first();
        }
        biases.entry(path).or_default().record(estimated, took);
    }

    fn biases(&self) -> MutexGuard<'_, BTreeMap<String, Bias>> {
        self.biases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tenant of a [`TenantEngine`](super::TenantEngine). Keeps the tenant's group as a handle does.
#[derive(Clone)]
pub struct Tenant {
    pub(super) engine: Arc<Engine>,
    pub(super) group: Group,
    pub(super) disk: Option<Group>,
    pub(super) score: i32,
}
