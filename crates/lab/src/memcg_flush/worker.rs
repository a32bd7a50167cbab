//! The load: a task that maps, touches and frees pages in one query after the other.

use std::collections::VecDeque;

use bursar::Charge;
use bursar_machine::Tasks;

use super::parameters::Parameters;
use super::statistics::Stat;
use super::subject::{PAGE_SIZE, Subject};
use super::swing::Swing;
use crate::published::GroupIndex;
use crate::random::Random;

/// When one worker's updates of the counter completed, and where.
///
/// An entry is one word: a worker logs millions a second, and what the log touches the load cannot keep in its caches.
#[derive(Debug, Default)]
pub(super) struct Log {
    chunks: Vec<Vec<u64>>,
    /// Times that a limit refused a page.
    pub(super) refusals: u64,
}

const QUERY_BITS: u32 = 20;
/// Entries that are made room for at once: growing in chunks never copies what is logged.
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

    /// All entries in order of time: nanoseconds since the start, number of the query. Memory is given back on the way.
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

/// One mapped page.
struct Page<M: Tasks> {
    group: GroupIndex,
    memory: M::PageMemory,
    _charge: Charge<M>,
}

/// Maps and frees pages until `end_ns`.
pub(super) fn work<M: Tasks, S: Subject<M>>(
    machine: &M,
    subject: &S,
    parameters: &Parameters,
    index: u64,
    (start_ns, end_ns): (u64, u64),
) -> Log {
    let tree = parameters.tree();
    let swing = Swing::new(parameters);
    let mut random = Random::fork(parameters.seed, index);
    let mut pages: VecDeque<Page<M>> = VecDeque::new();
    let mut log = Log::default();
    let mut now = machine.now_ns();
    while now < end_ns {
        let query = swing.choose(&mut random, now.saturating_sub(start_ns));
        for _ in 0..parameters.pages_per_query {
            if pages.len() as u64 >= parameters.working_set_pages {
                free_oldest(subject, &mut pages);
            }
            if parameters.compute_ns > 0 {
                machine.compute(parameters.compute_ns);
            }
            let mapped = map(machine, subject, tree.query(query), &mut pages, &mut log);
            // After the update: what completed before this moment must be in every fresh read that begins after it.
            now = machine.now_ns();
            if mapped {
                log.push(now.saturating_sub(start_ns), query);
            }
            if now >= end_ns {
                break;
            }
        }
    }
    while !pages.is_empty() {
        free_oldest(subject, &mut pages);
    }
    log
}

/// Maps one page. Where the tenant's limit refuses it, frees pages until it does not; `false` if that is not enough.
fn map<M: Tasks, S: Subject<M>>(
    machine: &M,
    subject: &S,
    group: GroupIndex,
    pages: &mut VecDeque<Page<M>>,
    log: &mut Log,
) -> bool {
    let charge = loop {
        match subject.groups()[group].try_charge(PAGE_SIZE as usize) {
            Ok(charge) => break charge,
            Err(_) if pages.is_empty() => return false,
            Err(_) => {
                log.refusals += 1;
                free_oldest(subject, pages);
            }
        }
    };
    let memory = machine.touch_page(group as u64);
    subject.add(group, Stat::Anon, 1);
    subject.add(group, Stat::Pgfault, 1);
    pages.push_back(Page {
        group,
        memory,
        _charge: charge,
    });
    true
}

fn free_oldest<M: Tasks, S: Subject<M>>(subject: &S, pages: &mut VecDeque<Page<M>>) {
    if let Some(page) = pages.pop_front() {
        drop(page.memory);
        subject.add(page.group, Stat::Anon, -1);
    }
}
