//! Parents of groups.

/// Place of a group; the root's is 0.
pub type GroupIndex = usize;

/// Parents and paths of groups that stay.
#[derive(Clone, Debug)]
pub struct Shape {
    parents: Vec<Option<GroupIndex>>,
    /// Paths by group.
    pub paths: Vec<String>,
}

impl Shape {
    /// Makes the tree of these parents, each an earlier group; the first has none.
    pub fn new(parents: Vec<Option<GroupIndex>>, paths: Vec<String>) -> Self {
        Self { parents, paths }
    }

    /// Iterates over a group and its ancestors.
    pub fn chain(&self, group: GroupIndex) -> impl Iterator<Item = GroupIndex> + '_ {
        std::iter::successors(Some(group), |&at| self.parents[at])
    }

    /// Returns whether `scope` is `group` or above it.
    pub fn contains(&self, scope: GroupIndex, group: GroupIndex) -> bool {
        self.chain(group).any(|at| at == scope)
    }

    /// Returns the number of groups.
    #[allow(clippy::len_without_is_empty, reason = "the root is always there")]
    pub fn len(&self) -> usize {
        self.parents.len()
    }

    /// Iterates over the direct children of `group`.
    pub fn children(&self, group: GroupIndex) -> impl Iterator<Item = GroupIndex> + '_ {
        (0..self.len()).filter(move |&at| self.parents[at] == Some(group))
    }
}
