//! Faults: a page that is not in memory is charged, read from its place, and put on a list.

use bursar_kernel::stats::GroupIndex;
use bursar_machine::Lock;
use bursar_rig::Tasks;

use super::balance::SWAP_CLUSTER_MAX;
use super::costs::DECOMPRESS_NS;
use super::deltas::Deltas;
use super::lists::{Kind, List, PageId};
use super::lruvec::{Inserted, Place, gauge, resident};
use super::reclaim::{Reclaimed, compressed_pages};
use super::{Frame, Space, Tally, release};
use crate::memcg_flush::parameters::Parameters;
use crate::memcg_flush::parameters::Site;
use crate::memcg_flush::statistics::Stat;
use crate::memcg_flush::subject::Subject;
use crate::random::Random;

/// Rounds of reclaim in vain before a charge gives up (`MAX_RECLAIM_RETRIES`).
const MAX_RECLAIM_RETRIES: u32 = 16;

/// The accesses and faults of one worker.
pub(in super::super) struct Faults<'a, M: Tasks, S: Subject<M>> {
    reclaimed: Reclaimed<'a, M, S>,
    /// Number among its tenant's workers.
    nth: u64,
    /// Page at which it goes on when it gives pages up.
    hand: u64,
    /// Number of the anonymous pages that it uses now, from the first.
    anon_pages: u64,
    pub(in super::super) tally: Tally,
    /// Times that a limit refused a page.
    pub(in super::super) refusals: u64,
}

impl<'a, M: Tasks, S: Subject<M>> Faults<'a, M, S> {
    /// Makes the state of the worker `index` of all.
    pub(in super::super) fn new(
        machine: &'a M,
        subject: &'a S,
        parameters: &'a Parameters,
        spaces: &'a [Space<M, S::Charge>],
        index: u64,
    ) -> Self {
        let tenant = (index % parameters.tenants) as usize;
        Self {
            reclaimed: Reclaimed {
                machine,
                subject,
                parameters,
                space: &spaces[tenant],
                tenant: parameters.tree().tenant(tenant),
            },
            nth: index / parameters.tenants,
            hand: 0,
            anon_pages: spaces[tenant].anon_pages,
            tally: Tally::default(),
            refusals: 0,
        }
    }

    /// Accesses pages at random, up to `most`, until one is missing; returns how many, and the missing one.
    pub(in super::super) fn access(&self, most: u64, random: &mut Random) -> (u64, Option<PageId>) {
        let Reclaimed {
            parameters, space, ..
        } = self.reclaimed;
        for done in 1..=most {
            let page = space.choose(parameters, self.nth, self.anon_pages, random);
            if space.table.access(page).is_err() {
                return (done, Some(page));
            }
        }
        (most, None)
    }

    /// Brings a page into memory, charged to `group`; `false` if the limit leaves no room for it.
    pub(in super::super) fn fault(&mut self, page: PageId, group: GroupIndex) -> bool {
        let Some(charge) = self.charge(group) else {
            return false;
        };
        let Reclaimed {
            machine,
            subject,
            parameters,
            space,
            ..
        } = self.reclaimed;
        let kind = space.kind(page);
        let from = space.table.place(page);
        let reads = from == Place::OnDevice || kind == Kind::File && from == Place::Nowhere;
        if from == Place::Zswapped {
            machine.compute(DECOMPRESS_NS);
        } else if reads {
            machine.sleep_until(machine.now_ns() + parameters.swap_io_ns);
        }
        let frame = Frame {
            memory: machine.touch_page(group as u64),
            charge,
        };
        if from.is_evicted() {
            self.reclaimed.pass(Site::RateLimited, &mut self.tally);
        }
        let inserted = {
            let mut lruvec = space.lruvec.0.lock();
            lruvec.insert(&space.table, page, kind, group, frame)
        };
        let mut deltas = Deltas::default();
        if reads || from == Place::Zswapped {
            deltas.add(group, Stat::Pgmajfault, 1);
        }
        match inserted {
            Ok(inserted) => self.count(page, kind, group, inserted, &mut deltas),
            // Somebody else read this page of a file at the same time, and was first.
            Err(frame) => release(subject, vec![frame]),
        }
        deltas.apply(subject);
        // Last: reads are judged by it.
        subject.add(group, Stat::Pgfault, 1);
        self.tally.faults += 1;
        true
    }

    fn count(
        &mut self,
        page: PageId,
        kind: Kind,
        group: GroupIndex,
        inserted: Inserted,
        deltas: &mut Deltas,
    ) {
        let Inserted {
            from,
            last_group,
            is_active,
        } = inserted;
        deltas.add(group, resident(kind), 1);
        deltas.add(group, gauge(List { kind, is_active }), 1);
        if from.is_evicted() {
            self.tally.refaults += 1;
            let refault = match kind {
                Kind::Anon => Stat::WorkingsetRefaultAnon,
                Kind::File => Stat::WorkingsetRefaultFile,
            };
            deltas.add(group, refault, 1);
        }
        match (from, kind) {
            (Place::Zswapped, _) => {
                deltas.add(group, Stat::Zswpin, 1);
                deltas.add(last_group, Stat::Zswapped, -1);
                deltas.add(last_group, Stat::Zswap, -compressed_pages(page));
            }
            (Place::OnDevice, Kind::Anon) => deltas.add(group, Stat::Pswpin, 1),
            _ => {}
        }
    }

    /// Charges a page. If a limit refuses it, reclaims as long as that frees anything; if it is refused again, drains stock
    /// once. After [`MAX_RECLAIM_RETRIES`] rounds in vain it is out of memory: the worker gives up pages of its own and
    /// tries once more.
    fn charge(&mut self, group: GroupIndex) -> Option<S::Charge> {
        let Reclaimed {
            subject, tenant, ..
        } = self.reclaimed;
        let mut in_vain = 0;
        for attempt in 0.. {
            if let Some(charge) = subject.try_charge(group, 1) {
                return Some(charge);
            }
            self.refusals += 1;
            if attempt == 1 {
                subject.drain(tenant);
                continue;
            }
            if in_vain == MAX_RECLAIM_RETRIES {
                break;
            }
            if self.reclaimed.round(in_vain, &mut self.tally) == 0 {
                in_vain += 1;
            } else {
                in_vain = 0;
            }
        }
        self.tally.ooms += 1;
        self.give_up();
        subject.drain(tenant);
        subject.try_charge(group, 1)
    }

    /// Uses so many thousandths of its anonymous pages from now on, and frees those beyond.
    pub(in super::super) fn use_part(&mut self, thousandths: u64) {
        let all = self.reclaimed.space.anon_pages;
        let had = std::mem::replace(
            &mut self.anon_pages,
            (all * thousandths / 1000).max(1).min(all),
        );
        let space = self.reclaimed.space;
        let first = space.first_anon(self.nth);
        let mut own = Vec::new();
        for page in first + self.anon_pages..first + had {
            let page = page as PageId;
            if space.table.place(page).is_resident() {
                own.push(page);
            }
            if own.len() as u64 == SWAP_CLUSTER_MAX {
                self.free(std::mem::take(&mut own));
            }
        }
        self.free(own);
    }

    /// Frees some anonymous pages of its own, starting with those that it has kept for longest.
    fn give_up(&mut self) {
        let space = self.reclaimed.space;
        let first = space.first_anon(self.nth);
        let mut own = Vec::new();
        for _ in 0..space.anon_pages {
            let page = (first + self.hand) as PageId;
            self.hand = (self.hand + 1) % space.anon_pages;
            if space.table.place(page).is_resident() {
                own.push(page);
            }
            if own.len() as u64 == SWAP_CLUSTER_MAX {
                break;
            }
        }
        self.free(own);
    }

    /// Frees pages, [`SWAP_CLUSTER_MAX`] at most.
    fn free(&self, pages: Vec<PageId>) {
        if pages.is_empty() {
            return;
        }
        let Reclaimed { subject, space, .. } = self.reclaimed;
        let mut deltas = Deltas::default();
        let frames: Vec<_> = {
            let mut lruvec = space.lruvec.0.lock();
            let give_up = |page| lruvec.give_up(&space.table, page, &mut deltas);
            pages.into_iter().filter_map(give_up).collect()
        };
        release(subject, frames);
        deltas.apply(subject);
    }
}
