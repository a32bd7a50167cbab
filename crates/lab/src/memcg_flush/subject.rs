//! What is compared: something that accounts for pages in a tree of groups and can be read.
//!
//! Charging is Bursar's for every subject, so that its cost is the same for all; of the published policies only the
//! statistics' path is on the substrate of their time.

use std::time::Duration;

use bursar::{Counter, FlushPolicy, Freshness, Gauge, Group, Limits, Memory, Statistic};
use bursar_machine::Machine;

use super::parameters::Parameters;
use super::tree::Tree;
use crate::published::{GroupIndex, Policy, Published, Substrate};

/// Size of a page, bytes.
pub(super) const PAGE_SIZE: u64 = 4096;

const STATISTICS: &[Statistic] = &[
    Statistic::counter("pgalloc"),
    Statistic::counter("pgfree"),
    Statistic::gauge("anon"),
    Statistic::counter("pgfault"),
];
const PGALLOC: Counter = Counter::of(STATISTICS, "pgalloc");
const PGFREE: Counter = Counter::of(STATISTICS, "pgfree");
const ANON: Gauge = Gauge::of(STATISTICS, "anon");
const PGFAULT: Counter = Counter::of(STATISTICS, "pgfault");

/// What a variant did besides answering, as far as it counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) root: u64,
    pub(super) subtree: u64,
    pub(super) skips: u64,
    pub(super) waits: u64,
    /// Only published policies have one lock to wait for.
    pub(super) lock_waits: Option<u64>,
    /// Only Bursar passes fences.
    pub(super) fences: Option<u64>,
}

/// Accounts for pages and answers readers.
pub(super) trait Subject<M: Machine>: Send + Sync {
    /// The groups in which pages are charged, by index.
    fn groups(&self) -> &[Group<M>];
    /// A page was mapped in `group`. The counter that readers read goes last: once it is added, the update is complete.
    fn mapped(&self, group: GroupIndex);
    /// A page of `group` was freed.
    fn freed(&self, group: GroupIndex);
    /// What a reader of `group` gets: the number of pages mapped in it and below it so far.
    ///
    /// # Errors
    /// Why there is no answer.
    fn read(&self, group: GroupIndex) -> Result<i64, String>;
    /// How often [`Subject::tick`] wants to be called in each period of the periodic flush.
    const TICKS_A_PERIOD: u64;
    /// The periodic flush, if it is due.
    fn tick(&self);
    /// What it did so far.
    fn work(&self) -> Work;
}

/// Bursar itself.
pub(super) struct Own<M: Machine> {
    memory: Memory<M>,
    groups: Vec<Group<M>>,
    freshness: Freshness,
}

impl<M: Machine> Own<M> {
    pub(super) fn new(
        machine: &M,
        parameters: &Parameters,
        policy: FlushPolicy,
        freshness: Freshness,
    ) -> Result<Self, String> {
        let memory = Memory::builder()
            .statistics(STATISTICS)
            .policy(policy)
            .flush_period(Duration::from_millis(parameters.flush_period_ms))
            .build_on(machine.clone())
            .map_err(|error| error.to_string())?;
        let tree = parameters.tree();
        let mut groups: Vec<Group<M>> = Vec::with_capacity(tree.groups());
        for (group, parent) in tree.parents().into_iter().enumerate() {
            let made = match parent {
                None => Ok(memory.root()),
                Some(Tree::ROOT) => groups[Tree::ROOT].child(
                    &format!("tenant-{group}"),
                    Limits::max(parameters.tenant_limit_pages.saturating_mul(PAGE_SIZE)),
                ),
                Some(tenant) => groups[tenant].child(&format!("query-{group}"), Limits::none()),
            };
            groups.push(made.map_err(|error| error.to_string())?);
        }
        Ok(Self {
            memory,
            groups,
            freshness,
        })
    }
}

impl<M: Machine> Subject<M> for Own<M> {
    // A tick flushes only what is older than the period, so ticks as far apart would let every other flush pass by.
    const TICKS_A_PERIOD: u64 = 4;

    fn groups(&self) -> &[Group<M>] {
        &self.groups
    }

    #[inline]
    fn mapped(&self, group: GroupIndex) {
        let group = &self.groups[group];
        group.add(PGALLOC, 1_u64);
        group.add(ANON, 1_i64);
        group.add(PGFAULT, 1_u64);
    }

    #[inline]
    fn freed(&self, group: GroupIndex) {
        let group = &self.groups[group];
        group.add(ANON, -1_i64);
        group.add(PGFREE, 1_u64);
    }

    fn read(&self, group: GroupIndex) -> Result<i64, String> {
        let reading = self.groups[group]
            .read(self.freshness)
            .map_err(|error| error.to_string())?;
        Ok(reading.get(PGFAULT).value)
    }

    fn tick(&self) {
        self.memory.tick();
    }

    fn work(&self) -> Work {
        let counts = self.memory.flush_counts();
        Work {
            root: counts.root,
            subtree: counts.subtree,
            skips: 0,
            waits: counts.joined,
            lock_waits: None,
            fences: Some(counts.fences),
        }
    }
}

/// Statistics as a published policy kept them, beside groups of Bursar that are only charged.
pub(super) struct Theirs<M: Machine> {
    charged: Own<M>,
    published: Published<M>,
}

/// The statistics of a published policy, by index.
mod theirs {
    pub(super) const PGALLOC: usize = 0;
    pub(super) const PGFREE: usize = 1;
    pub(super) const ANON: usize = 2;
    pub(super) const PGFAULT: usize = 3;
    pub(super) const ALL: usize = 4;
}

impl<M: Machine> Theirs<M> {
    pub(super) fn new(
        machine: &M,
        parameters: &Parameters,
        policy: Policy,
    ) -> Result<Self, String> {
        let parents = parameters.tree().parents();
        let substrate = Substrate::with_period(parameters.flush_period_ms * 1_000_000);
        Ok(Self {
            charged: Own::new(
                machine,
                parameters,
                FlushPolicy::PeriodicOnly,
                Freshness::Cached,
            )?,
            published: Published::new(machine, policy, substrate, &parents, theirs::ALL)
                .map_err(|error| error.to_string())?,
        })
    }
}

impl<M: Machine> Subject<M> for Theirs<M> {
    const TICKS_A_PERIOD: u64 = 1;

    fn groups(&self) -> &[Group<M>] {
        &self.charged.groups
    }

    #[inline]
    fn mapped(&self, group: GroupIndex) {
        self.published.add(group, theirs::PGALLOC, 1);
        self.published.add(group, theirs::ANON, 1);
        self.published.add(group, theirs::PGFAULT, 1);
    }

    #[inline]
    fn freed(&self, group: GroupIndex) {
        self.published.add(group, theirs::ANON, -1);
        self.published.add(group, theirs::PGFREE, 1);
    }

    fn read(&self, group: GroupIndex) -> Result<i64, String> {
        self.published.flush(group);
        Ok(self.published.total(group, theirs::PGFAULT))
    }

    fn tick(&self) {
        self.published.flush_periodic();
    }

    fn work(&self) -> Work {
        let counts = self.published.counts();
        Work {
            root: counts.root,
            subtree: counts.subtree,
            skips: counts.skips,
            waits: counts.waits,
            lock_waits: Some(counts.lock_waits),
            fences: None,
        }
    }
}
