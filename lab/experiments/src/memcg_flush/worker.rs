//! The load: a task that serves one query of its tenant after the other, in more memory than the tenant's limit leaves it.
//!
//! A page counts as done when it is accessed; it is logged when it had to be faulted in.

use bursar_rig::Tasks;

use super::parameters::Parameters;
use super::subject::Subject;
use super::swing::Swing;
use super::tenant_memory::{Faults, Space, Tally};
use crate::random::Random;

/// A task of the machine.
pub(super) type Task<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Times and queries of one worker's completed updates of the counter.
///
/// An entry is one word: a worker logs millions a second, and the log displaces the load's data from the caches.
#[derive(Debug, Default)]
pub(super) struct Log {
    chunks: Vec<Vec<u64>>,
    /// Times that a limit refused a page.
    pub(super) refusals: u64,
}

const QUERY_BITS: u32 = 20;
/// Entries that are allocated at once: growing in chunks never copies the log.
const CHUNK: usize = 1 << 16;

impl Log {
    #[inline]
    pub(super) fn push(&mut self, since_start_ns: u64, query: usize) {
        let entry = since_start_ns << QUERY_BITS | query as u64;
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(entry),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(entry);
                self.chunks.push(chunk);
            }
        }
    }

    /// Returns all entries in the order of time: nanoseconds since the start, number of the query. Frees memory on the
    /// way.
    pub(super) fn into_entries(self) -> impl Iterator<Item = (u64, usize)> {
        let decode = |entry| {
            (
                entry >> QUERY_BITS,
                (entry & ((1 << QUERY_BITS) - 1)) as usize,
            )
        };
        self.chunks.into_iter().flatten().map(decode)
    }
}

/// Accesses that are computed for at once.
const ACCESS_BATCH: u64 = 16;

/// Serves queries of its tenant until `end_ns`: accesses pages, and brings in those that are missing, charged to the query.
pub(super) fn work<M: Tasks, S: Subject<M>>(
    machine: &M,
    subject: &S,
    parameters: &Parameters,
    spaces: &[Space<M, S::Charge>],
    index: u64,
    (start_ns, end_ns): (u64, u64),
) -> (Log, Tally) {
    let tree = parameters.tree();
    let swing = Swing::new(parameters);
    let tenant = (index % parameters.tenants) as usize;
    let first_query = tenant * tree.queries;
    let mut random = Random::fork(parameters.seed, index);
    let mut faults = Faults::new(machine, subject, parameters, spaces, index);
    let mut log = Log::default();
    let mut now = machine.now_ns();
    let began_ns = now;
    while now < end_ns {
        if parameters.swing_percent > 0 {
            faults.use_part(swing.part(tenant, now.saturating_sub(start_ns)));
        }
        let query = first_query + random.below(parameters.queries) as usize;
        let mut left = parameters.pages_per_query;
        while left > 0 && now < end_ns {
            let (accessed, missing) = faults.access(left.min(ACCESS_BATCH), &mut random);
            left -= accessed;
            faults.tally.accesses += accessed;
            machine.compute(accessed * parameters.compute_ns);
            let has_faulted = missing.is_some_and(|page| faults.fault(page, tree.query(query)));
            // After the update: what completed before this moment must be in every fresh read that begins after it.
            now = machine.now_ns();
            if has_faulted {
                log.push(now.saturating_sub(start_ns), query);
            }
        }
    }
    faults.tally.ran_ns = now - began_ns;
    log.refusals = faults.refusals;
    (log, faults.tally)
}
