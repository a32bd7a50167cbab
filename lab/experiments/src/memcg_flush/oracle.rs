//! The truth at a moment: the pages that each tenant has in memory, kept outside of the machine.
//!
//! Only loads that compare a decision with the truth keep it ([`Observed`]). On a simulated machine it costs no time
//! and lets no other task run. There a task runs ahead of the others by a fraction of an operation, so a number may be
//! early by as much. On the host it is one more atomic operation for each page, for every variant alike.

use std::sync::atomic::{AtomicI64, Ordering};

use bursar_kernel::stats::GroupIndex;
use bursar_machine::Machine;

use super::parameters::{Need, Site};
use super::statistics::Stat;
use super::subject::{Numbers, Subject, Work};
use super::tree::Tree;

/// Pages of one tenant, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Pages(AtomicI64);

/// Pages of each tenant, anonymous and of files.
#[derive(Debug)]
pub(super) struct Oracle {
    /// By group.
    tenant_of: Vec<Option<usize>>,
    tenants: Vec<Pages>,
}

impl Oracle {
    pub(super) fn new(tree: Tree) -> Self {
        let tenant_of = |group: GroupIndex| {
            (group != Tree::ROOT).then(|| tree.tenant_of(tree.queries_below(group).start))
        };
        let mut tenants = Vec::new();
        tenants.resize_with(tree.tenants, Pages::default);
        Self {
            tenant_of: (0..tree.groups()).map(tenant_of).collect(),
            tenants,
        }
    }

    fn add(&self, group: GroupIndex, stat: Stat, delta: i64) {
        let counts = matches!(stat, Stat::Anon | Stat::File);
        if let (true, Some(tenant)) = (counts, self.tenant_of[group]) {
            // Relaxed: a number, and nothing that goes with it.
            self.tenants[tenant].0.fetch_add(delta, Ordering::Relaxed);
        }
    }

    /// Returns the pages of a tenant.
    pub(super) fn pages(&self, tenant: usize) -> u64 {
        // Relaxed: as above. A page may be freed on one CPU before another has counted it.
        u64::try_from(self.tenants[tenant].0.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns the pages of all tenants, in order.
    pub(super) fn all(&self) -> Vec<u64> {
        (0..self.tenants.len())
            .map(|tenant| self.pages(tenant))
            .collect()
    }
}

/// A subject that reports every update to an oracle after it is made.
pub(super) struct Observed<'a, S> {
    pub(super) subject: &'a S,
    pub(super) oracle: &'a Oracle,
}

impl<M: Machine, S: Subject<M>> Subject<M> for Observed<'_, S> {
    type Charge = S::Charge;

    const TICKS_A_PERIOD: u64 = S::TICKS_A_PERIOD;

    fn try_charge(&self, group: GroupIndex, pages: u64) -> Option<S::Charge> {
        self.subject.try_charge(group, pages)
    }

    fn charge(&self, group: GroupIndex, pages: u64) -> S::Charge {
        self.subject.charge(group, pages)
    }

    fn uncharge(&self, charges: Vec<S::Charge>) {
        self.subject.uncharge(charges);
    }

    fn drain(&self, group: GroupIndex) {
        self.subject.drain(group);
    }

    fn current_pages(&self, group: GroupIndex) -> u64 {
        self.subject.current_pages(group)
    }

    fn charged_pages(&self, group: GroupIndex) -> u64 {
        self.subject.charged_pages(group)
    }

    #[inline]
    fn add(&self, group: GroupIndex, stat: Stat, delta: i64) {
        self.subject.add(group, stat, delta);
        self.oracle.add(group, stat, delta);
    }

    fn read(&self, group: GroupIndex, need: Need, wanted: &[Stat]) -> Result<Numbers, String> {
        self.subject.read(group, need, wanted)
    }

    fn read_all(
        &self,
        above: GroupIndex,
        groups: &[GroupIndex],
        need: Need,
        wanted: &[Stat],
    ) -> Result<Vec<Numbers>, String> {
        self.subject.read_all(above, groups, need, wanted)
    }

    fn flush_at(&self, group: GroupIndex, site: Site) -> Result<(), String> {
        self.subject.flush_at(group, site)
    }

    fn seen(&self, group: GroupIndex, wanted: &[Stat]) -> Numbers {
        self.subject.seen(group, wanted)
    }

    fn settle(&self) -> Result<(), String> {
        self.subject.settle()
    }

    fn tick(&self) {
        self.subject.tick();
    }

    fn work(&self) -> Work {
        self.subject.work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_all_groups_of_a_tenant_count() {
        let tree = Tree {
            tenants: 2,
            queries: 2,
            ancestors: 3,
        };
        let oracle = Oracle::new(tree);
        oracle.add(tree.query(2), Stat::Anon, 5);
        oracle.add(tree.query(3), Stat::File, 2);
        oracle.add(tree.tenant(1), Stat::Anon, -1);
        oracle.add(tree.query(0), Stat::Anon, -1);
        oracle.add(tree.query(0), Stat::Pgfault, 9);
        oracle.add(Tree::ROOT, Stat::Anon, 9);
        assert_eq!(oracle.all(), [0, 6]);
    }
}
