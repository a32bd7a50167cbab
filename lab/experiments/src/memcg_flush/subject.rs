//! The subjects of the comparison: they account for pages in a tree of groups and can be read.
//!
//! Bursar charges and counts by itself. The published policies charge and count as the kernel of their time does.

use std::time::Duration;

use bursar::{Charge, FlushPolicy, Freshness, Group, Limits, Memory, Reading};
use bursar_kernel::charge::{Charging, StockKind, UNLIMITED};
use bursar_kernel::stats::{self, GroupIndex, Policy, Published, Substrate};
use bursar_machine::Machine;
use bursar_rig::Tasks;

use super::parameters::{Gate, Need, PAGE_SIZE, Parameters, Site};
use super::statistics::{GAUGES, STATISTICS, Stat};
use super::tree::Tree;

/// Result of a read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// By [`Stat`], of the group and all below it.
    values: [i64; Stat::COUNT],
    /// Pages charged, of the group and all below it.
    pub(super) usage_pages: i64,
}

impl Numbers {
    fn of(reading: &Reading) -> Self {
        Self {
            values: GAUGES.map(|gauge| reading.get(gauge).value),
            usage_pages: reading.usage().value / PAGE_SIZE as i64,
        }
    }

    pub(super) fn get(&self, stat: Stat) -> i64 {
        self.values[stat as usize]
    }
}

/// Work of a variant besides answering, as far as it counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) root: u64,
    pub(super) subtree: u64,
    pub(super) skips: u64,
    pub(super) waits: u64,
    /// Waits for the one flush lock, which only published policies have.
    pub(super) lock_waits: Option<u64>,
    /// Fences, which only Bursar passes.
    pub(super) fences: Option<u64>,
}

/// Accounts for pages and answers readers.
pub(super) trait Subject<M: Machine>: Send + Sync {
    /// Charged pages of one group; dropping it returns them as a socket does.
    type Charge: Send + 'static;
    /// Charges pages to a group; `None` if a limit refuses them.
    fn try_charge(&self, group: GroupIndex, pages: u64) -> Option<Self::Charge>;
    /// Charges pages to a group, above its limits if need be.
    fn charge(&self, group: GroupIndex, pages: u64) -> Self::Charge;
    /// Returns charges of pages that were freed together.
    fn uncharge(&self, charges: Vec<Self::Charge>);
    /// Takes back the stock of a group and all below it, as a charge does that a limit still refuses after reclaim.
    fn drain(&self, _group: GroupIndex) {}
    /// Returns the usage of a group as its counter has it, stock included, without a flush: `memory.current`.
    fn current_pages(&self, group: GroupIndex) -> u64;
    /// Returns the pages of a tenant that are charged, without stock. For the audit of a run that has ended.
    fn charged_pages(&self, group: GroupIndex) -> u64;
    /// Adds to a statistic of a group.
    fn add(&self, group: GroupIndex, stat: Stat, delta: i64);
    /// Reads the statistics `wanted` of `group`; the others may be 0.
    ///
    /// # Errors
    /// The reason why there is no answer.
    fn read(&self, group: GroupIndex, need: Need, wanted: &[Stat]) -> Result<Numbers, String>;
    /// Reads the statistics `wanted` of `groups`, for one decision. Each is `above` or below it.
    ///
    /// # Errors
    /// The reason why there is no answer.
    fn read_all(
        &self,
        _above: GroupIndex,
        groups: &[GroupIndex],
        need: Need,
        wanted: &[Stat],
    ) -> Result<Vec<Numbers>, String> {
        let read = |&group: &GroupIndex| self.read(group, need, wanted);
        groups.iter().map(read).collect()
    }
    /// Lets a site of this kind flush the statistics of `group`.
    ///
    /// # Errors
    /// The reason why they were not flushed.
    fn flush_at(&self, group: GroupIndex, site: Site) -> Result<(), String>;
    /// Returns the statistics `wanted` as of the last flush, without another flush; the others may be 0.
    fn seen(&self, group: GroupIndex, wanted: &[Stat]) -> Numbers;
    /// Brings everything together after all tasks have ended: [`Subject::seen`] then shows all.
    ///
    /// # Errors
    /// The reason why it failed.
    fn settle(&self) -> Result<(), String>;
    /// Number of calls of [`Subject::tick`] in each period of the periodic flush.
    const TICKS_A_PERIOD: u64;
    /// Does the periodic flush, if it is due.
    fn tick(&self);
    /// Returns the work so far.
    fn work(&self) -> Work;
}

/// Bursar itself.
pub(super) struct Own<M: Machine> {
    memory: Memory<M>,
    groups: Vec<Group<M>>,
    freshness: Freshness,
    flush_period: Duration,
    /// Greatest age of numbers at [`Site::Unlimited`]; zero: as fresh as its readers'.
    site_need: Duration,
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
                    format!("tenant-{group}"),
                    Limits::max(parameters.tenant_limit_pages.saturating_mul(PAGE_SIZE)),
                ),
                Some(above) => groups[above].child(format!("group-{group}"), Limits::none()),
            };
            groups.push(made.map_err(|error| error.to_string())?);
        }
        Ok(Self {
            memory,
            groups,
            freshness,
            flush_period: Duration::from_millis(parameters.flush_period_ms),
            site_need: Duration::from_millis(parameters.site_need_ms),
        })
    }
}

impl<M: Machine> Subject<M> for Own<M> {
    type Charge = Charge<M>;

    // A tick flushes only what is older than the period, so ticks as far apart would let every other flush pass by.
    const TICKS_A_PERIOD: u64 = 4;

    fn try_charge(&self, group: GroupIndex, pages: u64) -> Option<Charge<M>> {
        self.groups[group].try_charge(pages * PAGE_SIZE).ok()
    }

    fn charge(&self, group: GroupIndex, pages: u64) -> Charge<M> {
        self.groups[group].charge(pages * PAGE_SIZE)
    }

    fn uncharge(&self, charges: Vec<Charge<M>>) {
        drop(charges);
    }

    fn current_pages(&self, group: GroupIndex) -> u64 {
        self.groups[group].reserved() / PAGE_SIZE
    }

    /// A charge of all that the limit allows succeeds only if no page is charged. Otherwise it takes all stock back before
    /// it is refused, so that all reserved bytes are charged.
    fn charged_pages(&self, group: GroupIndex) -> u64 {
        let group = &self.groups[group];
        match group.try_charge(group.limits().max) {
            Ok(_) => 0,
            Err(_) => group.reserved() / PAGE_SIZE,
        }
    }

    #[inline]
    fn add(&self, group: GroupIndex, stat: Stat, delta: i64) {
        self.groups[group].add(GAUGES[stat as usize], delta);
    }

    fn read(&self, group: GroupIndex, need: Need, _: &[Stat]) -> Result<Numbers, String> {
        let freshness = match (self.freshness, need) {
            (Freshness::Cached, _) => Freshness::Cached,
            (own, Need::Own) => own,
            (_, Need::AtMost(age)) => Freshness::AtMost(age),
        };
        let reading = self.groups[group]
            .read(freshness)
            .map_err(|error| error.to_string())?;
        Ok(Numbers::of(&reading))
    }

    /// One walk over `above` brings all groups below it up to date.
    fn read_all(
        &self,
        above: GroupIndex,
        groups: &[GroupIndex],
        need: Need,
        wanted: &[Stat],
    ) -> Result<Vec<Numbers>, String> {
        match (self.freshness, need) {
            (Freshness::Exact, Need::Own) => {
                let flushed = self.groups[above].flush();
                flushed.map_err(|error| error.to_string())?;
            }
            _ => drop(self.read(above, need, wanted)?),
        }
        Ok(groups.iter().map(|&it| self.seen(it, wanted)).collect())
    }

    fn flush_at(&self, group: GroupIndex, site: Site) -> Result<(), String> {
        let freshness = match (self.freshness, site) {
            (Freshness::Cached, _) => return Ok(()),
            (_, Site::RateLimited) => Freshness::AtMost(self.flush_period * 2),
            // The kernel bounds the error there, by its threshold; a caller of Bursar says how old the numbers may be.
            (_, Site::Unlimited) if !self.site_need.is_zero() => Freshness::AtMost(self.site_need),
            (own, Site::Unlimited | Site::Forced) => own,
        };
        let flushed = match freshness {
            Freshness::Exact => self.groups[group].flush(),
            _ => self.groups[group].read(freshness),
        };
        flushed.map(drop).map_err(|error| error.to_string())
    }

    fn seen(&self, group: GroupIndex, _: &[Stat]) -> Numbers {
        let reading = self.groups[group].read(Freshness::Cached);
        Numbers::of(&reading.expect("groups live as long as the memory"))
    }

    fn settle(&self) -> Result<(), String> {
        if self.groups[Tree::ROOT].flush().is_err() {
            // Only a tick flushes it, and only when its period is over.
            let machine = self.memory.machine();
            machine.sleep_until(machine.now_ns() + self.flush_period.as_nanos() as u64);
            self.memory.tick();
        }
        Ok(())
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

/// Statistics of a published policy, beside the kernel's charging.
pub(super) struct Theirs<M: Machine> {
    machine: M,
    charging: M::Shared<Charging<M>>,
    charge_ns: u64,
    published: Published<M>,
}

/// Pages charged to a group as the kernel does.
pub(super) struct Charged<M: Machine> {
    charging: M::Shared<Charging<M>>,
    group: GroupIndex,
    pages: u64,
}

impl<M: Machine> Drop for Charged<M> {
    fn drop(&mut self) {
        self.charging.refill(self.group, self.pages);
    }
}

impl<M: Machine> Theirs<M> {
    pub(super) fn new(
        machine: &M,
        parameters: &Parameters,
        policy: Policy,
    ) -> Result<Self, String> {
        let parents = parameters.tree().parents();
        let substrate = Substrate {
            gate: match parameters.gate {
                Gate::Threshold => stats::Gate::Threshold,
                Gate::AlwaysDue => stats::Gate::AlwaysDue,
            },
            ..Substrate::with_period(parameters.flush_period_ms * 1_000_000)
        };
        let max = |parent: &Option<GroupIndex>| match parent {
            Some(Tree::ROOT) => parameters.tenant_limit_pages,
            _ => UNLIMITED,
        };
        let max: Vec<u64> = parents.iter().map(max).collect();
        let stock = StockKind::Slots(parameters.stock_slots as usize);
        Ok(Self {
            machine: machine.clone(),
            charging: M::share(Charging::new(machine, &parents, &max, stock)),
            charge_ns: parameters.kernel_charge_ns,
            published: Published::new(machine, policy, substrate, &parents, Stat::COUNT)
                .map_err(|error| error.to_string())?,
        })
    }
}

impl<M: Machine> Theirs<M> {
    fn charged(&self, group: GroupIndex, pages: u64) -> Charged<M> {
        Charged {
            charging: self.charging.clone(),
            group,
            pages,
        }
    }
}

impl<M: Tasks> Subject<M> for Theirs<M> {
    type Charge = Charged<M>;

    const TICKS_A_PERIOD: u64 = 1;

    #[inline]
    fn try_charge(&self, group: GroupIndex, pages: u64) -> Option<Charged<M>> {
        self.machine.compute(self.charge_ns);
        let is_charged = self.charging.try_charge(group, pages);
        is_charged.then(|| self.charged(group, pages))
    }

    fn charge(&self, group: GroupIndex, pages: u64) -> Charged<M> {
        self.machine.compute(self.charge_ns);
        self.charging.charge(group, pages);
        self.charged(group, pages)
    }

    fn uncharge(&self, mut charges: Vec<Charged<M>>) {
        charges.sort_unstable_by_key(|charged| charged.group);
        for charges in charges.chunk_by_mut(|one, other| one.group == other.group) {
            let take = |charged: &mut Charged<M>| std::mem::take(&mut charged.pages);
            let pages = charges.iter_mut().map(take).sum();
            self.charging.uncharge(charges[0].group, pages);
        }
    }

    fn drain(&self, group: GroupIndex) {
        self.charging.drain(group);
    }

    fn current_pages(&self, group: GroupIndex) -> u64 {
        self.charging.usage(group)
    }

    fn charged_pages(&self, group: GroupIndex) -> u64 {
        self.charging.drain(group);
        self.charging.usage(group)
    }

    #[inline]
    fn add(&self, group: GroupIndex, stat: Stat, delta: i64) {
        match stat {
            Stat::Slab => self.published.add_bytes(group, stat as usize, delta),
            _ => self.published.add(group, stat as usize, delta),
        }
    }

    fn read(&self, group: GroupIndex, _: Need, wanted: &[Stat]) -> Result<Numbers, String> {
        self.published.flush(group);
        Ok(self.seen(group, wanted))
    }

    fn seen(&self, group: GroupIndex, wanted: &[Stat]) -> Numbers {
        let mut values = [0; Stat::COUNT];
        for &stat in wanted {
            values[stat as usize] = self.published.total(group, stat as usize);
        }
        Numbers {
            values,
            usage_pages: self.charging.usage(group) as i64,
        }
    }

    fn settle(&self) -> Result<(), String> {
        self.published.flush_periodic();
        Ok(())
    }

    fn flush_at(&self, group: GroupIndex, site: Site) -> Result<(), String> {
        match site {
            Site::Unlimited => self.published.flush(group),
            Site::RateLimited => self.published.flush_ratelimited(group),
            Site::Forced => self.published.flush_forced(group),
        }
        Ok(())
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
