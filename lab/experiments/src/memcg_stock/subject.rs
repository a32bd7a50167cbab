//! The kernel's charging with each kind of stock, and Bursar's.

use bursar::{Charge, Freshness, Group, Limits, Memory};
use bursar_kernel::charge::{ChargeCounts, Charging, StockKind, UNLIMITED};
use bursar_kernel::stats::GroupIndex;
use bursar_machine::Machine;

use super::parameters::Parameters;

/// Bytes of a page.
const PAGE_SIZE: u64 = 4_096;
/// The root, and the tenant above all groups.
const ROOT: GroupIndex = 0;
const TENANT: GroupIndex = 1;
const FIRST: GroupIndex = 2;

/// Charges pages to groups below one tenant; groups count from 0.
pub(super) trait Subject: Send + Sync {
    /// Pages charged to one group.
    type Charge: Send;

    /// Charges pages to a group; `None` if the limit refuses them.
    fn try_charge(&self, group: usize, pages: u64) -> Option<Self::Charge>;

    /// Returns charges of pages that were freed together.
    fn release(&self, charges: &mut Vec<Self::Charge>);

    /// Takes back the stock below the tenant. Returns `false` if that is no call of its own, because a refused charge does so.
    fn drain(&self) -> bool;

    /// Returns the tenant's usage, stock included, pages.
    fn usage_pages(&self) -> u64;

    /// Takes all stock back, and returns the tenant's usage.
    fn settle(&self) -> u64;

    /// Returns events so far, of a subject that counts them.
    fn counts(&self) -> Option<ChargeCounts>;
}

/// The kernel's charging.
pub(super) struct Kernel<M: Machine>(Charging<M>);

impl<M: Machine> Kernel<M> {
    pub(super) fn new(machine: &M, parameters: &Parameters, kind: StockKind) -> Self {
        let groups = parameters.all_groups() as usize;
        let mut parents = vec![None, Some(ROOT)];
        parents.resize(FIRST + groups, Some(TENANT));
        let mut max = vec![UNLIMITED; FIRST + groups];
        max[TENANT] = parameters.limit_pages(machine.cpus()).unwrap_or(UNLIMITED);
        Self(Charging::new(machine, &parents, &max, kind))
    }
}

impl<M: Machine> Subject for Kernel<M> {
    type Charge = (GroupIndex, u64);

    fn try_charge(&self, group: usize, pages: u64) -> Option<Self::Charge> {
        let group = FIRST + group;
        self.0.try_charge(group, pages).then_some((group, pages))
    }

    /// Once for each group, as a batch of folios is returned.
    fn release(&self, charges: &mut Vec<Self::Charge>) {
        charges.sort_unstable();
        for of_group in charges.chunk_by(|one, other| one.0 == other.0) {
            let pages = of_group.iter().map(|charge| charge.1).sum();
            self.0.uncharge(of_group[0].0, pages);
        }
        charges.clear();
    }

    fn drain(&self) -> bool {
        self.0.drain(TENANT);
        true
    }

    fn usage_pages(&self) -> u64 {
        self.0.usage(TENANT)
    }

    fn settle(&self) -> u64 {
        self.0.drain(ROOT);
        self.0.usage(ROOT)
    }

    fn counts(&self) -> Option<ChargeCounts> {
        Some(self.0.counts())
    }
}

/// Bursar itself.
pub(super) struct Own<M: Machine> {
    tenant: Group<M>,
    groups: Vec<Group<M>>,
    _memory: Memory<M>,
}

impl<M: Machine> Own<M> {
    pub(super) fn new(machine: &M, parameters: &Parameters) -> Result<Self, String> {
        let built = Memory::builder().build_on(machine.clone());
        let memory = built.map_err(|error| error.to_string())?;
        let limits = match parameters.limit_pages(machine.cpus()) {
            Some(pages) => Limits::max(pages * PAGE_SIZE),
            None => Limits::none(),
        };
        let child = |above: &Group<M>, name: String, limits| {
            let made = above.child(name, limits);
            made.map_err(|error| error.to_string())
        };
        let tenant = child(&memory.root(), "tenant".to_owned(), limits)?;
        let group = |nth| child(&tenant, format!("group-{nth}"), Limits::none());
        Ok(Self {
            groups: (0..parameters.all_groups())
                .map(group)
                .collect::<Result<_, _>>()?,
            tenant,
            _memory: memory,
        })
    }
}

impl<M: Machine> Subject for Own<M> {
    type Charge = Charge<M>;

    fn try_charge(&self, group: usize, pages: u64) -> Option<Charge<M>> {
        self.groups[group].try_charge(pages * PAGE_SIZE).ok()
    }

    fn release(&self, charges: &mut Vec<Charge<M>>) {
        charges.clear();
    }

    fn drain(&self) -> bool {
        false
    }

    fn usage_pages(&self) -> u64 {
        self.tenant.reserved() / PAGE_SIZE
    }

    /// Usage of an exact read has no stock in it.
    fn settle(&self) -> u64 {
        let reading = self.tenant.read(Freshness::Exact);
        reading.map_or(u64::MAX, |reading| {
            reading.usage().value.unsigned_abs() / PAGE_SIZE
        })
    }

    fn counts(&self) -> Option<ChargeCounts> {
        None
    }
}
