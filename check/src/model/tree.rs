//! A tree of groups whose numbers are added up by a walk.

use std::collections::BTreeMap;

use bursar::{Limits, Reason};

use super::shape::GroupIndex;

/// Numbers of a group: bytes, then one for each statistic.
pub type Numbers = [i64; 5];

/// A request to a reclaimer: its number, bytes, the reason, the group that is short.
pub type Asked = (u64, u64, Reason, String);

/// Events of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reclaimed below `low`.
    pub low: u64,
    /// Usage above `high` after a charge.
    pub high: u64,
    /// The limit was in a charge's way.
    pub max: u64,
    /// Charges refused for its limit.
    pub refused: u64,
    /// Charges that went beyond its limit.
    pub overshot: u64,
    /// Bytes that reclaimers gave back.
    pub reclaimed: u64,
}

/// A reclaimer of a group.
pub struct Reclaimer {
    /// Its number.
    pub number: u64,
    /// The lowest is asked first.
    pub order: i32,
    /// Bytes that it can give back, the last first.
    pub pages: Vec<u64>,
}

/// A group.
pub struct Node {
    /// Name below its parent.
    pub name: String,
    /// The group above.
    pub parent: Option<GroupIndex>,
    /// Limits.
    pub limits: Limits,
    /// Numbers of itself and of removed children, without the bytes of reclaimers.
    pub own: Numbers,
    /// It was removed, and has a handle.
    pub is_removed: bool,
    /// Greatest usage.
    pub peak: u64,
    /// Bytes charged above `high` that were not paid for.
    pub debt: u64,
    /// Events of itself.
    pub counts: Counts,
    /// Events of itself and of all below.
    pub total: Counts,
    /// Reclaimers, in the order in which they are asked.
    pub reclaimers: Vec<Reclaimer>,
}

/// See the module. A child has a higher number than its parent.
#[derive(Default)]
pub struct Tree {
    /// Groups with a handle, by number.
    pub nodes: BTreeMap<GroupIndex, Node>,
    /// All requests to reclaimers.
    pub asked: Vec<Asked>,
}

impl Tree {
    /// Adds a group.
    pub fn add(&mut self, at: GroupIndex, parent: Option<GroupIndex>, name: &str, limits: Limits) {
        let node = Node {
            name: name.to_owned(),
            parent,
            limits,
            own: [0; 5],
            is_removed: false,
            peak: 0,
            debt: 0,
            counts: Counts::default(),
            total: Counts::default(),
            reclaimers: Vec::new(),
        };
        self.nodes.insert(at, node);
    }

    /// Returns a group, to be changed.
    pub fn node(&mut self, at: GroupIndex) -> &mut Node {
        self.nodes.get_mut(&at).expect("a group")
    }

    /// Returns a group and those above.
    pub fn way(&self, at: GroupIndex) -> Vec<GroupIndex> {
        std::iter::successors(Some(at), |at| self.nodes[at].parent).collect()
    }

    /// Returns the path of a group.
    pub fn path(&self, at: GroupIndex) -> String {
        let mut way = self.way(at);
        way.pop();
        if way.is_empty() {
            return "/".to_owned();
        }
        let names = way.iter().rev();
        let names = names.map(|at| format!("/{}", self.nodes[at].name));
        names.collect()
    }

    /// Returns the groups that were not removed.
    pub fn living(&self) -> impl Iterator<Item = GroupIndex> + Clone + '_ {
        let nodes = self.nodes.iter();
        nodes.filter_map(|(&at, node)| (!node.is_removed).then_some(at))
    }

    /// Returns the children of a group, by name.
    pub fn children(&self, at: GroupIndex) -> Vec<GroupIndex> {
        let is_child = |child: &GroupIndex| self.nodes[child].parent == Some(at);
        let mut children: Vec<GroupIndex> = self.living().filter(is_child).collect();
        children.sort_by_key(|child| &self.nodes[child].name);
        children
    }

    /// Returns the numbers of a group and all below.
    pub fn total(&self, at: GroupIndex) -> Numbers {
        let node = &self.nodes[&at];
        let mut sum = node.own;
        let pages = node.reclaimers.iter().flat_map(|one| &one.pages);
        sum[0] += pages.sum::<u64>() as i64;
        for child in self.children(at) {
            add(&mut sum, self.total(child));
        }
        sum
    }

    /// Returns the bytes of a group and all below.
    pub fn usage(&self, at: GroupIndex) -> u64 {
        self.total(at)[0] as u64
    }

    /// Returns the group that has the numbers of a group: itself, or the nearest above that was not removed.
    pub fn account(&self, at: GroupIndex) -> GroupIndex {
        let way = self.way(at);
        let mut living = way.into_iter().filter(|at| !self.nodes[at].is_removed);
        living.next().expect("the root is never removed")
    }

    /// Adds numbers to a group.
    pub fn give(&mut self, at: GroupIndex, numbers: Numbers) {
        let account = self.account(at);
        add(&mut self.node(account).own, numbers);
    }

    /// Adds bytes to a group.
    pub fn give_bytes(&mut self, at: GroupIndex, bytes: i64) {
        self.give(at, [bytes, 0, 0, 0, 0]);
    }

    /// Removes a group and all below: what is theirs becomes the next group's above.
    pub fn remove(&mut self, scope: GroupIndex) {
        let is_below = |at: &GroupIndex| self.way(*at).contains(&scope);
        let removed: Vec<GroupIndex> = self.living().filter(is_below).collect();
        for at in removed.into_iter().rev() {
            let node = self.node(at);
            node.is_removed = true;
            let own = std::mem::take(&mut node.own);
            self.give(at, own);
        }
    }

    /// Returns the first group whose limit refuses bytes, from a group up to `end`, which is not asked.
    pub fn limiting(
        &self,
        at: GroupIndex,
        end: Option<GroupIndex>,
        bytes: u64,
    ) -> Option<GroupIndex> {
        let refuses = |at: &GroupIndex| self.usage(*at) + bytes > self.nodes[at].limits.max;
        let way = self.way(at).into_iter();
        way.take_while(|at| Some(*at) != end).find(refuses)
    }
}

fn add(sum: &mut Numbers, numbers: Numbers) {
    sum.iter_mut()
        .zip(numbers)
        .for_each(|(sum, number)| *sum += number);
}
