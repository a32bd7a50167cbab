//! The tree of the experiment: a root, tenants below it, queries below each tenant. Between a tenant and its queries there may
//! be a chain of groups, which makes the queries deeper. Numbered level by level.

use std::ops::Range;

use bursar_kernel::stats::GroupIndex;

/// The shape of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Number of tenants.
    pub tenants: usize,
    /// Number of queries below each.
    pub queries: usize,
    /// Number of ancestors of a query, at least 2: the root and a tenant.
    pub ancestors: usize,
}

impl Tree {
    /// The group of everything.
    pub const ROOT: GroupIndex = 0;

    /// Returns the number of groups.
    pub fn groups(self) -> usize {
        self.query(0) + self.all_queries()
    }

    /// Returns the number of queries of all tenants.
    pub fn all_queries(self) -> usize {
        self.tenants * self.queries
    }

    /// Returns a tenant by its number.
    pub fn tenant(self, tenant: usize) -> GroupIndex {
        1 + tenant
    }

    /// Returns a query by its number among the queries of all tenants.
    pub fn query(self, query: usize) -> GroupIndex {
        1 + self.tenants * (self.ancestors - 1) + query
    }

    /// Returns the number of a query's tenant.
    pub fn tenant_of(self, query: usize) -> usize {
        query / self.queries
    }

    /// Returns the parent of each group.
    pub fn parents(self) -> Vec<Option<GroupIndex>> {
        let parent = |group: GroupIndex| match group {
            Self::ROOT => None,
            group if group <= self.tenants => Some(Self::ROOT),
            group if group < self.query(0) => Some(group - self.tenants),
            group => {
                let tenant = self.tenant_of(group - self.query(0));
                Some(self.tenant(tenant) + self.tenants * (self.ancestors - 2))
            }
        };
        (0..self.groups()).map(parent).collect()
    }

    /// Returns the numbers of the queries that count towards `group`.
    pub fn queries_below(self, group: GroupIndex) -> Range<usize> {
        if group == Self::ROOT {
            return 0..self.all_queries();
        }
        match group.checked_sub(self.query(0)) {
            Some(query) => query..query + 1,
            None => {
                let tenant = (group - 1) % self.tenants;
                tenant * self.queries..(tenant + 1) * self.queries
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: Tree = Tree {
        tenants: 2,
        queries: 3,
        ancestors: 2,
    };
    const DEEP: Tree = Tree {
        ancestors: 4,
        ..TREE
    };

    #[test]
    fn queries_count_towards_their_tenant_and_the_root() {
        assert_eq!(TREE.groups(), 9);
        assert_eq!(TREE.queries_below(Tree::ROOT), 0..6);
        assert_eq!(TREE.queries_below(TREE.tenant(1)), 3..6);
        assert_eq!(TREE.queries_below(TREE.query(4)), 4..5);
    }

    #[test]
    fn a_chain_makes_queries_deeper() {
        let parents = DEEP.parents();
        for query in 0..DEEP.all_queries() {
            let mut at = DEEP.query(query);
            let mut ancestors = 0;
            while let Some(parent) = parents[at] {
                (at, ancestors) = (parent, ancestors + 1);
            }
            assert_eq!((at, ancestors), (Tree::ROOT, 4));
        }
    }

    #[test]
    fn parents_agree_with_the_queries_below() {
        for tree in [TREE, DEEP] {
            for (group, parent) in tree.parents().into_iter().enumerate().skip(1) {
                let parent = tree.queries_below(parent.expect("only the root has none"));
                let own = tree.queries_below(group);
                assert!(parent.start <= own.start && own.end <= parent.end);
            }
        }
    }
}
