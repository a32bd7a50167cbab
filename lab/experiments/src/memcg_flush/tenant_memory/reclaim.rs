//! Reclaim: one round over the lists of a tenant, by a worker that met the limit (direct) or by a task that does nothing else
//! (proactive).
//!
//! A round follows the kernel's order: flush (`prepare_scan_control`), decide from the statistics as they are now,
//! isolate under the lock, then unmap, compress or write, and uncharge without it. Writes are asynchronous: submitting
//! them costs time, no task waits for the device, and the page is free at once. Pages of files are clean and dropped.

use bursar_kernel::stats::GroupIndex;
use bursar_machine::Lock;
use bursar_rig::Tasks;

use super::balance::{DEF_PRIORITY, Known, SWAP_CLUSTER_MAX, plan};
use super::costs::{COMPRESS_NS, COMPRESSED_IN_ONE, ISOLATE_NS, SUBMIT_NS, UNMAP_NS};
use super::deltas::Deltas;
use super::lists::{Kind, PageId};
use super::lruvec::{Evicted, Place};
use super::{FrameOf, Space, Tally, release};
use crate::memcg_flush::parameters::{Parameters, Site};
use crate::memcg_flush::statistics::Stat;
use crate::memcg_flush::subject::Subject;
use crate::memcg_flush::tree::Tree;
use crate::random::Random;

/// Statistics that a round looks at, in the order of [`known_of`].
const LOOKED_AT: [Stat; 6] = [
    Stat::InactiveAnon,
    Stat::InactiveFile,
    Stat::ActiveAnon,
    Stat::ActiveFile,
    Stat::WorkingsetRefaultAnon,
    Stat::WorkingsetRefaultFile,
];

/// A tenant whose pages are reclaimed.
pub(super) struct Reclaimed<'a, M: Tasks, S: Subject<M>> {
    pub(super) machine: &'a M,
    pub(super) subject: &'a S,
    pub(super) parameters: &'a Parameters,
    pub(super) space: &'a Space<M, S::Charge>,
    pub(super) tenant: GroupIndex,
}

/// Returns whether the content of a page is worth compressing: a property of the page, the same at each eviction.
pub(super) fn is_compressible(page: PageId, zswap_percent: u64) -> bool {
    Random::new(u64::from(page)).below(100) < zswap_percent
}

/// Returns the pages of memory that this page accounts for when it is compressed: every third one for itself and two
/// others.
pub(super) fn compressed_pages(page: PageId) -> i64 {
    i64::from(page.is_multiple_of(COMPRESSED_IN_ONE))
}

impl<M: Tasks, S: Subject<M>> Reclaimed<'_, M, S> {
    /// Passes a flush site; the time goes to the tally. If the flush fails, the site goes on with the numbers that
    /// there are, as the kernel's do.
    pub(super) fn pass(&self, site: Site, tally: &mut Tally) {
        let began_ns = self.machine.now_ns();
        _ = self.subject.flush_at(self.tenant, site);
        tally.flush_ns += self.machine.now_ns() - began_ns;
    }

    /// Runs one round; returns how many pages it freed. It looks at [`SWAP_CLUSTER_MAX`] pages, and after rounds in
    /// vain at twice as many each time, up to all there are. It ends when it has as many as that to free.
    pub(super) fn round(&self, in_vain: u32, tally: &mut Tally) -> u64 {
        let began_ns = self.machine.now_ns();
        self.pass(self.parameters.reclaim_site, tally);
        let mut deltas = Deltas::default();
        let (evicted, scanned) = self.isolate(in_vain, &mut deltas);
        let freed = evicted.len() as u64;
        self.evict(evicted, scanned, &mut deltas, tally);
        deltas.apply(self.subject);
        tally.rounds_ns.push(self.machine.now_ns() - began_ns);
        freed
    }

    fn isolate(&self, in_vain: u32, deltas: &mut Deltas) -> (Vec<Evicted<FrameOf<M, S>>>, u64) {
        let shown = self.subject.seen(self.tenant, &LOOKED_AT);
        let [shown_anon, shown_file] =
            [Stat::WorkingsetRefaultAnon, Stat::WorkingsetRefaultFile].map(|stat| shown.get(stat));
        // Sums of per-CPU parts that were not brought together at one moment may be negative, and are shown as 0.
        let size = |stat| u64::try_from(shown.get(stat)).unwrap_or(0);
        let table = &self.space.table;
        let mut lruvec = self.space.lruvec.0.lock();
        let seen = std::mem::replace(&mut lruvec.refaults_seen, [shown_anon, shown_file]);
        let known = Known {
            inactive: [size(Stat::InactiveAnon), size(Stat::InactiveFile)],
            active: [size(Stat::ActiveAnon), size(Stat::ActiveFile)],
            has_refaulted: [seen[0] != shown_anon, seen[1] != shown_file],
            cost: lruvec.cost,
        };
        let priority = DEF_PRIORITY.saturating_sub(in_vain);
        let plan = plan(&known, priority);
        // How much in all the lists themselves say, as they do in the kernel.
        let pages = lruvec.lists.all() >> priority;
        let mut evicted = Vec::new();
        let mut scanned = 0;
        for _ in 0..pages.div_ceil(SWAP_CLUSTER_MAX).max(1) {
            for kind in Kind::BOTH {
                let share = plan.scan[kind as usize];
                if plan.deactivates[kind as usize] && share > 0 {
                    let moved = lruvec.deactivate(table, kind, share, deltas);
                    lruvec.note_cost(kind, 0, moved);
                    self.machine.compute(moved * ISOLATE_NS);
                    // Deactivated pages are looked at under another hold, as in the kernel.
                    drop(lruvec);
                    lruvec = self.space.lruvec.0.lock();
                }
            }
            let mut looked_at = 0;
            for kind in Kind::BOTH {
                let before = evicted.len();
                let share = plan.scan[kind as usize];
                let of_kind = lruvec.scan(table, kind, share, &mut evicted, deltas);
                let gained = (evicted.len() - before) as u64;
                lruvec.note_cost(kind, 0, of_kind - gained);
                looked_at += of_kind;
            }
            self.machine.compute(looked_at * ISOLATE_NS);
            scanned += looked_at;
            if evicted.len() as u64 >= SWAP_CLUSTER_MAX {
                break;
            }
            drop(lruvec);
            lruvec = self.space.lruvec.0.lock();
        }
        (evicted, scanned)
    }

    /// Unmaps the isolated pages, compresses or writes the anonymous ones, and uncharges all.
    fn evict(
        &self,
        evicted: Vec<Evicted<FrameOf<M, S>>>,
        scanned: u64,
        deltas: &mut Deltas,
        tally: &mut Tally,
    ) {
        let mut busy_ns = scanned * UNMAP_NS;
        let mut leaving = Vec::new();
        let mut frames = Vec::new();
        for evicted in evicted {
            let (kind, group) = (evicted.kind, evicted.group);
            let (frame, page, evicted_at) = evicted.into_parts();
            frames.push(frame);
            if kind == Kind::Anon {
                let is_compressible = is_compressible(page, self.parameters.zswap_percent);
                let (to, cost_ns) = match is_compressible && self.may_zswap(tally) {
                    true => (Place::Zswapped, COMPRESS_NS),
                    false => (Place::OnDevice, SUBMIT_NS),
                };
                busy_ns += cost_ns;
                leaving.push((page, evicted_at, group, to));
            }
        }
        self.machine.compute(busy_ns);
        release(self.subject, frames);
        if leaving.is_empty() {
            return;
        }
        let mut lruvec = self.space.lruvec.0.lock();
        lruvec.note_cost(Kind::Anon, leaving.len() as u64, 0);
        for (page, evicted_at, group, to) in leaving {
            let has_left = lruvec.leave(&self.space.table, page, evicted_at, to);
            if to == Place::OnDevice {
                tally.swap_outs += 1;
                deltas.add(group, Stat::Pswpout, 1);
            } else if has_left {
                tally.zswap_outs += 1;
                deltas.add(group, Stat::Zswpout, 1);
                deltas.add(group, Stat::Zswapped, 1);
                deltas.add(group, Stat::Zswap, compressed_pages(page));
            }
        }
    }

    /// Returns whether the tenant's limit of compressed memory leaves room for a page (`obj_cgroup_may_zswap`). Without
    /// a limit nothing is checked; with one each page passes the site, where the kernel forces a flush.
    fn may_zswap(&self, tally: &mut Tally) -> bool {
        let limit = self.parameters.zswap_limit_pages;
        if limit == 0 {
            return true;
        }
        self.pass(self.parameters.zswap_site, tally);
        let shown = self.subject.seen(self.tenant, &[Stat::Zswap]);
        shown.get(Stat::Zswap) < limit as i64
    }
}

/// Reclaims from one tenant after the other until `end_ns`, with a pause after each round.
pub(in super::super) fn reclaim_repeatedly<M: Tasks, S: Subject<M>>(
    machine: &M,
    subject: &S,
    parameters: &Parameters,
    spaces: &[Space<M, S::Charge>],
    index: u64,
    (start_ns, end_ns): (u64, u64),
) -> Tally {
    let tree: Tree = parameters.tree();
    let mut random = Random::fork(parameters.seed, index);
    let interval_ns = parameters.reclaimer_interval_us * 1_000;
    let mut tally = Tally::default();
    let mut next_ns = start_ns + random.below(interval_ns);
    let mut tenant = random.below(parameters.tenants) as usize;
    while next_ns < end_ns {
        machine.sleep_until(next_ns);
        let reclaimed = Reclaimed {
            machine,
            subject,
            parameters,
            space: &spaces[tenant],
            tenant: tree.tenant(tenant),
        };
        reclaimed.round(0, &mut tally);
        tenant = (tenant + 1) % tree.tenants;
        next_ns = (next_ns + interval_ns).max(machine.now_ns());
    }
    tally
}
