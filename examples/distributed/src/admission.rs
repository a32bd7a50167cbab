//! The coordinator: it admits each query once, for all workers.
//!
//! Its tree has the limits of one worker, because each query takes as much on each. Admission on each worker would be hold and wait: two
//! queries could each have memory on one worker, and wait for the other's.

use std::sync::atomic::{AtomicUsize, Ordering};

use bursar::{Group, Limits, Memory};
use bursar_arbiter::{Arbiter, Ask, Policy, Seen};
use datafusion::error::{DataFusionError, Result};

use crate::load::{TENANTS, WORKER_MAX};

/// Tries of a query that is refused memory.
const TRIES_MAX: usize = 3;

pub struct Coordinator {
    /// `None` for pools that admit everybody.
    arbiter: Option<Arbiter>,
    /// The tenants' groups, and the bytes that a query of each takes on a worker.
    tenants: [(Group, u64); TENANTS.len()],
    /// Partitions that a query wishes.
    width: usize,
    number: AtomicUsize,
}

/// Terms on which a query runs on each worker.
pub struct Part {
    /// Path of its group.
    pub path: String,
    /// Bytes that it was granted.
    pub bytes: u64,
    /// Partitions.
    pub width: usize,
}

impl Coordinator {
    pub fn new(
        is_admitted: bool,
        width: usize,
        peaks: [u64; TENANTS.len()],
    ) -> std::result::Result<Self, Box<dyn std::error::Error>> {
        let memory = Memory::builder().max(WORKER_MAX).build()?;
        let tenant = |at: usize| {
            let (name, max) = TENANTS[at];
            let group = memory.root().child(name, Limits::max(max))?;
            Ok::<_, bursar::CreateError>((group, peaks[at]))
        };
        Ok(Self {
            arbiter: is_admitted.then(|| Arbiter::new(&memory, Policy::default())),
            tenants: [tenant(0)?, tenant(1)?],
            width,
            number: AtomicUsize::new(0),
        })
    }

    /// Runs a query of a tenant. If it is refused memory, it runs again, and the last time alone in its tenant: its rows are collected, so
    /// the client has none yet. Returns the number of tries.
    pub async fn query<R>(&self, tenant: usize, run: impl Fn(Part) -> R) -> Result<usize>
    where
        R: Future<Output = Result<()>>,
    {
        // Relaxed: only unique.
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let mut tries = 1;
        loop {
            let name = format!("{}-{number}-{tries}", ["big", "small"][tenant]);
            let outcome = match &self.arbiter {
                Some(arbiter) => self.admitted(arbiter, tenant, &name, tries, &run).await,
                None => {
                    let part = Part {
                        path: format!("{}/{name}", TENANTS[tenant].0),
                        bytes: u64::MAX,
                        width: self.width,
                    };
                    run(part).await
                }
            };
            match outcome {
                Err(error) if self.arbiter.is_some() && tries < TRIES_MAX && is_refusal(&error) => {
                    tries += 1;
                }
                outcome => return outcome.map(|()| tries),
            }
        }
    }

    /// Waits until the query may run, and runs it as wide as it was granted.
    async fn admitted<R>(
        &self,
        arbiter: &Arbiter,
        tenant: usize,
        name: &str,
        tries: usize,
        run: &impl Fn(Part) -> R,
    ) -> Result<()>
    where
        R: Future<Output = Result<()>>,
    {
        let (group, peak) = &self.tenants[tenant];
        let width = u32::try_from(self.width).unwrap_or(u32::MAX);
        let seen = Seen { peak: *peak, width };
        let ask = Ask::new(group, name).width(1..=width).like(seen);
        let ask = match tries {
            1 => ask,
            // Of several partitions each needs a part, so one needs least.
            TRIES_MAX => ask.alone().width(1..=1),
            _ => ask.least(2 * peak, 0),
        };
        let admitted = arbiter.admit(ask).await;
        let grant = admitted.map_err(|error| DataFusionError::External(Box::new(error)))?;
        // The query uses its memory on the workers, and the arbiter sees it here.
        let charge = loop {
            match grant.try_charge(grant.bytes()) {
                Ok(charge) => break charge,
                // It was made smaller, for one that waits.
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let part = Part {
            path: grant.group().path().trim_start_matches('/').to_owned(),
            bytes: charge.bytes(),
            width: grant.width() as usize,
        };
        run(part).await
    }
}

/// Whether a query was refused memory. Engines send errors of their workers as text.
fn is_refusal(error: &DataFusionError) -> bool {
    let is_text = || {
        let text = error.to_string();
        text.contains("Resources exhausted") || text.contains("ResourcesExhausted")
    };
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) || is_text()
}
