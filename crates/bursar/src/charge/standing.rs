//! Standing of groups against reclaim of a group above them: their effective protection, along the tree.

use bursar_machine::{AtomicWord, Machine, Order};

use super::Ledger;
use super::ledger::Referred;
use super::limits::Limits;
use super::protection::{self, Above};

/// The effective protection of one group, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) min: u64,
    pub(crate) low: u64,
}

impl<M: Machine> Ledger<M> {
    /// Visits the living groups below `scope` that are `wanted`, parents first, with their usage and their protection. Groups
    /// below one that is not wanted are left out. `wanted` is called under a lock.
    ///
    /// The kernel keeps the sums of siblings' claims up to date with every charge. Here they are computed on request, which
    /// costs a look at each sibling and leaves charges alone. Usage changes meanwhile, as it does there.
    pub(crate) fn walk_protected(
        &self,
        scope: u32,
        wanted: impl Fn(u32) -> bool,
        mut visit: impl FnMut(u32, u64, Standing),
    ) {
        let mut parents = vec![(self.referred(scope), None)];
        while let Some((parent, above)) = parents.pop() {
            let (siblings, wanted) = self.siblings(parent.index, &wanted);
            let claimed = claimed_by(&siblings);
            for (sibling, child) in siblings.iter().zip(wanted) {
                let Some(child) = child else { continue };
                let standing = match above {
                    // Reclaim of a group takes from it in spite of its own protection, so its children's claims count in full.
                    None => Standing {
                        min: protection::effective_below_root(sibling.usage, sibling.limits.min),
                        low: protection::effective_below_root(sibling.usage, sibling.limits.low),
                    },
                    Some(above) => self.below(parent.index, above, claimed, sibling),
                };
                visit(child.index, sibling.usage, standing);
                parents.push((child, Some(standing)));
            }
        }
    }

    /// The living children of a group, and references to those that are wanted.
    #[allow(clippy::type_complexity, reason = "two columns of one table")]
    fn siblings(
        &self,
        parent: u32,
        wanted: &impl Fn(u32) -> bool,
    ) -> (Vec<Sibling>, Vec<Option<Referred<'_, M>>>) {
        let mut rows = (Vec::new(), Vec::new());
        self.tree.for_each_child(parent, |_, child| {
            rows.0.push(Sibling {
                usage: self.usage(child),
                limits: self.limits(child),
            });
            // Under the lock: a name that is there has a record.
            rows.1.push(wanted(child).then(|| self.referred(child)));
        });
        rows
    }

    fn below(&self, parent: u32, above: Standing, claimed: Standing, one: &Sibling) -> Standing {
        let usage = self.usage(parent);
        let effective = |setting, effective, children_protected| {
            let above = Above {
                usage,
                effective,
                children_protected,
            };
            protection::effective(one.usage, setting, above, self.policies.recursive)
        };
        Standing {
            min: effective(one.limits.min, above.min, claimed.min),
            low: effective(one.limits.low, above.low, claimed.low),
        }
    }

    /// The protection of a living group against reclaim of `scope`, which is above it.
    pub(crate) fn standing(&self, scope: u32, index: u32) -> Standing {
        let mut found = Standing::default();
        let is_on_the_way = |at| self.tree.is_ancestor(at, index);
        self.walk_protected(scope, is_on_the_way, |at, _, standing| {
            if at == index {
                found = standing;
            }
        });
        found
    }

    pub(super) fn usage(&self, index: u32) -> u64 {
        // Relaxed: a hint to choose by.
        self.counter(index).usage.load(Order::Relaxed)
    }
}

struct Sibling {
    usage: u64,
    limits: Limits,
}

/// The sums of siblings' claims.
fn claimed_by(siblings: &[Sibling]) -> Standing {
    let sum = |setting: fn(&Limits) -> u64| {
        siblings.iter().fold(0_u64, |sum, one| {
            sum.saturating_add(protection::claimed(one.usage, setting(&one.limits)))
        })
    };
    Standing {
        min: sum(|limits| limits.min),
        low: sum(|limits| limits.low),
    }
}
