//! The memory of the tenants: pages that are accessed, fault, grow old, are evicted and come back.
//!
//! | part | file |
//! |---|---|
//! | the inactive and the active lists | `lists.rs` |
//! | pages in memory, second chance, refaults | `lruvec.rs` |
//! | the pages of each kind that a round scans, from statistics that may be old | `balance.rs` |
//! | a round of reclaim, with its flush sites, swap and zswap | `reclaim.rs` |
//! | faults and charges | `fault.rs` |
//! | statistics of a batch | `deltas.rs` |
//! | costs of steps | `costs.rs` |
//! | measurements of tasks | `tally.rs` |
//! | the audit of the books after a run | `audit.rs` |
//!
//! Invariants: a page in memory is on one list of its tenant, has a frame, and is charged to the query whose fault brought it; a
//! lock is held for [`balance::SWAP_CLUSTER_MAX`] pages at most, and nothing is charged, returned or added to a statistic under it.
//!
//! Left out of the kernel's reclaim: dirty pages of files and their writeback, read-ahead, the charge for compressed
//! memory, one list for each group (here one for each tenant, because the tenant's limit is the one that is met), huge
//! pages.

mod audit;
mod balance;
mod costs;
mod deltas;
mod fault;
mod lists;
mod lruvec;
mod reclaim;
mod tally;

use bursar_machine::Lock;
use bursar_rig::Tasks;

use self::lists::{Kind, PageId};
use self::lruvec::{Lruvec, PageTable};
use super::parameters::Parameters;
use super::subject::Subject;
use crate::random::Random;

pub(super) use audit::audit;
pub(super) use fault::Faults;
pub(super) use reclaim::reclaim_repeatedly;
pub(super) use tally::{Tally, report};

/// Contents of a page's frame.
struct Frame<M: Tasks, C> {
    memory: M::PageMemory,
    charge: C,
}

/// A frame charged to a subject.
type FrameOf<M, S> = Frame<M, <S as Subject<M>>::Charge>;

/// Frees frames together, as the release of a batch of pages does.
fn release<M: Tasks, S: Subject<M>>(subject: &S, frames: Vec<FrameOf<M, S>>) {
    let charge = |frame: FrameOf<M, S>| {
        drop(frame.memory);
        frame.charge
    };
    subject.uncharge(frames.into_iter().map(charge).collect());
}

/// A value on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

/// The memory of one tenant: pages of files that its workers share, then the anonymous pages of each worker.
pub(super) struct Space<M: Tasks, C: Send + 'static> {
    table: PageTable,
    lruvec: Padded<M::Spin<Lruvec<Frame<M, C>>>>,
    file_pages: u64,
    anon_pages: u64,
}

impl<M: Tasks, C: Send + 'static> Space<M, C> {
    fn new(parameters: &Parameters, workers: u64) -> Self {
        let file_share = parameters.working_set_pages * parameters.file_percent / 100;
        let file_pages = workers * file_share;
        let anon_pages = parameters.working_set_pages - file_share;
        let pages = (file_pages + workers * anon_pages) as usize;
        Self {
            table: PageTable::new(pages),
            lruvec: Padded(Lock::new(Lruvec::new(pages))),
            file_pages,
            anon_pages,
        }
    }

    fn kind(&self, page: PageId) -> Kind {
        if u64::from(page) < self.file_pages {
            Kind::File
        } else {
            Kind::Anon
        }
    }

    /// The first anonymous page of a worker, the `nth` of its tenant.
    fn first_anon(&self, nth: u64) -> u64 {
        self.file_pages + nth * self.anon_pages
    }

    /// Chooses a page for a worker, the `nth` of its tenant, that uses the first `anon_pages` of its anonymous pages.
    /// Most choices go to the hot part of its pages, the others anywhere.
    fn choose(
        &self,
        parameters: &Parameters,
        nth: u64,
        anon_pages: u64,
        random: &mut Random,
    ) -> PageId {
        let is_file = random.below(100) < parameters.file_percent;
        let (first, pages) = match is_file && self.file_pages > 0 || anon_pages == 0 {
            true => (0, self.file_pages),
            false => (self.first_anon(nth), anon_pages),
        };
        let is_hot = random.below(100) < parameters.hot_access_percent;
        let among = match is_hot {
            true => (pages * parameters.hot_page_percent / 100).max(1),
            false => pages,
        };
        (first + random.below(among)) as PageId
    }
}

/// The memory of all tenants, for workers that belong to them in turn.
pub(super) fn spaces<M: Tasks, C: Send + 'static>(parameters: &Parameters) -> Vec<Space<M, C>> {
    let tenants = parameters.tenants;
    let workers_of = |tenant| (parameters.workers + tenants - 1 - tenant) / tenants;
    (0..tenants)
        .map(|tenant| Space::new(parameters, workers_of(tenant)))
        .collect()
}

#[cfg(test)]
mod tests;
