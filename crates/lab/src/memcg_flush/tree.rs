//! The tree of the experiment: a root, tenants below it, queries below each tenant, numbered in this order.

use std::ops::Range;

use crate::published::GroupIndex;

/// The shape of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Number of tenants.
    pub tenants: usize,
    /// Number of queries below each.
    pub queries: usize,
}

impl Tree {
    /// The group of everything.
    pub const ROOT: GroupIndex = 0;

    /// The number of groups.
    pub fn groups(self) -> usize {
        1 + self.tenants + self.all_queries()
    }

    /// The number of queries of all tenants.
    pub fn all_queries(self) -> usize {
        self.tenants * self.queries
    }

    /// A tenant by its number.
    pub fn tenant(self, tenant: usize) -> GroupIndex {
        1 + tenant
    }

    /// A query by its number among the queries of all tenants.
    pub fn query(self, query: usize) -> GroupIndex {
        1 + self.tenants + query
    }

    /// The parent of each group.
    pub fn parents(self) -> Vec<Option<GroupIndex>> {
        let tenants = (0..self.tenants).map(|_| Some(Self::ROOT));
        let queries = (0..self.all_queries()).map(|query| Some(self.tenant(query / self.queries)));
        [None].into_iter().chain(tenants).chain(queries).collect()
    }

    /// The queries, by number, that count towards `group`.
    pub fn queries_below(self, group: GroupIndex) -> Range<usize> {
        if group == Self::ROOT {
            return 0..self.all_queries();
        }
        match group.checked_sub(self.query(0)) {
            Some(query) => query..query + 1,
            None => (group - 1) * self.queries..group * self.queries,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: Tree = Tree {
        tenants: 2,
        queries: 3,
    };

    #[test]
    fn queries_count_towards_their_tenant_and_the_root() {
        assert_eq!(TREE.groups(), 9);
        assert_eq!(TREE.queries_below(Tree::ROOT), 0..6);
        assert_eq!(TREE.queries_below(TREE.tenant(1)), 3..6);
        assert_eq!(TREE.queries_below(TREE.query(4)), 4..5);
    }

    #[test]
    fn parents_agree_with_the_queries_below() {
        for (group, parent) in TREE.parents().into_iter().enumerate().skip(1) {
            let parent = TREE.queries_below(parent.expect("only the root has none"));
            let own = TREE.queries_below(group);
            assert!(parent.start <= own.start && own.end <= parent.end);
        }
    }
}
