//! Pages that exist before anything is measured: some in every query, so that every group was touched and flushed once.
//!
//! The pages stay for the whole run. No task uses them, so proactive reclaim should find them ([`Reclaim`]). They do
//! not count as `pgfault`, from which the truth of each read is computed: `pgfault` begins with the measurement.

use bursar_kernel::stats::GroupIndex;
use bursar_machine::Lock;
use bursar_rig::Tasks;

use super::parameters::Need;
use super::parameters::Parameters;
use super::statistics::Stat;
use super::subject::Subject;
use super::tree::Tree;

/// Takes memory back from a tenant, as a write to `memory.reclaim` does.
pub(super) trait Reclaim: Sync {
    /// Frees up to `pages` pages of a tenant, by number; returns how many.
    fn reclaim(&self, tenant: usize, pages: u64) -> u64;
}

struct Page<M: Tasks, C> {
    group: GroupIndex,
    memory: M::PageMemory,
    charge: C,
}

/// Pages of one tenant, charged to a subject.
type PagesOf<M, S> = Vec<Page<M, <S as Subject<M>>::Charge>>;

/// Pages that no task uses.
pub(super) struct ColdPages<'a, M: Tasks, S: Subject<M>> {
    subject: &'a S,
    /// By tenant.
    pages: Vec<M::Mutex<PagesOf<M, S>>>,
}

impl<'a, M: Tasks, S: Subject<M>> ColdPages<'a, M, S> {
    /// Maps the pages on all CPUs, waits for a periodic flush to be due, and lets it and a read of each group flush.
    ///
    /// # Errors
    /// The reason why pages cannot be mapped or groups cannot be read.
    pub(super) fn warm_up(
        machine: &M,
        subject: &'a S,
        parameters: &Parameters,
    ) -> Result<Self, String> {
        let tree = parameters.tree();
        let mut pages = Vec::new();
        pages.resize_with(tree.tenants, || M::Mutex::new(Vec::new()));
        let cold = Self { subject, pages };
        if parameters.warm_up_pages == 0 {
            return Ok(cold);
        }
        let mappers = machine.cpus().min(tree.all_queries());
        let mut mapped = vec![Ok(()); mappers];
        let mut tasks: Vec<Box<dyn FnOnce() + Send + '_>> = Vec::new();
        for (mapper, result) in mapped.iter_mut().enumerate() {
            let cold = &cold;
            tasks.push(Box::new(move || {
                *result = (mapper..tree.all_queries())
                    .step_by(mappers)
                    .try_for_each(|query| cold.map(machine, tree, query, parameters.warm_up_pages));
            }));
        }
        machine.run(tasks);
        mapped.into_iter().collect::<Result<(), _>>()?;

        let mut flushed = Ok(());
        machine.run(vec![Box::new(|| {
            machine.sleep_until(machine.now_ns() + parameters.flush_period_ms * 1_000_000);
            subject.tick();
            flushed = (0..tree.groups())
                .try_for_each(|group| subject.read(group, Need::Own, &[Stat::Pgfault]).map(drop));
        })]);
        flushed.map(|()| cold)
    }

    /// Frees the pages that are left.
    pub(super) fn free_all(&self) {
        for tenant in 0..self.pages.len() {
            self.reclaim(tenant, u64::MAX);
        }
    }

    fn map(&self, machine: &M, tree: Tree, query: usize, count: u64) -> Result<(), String> {
        let group = tree.query(query);
        for _ in 0..count {
            let charge = self.subject.try_charge(group, 1).or_else(|| {
                // Stock of other CPUs may be in the way.
                self.subject.drain(Tree::ROOT);
                self.subject.try_charge(group, 1)
            });
            let charge = charge.ok_or("while it warmed up: a limit refused a page")?;
            let memory = machine.touch_page(group as u64);
            self.subject.add(group, Stat::Anon, 1);
            let page = Page {
                group,
                memory,
                charge,
            };
            self.pages[tree.tenant_of(query)].lock().push(page);
        }
        Ok(())
    }
}

impl<M: Tasks, S: Subject<M>> Reclaim for ColdPages<'_, M, S> {
    fn reclaim(&self, tenant: usize, pages: u64) -> u64 {
        let taken = {
            let mut there = self.pages[tenant].lock();
            let left = there.len() - pages.min(there.len() as u64) as usize;
            there.split_off(left)
        };
        let count = taken.len() as u64;
        let mut charges = Vec::new();
        for page in taken {
            drop(page.memory);
            self.subject.add(page.group, Stat::Anon, -1);
            charges.push(page.charge);
        }
        self.subject.uncharge(charges);
        count
    }
}
