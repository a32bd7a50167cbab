//! Groups updated on one CPU since they were last flushed: a list for each CPU, under the CPU's lock.
//!
//! The lists of one CPU form a tree of their own: each listed group links its listed children. Invariant: a listed
//! group's ancestors are listed. Groups are added bottom-up until one is listed already, and taken off with everything
//! below them.
//!
//! # Without locks (6.17)
//! Since 6.17 an update only pushes its group on a list of the CPU, with atomic exchanges. The next flusher takes all groups
//! off that list and lists them in the tree with their ancestors. The exchange by which updates choose the one that
//! pushes must be atomic for other CPUs too: the flusher changes the same word (`bursar-lab explore --planted`,
//! `lost-listing`; repaired in December 2025). An update that comes between the exchange and the push returns with its
//! group on no list yet, and a flush at that moment misses both. In the kernel only an interrupt comes in between.

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder, Shard};

use super::{GroupIndex, Padded};

/// No group: the end of a list of siblings.
const END: u32 = u32::MAX;

const UNLISTED: u64 = 0;
const LISTED: u64 = 1;

/// Value of [`Pushed`]'s words: not on the list.
const OFF: u64 = u64::MAX;
/// Value of [`Pushed`]'s words: the end of the list.
const LAST: u64 = u64::MAX - 1;

/// Way in which updates list their groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listing {
    /// Under the lock of the CPU's list.
    Locked,
    /// By a push; flushers make the tree.
    Pushed,
}

/// The updated lists of all CPUs.
#[derive(Debug)]
pub(super) struct Updated<M: Machine> {
    parents: Vec<Option<GroupIndex>>,
    cpus: Vec<Padded<CpuLists<M>>>,
}

struct CpuLists<M: Machine> {
    /// Per group: `LISTED` or `UNLISTED`. Written under the lock, read without it.
    listed: Vec<M::Word>,
    links: M::Spin<Links>,
    pushed: Option<Pushed<M>>,
}

/// Groups that updates pushed and no flusher has taken yet.
#[doc(alias = "llist_head")]
struct Pushed<M: Machine> {
    /// The group that was pushed last, or `LAST`.
    first: M::Word,
    /// Per group: the one that was pushed before it, `LAST`, or `OFF`.
    next: Vec<M::Word>,
}

impl<M: Machine> std::fmt::Debug for CpuLists<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuLists")
            .field("listed", &self.listed)
            .finish_non_exhaustive()
    }
}

/// Per group: its first listed child, and its next listed sibling.
#[derive(Debug)]
struct Links {
    first_child: Vec<u32>,
    next: Vec<u32>,
}

impl<M: Machine> Updated<M> {
    pub(super) fn new(parents: Vec<Option<GroupIndex>>, shards: usize, listing: Listing) -> Self {
        let groups = parents.len();
        assert!(groups < END as usize, "group numbers fit a link");
        let lists = || CpuLists {
            listed: (0..groups).map(|_| M::Word::new(UNLISTED)).collect(),
            links: M::Spin::new(Links {
                first_child: vec![END; groups],
                next: vec![END; groups],
            }),
            pushed: (listing == Listing::Pushed).then(|| Pushed {
                first: M::Word::new(LAST),
                next: (0..groups).map(|_| M::Word::new(OFF)).collect(),
            }),
        };
        Self {
            cpus: (0..shards).map(|_| Padded(lists())).collect(),
            parents,
        }
    }

    /// Lists `group` and its ancestors as updated on `shard`.
    #[doc(alias = "cgroup_rstat_updated")]
    #[inline]
    pub(super) fn mark(&self, shard: Shard, group: GroupIndex) {
        // Relaxed, and no barrier against the update before: the race that the kernel accepts, see the module above.
        let lists = &self.cpus[shard.index()].0;
        if let Some(pushed) = &lists.pushed {
            if pushed.next[group].load(MemoryOrder::Relaxed) == OFF {
                pushed.push(group);
            }
        } else if lists.listed[group].load(MemoryOrder::Relaxed) == UNLISTED {
            self.link(lists, &mut lists.links.lock(), group);
        }
    }

    /// Lists a group and its ancestors in the tree of a CPU, whose lock is held.
    #[cold]
    fn link(&self, CpuLists { listed, .. }: &CpuLists<M>, links: &mut Links, group: GroupIndex) {
        let mut next = Some(group);
        while let Some(group) = next {
            // Relaxed, here and below: written only under the lock that is held.
            if listed[group].load(MemoryOrder::Relaxed) == LISTED {
                return;
            }
            listed[group].store(LISTED, MemoryOrder::Relaxed);
            next = self.parents[group];
            if let Some(parent) = next {
                links.next[group] = links.first_child[parent];
                links.first_child[parent] = group as u32;
            }
        }
    }

    /// Moves `target` and all that is listed below it from the list of `shard` into `taken`, children before parents.
    ///
    /// The lock is held for this only, not while the groups are flushed.
    #[doc(alias = "cgroup_rstat_updated_list")]
    pub(super) fn take(&self, shard: Shard, target: GroupIndex, taken: &mut Vec<GroupIndex>) {
        taken.clear();
        let lists = &self.cpus[shard.index()].0;
        let CpuLists { listed, links, .. } = lists;
        let mut links = links.lock();
        if let Some(pushed) = &lists.pushed {
            while let Some(group) = pushed.pop() {
                self.link(lists, &mut links, group);
            }
        }
        if listed[target].load(MemoryOrder::Relaxed) == UNLISTED {
            return;
        }
        if let Some(parent) = self.parents[target] {
            links.unlink(parent, target);
        }
        taken.push(target);
        let mut parent_at = 0;
        while let Some(&parent) = taken.get(parent_at) {
            let mut child = std::mem::replace(&mut links.first_child[parent], END);
            while child != END {
                taken.push(child as GroupIndex);
                child = std::mem::replace(&mut links.next[child as usize], END);
            }
            listed[parent].store(UNLISTED, MemoryOrder::Relaxed);
            parent_at += 1;
        }
        taken.reverse();
    }

    #[cfg(test)]
    pub(super) fn is_listed(&self, shard: Shard, group: GroupIndex) -> bool {
        self.cpus[shard.index()].0.listed[group].load(MemoryOrder::Relaxed) == LISTED
    }
}

impl<M: Machine> Pushed<M> {
    /// Pushes a group, unless another update does.
    #[doc(alias = "css_rstat_updated")]
    #[cold]
    fn push(&self, group: GroupIndex) {
        // Full: atomic for the flusher too, see the module above.
        let own = self.next[group].compare_exchange(OFF, LAST, MemoryOrder::Full);
        if own.is_err() {
            return;
        }
        // Relaxed: the exchange below decides.
        let mut first = self.first.load(MemoryOrder::Relaxed);
        loop {
            self.next[group].store(first, MemoryOrder::Relaxed);
            // Full: pairs with the exchange of `pop`; a flusher that finds the group finds what it was pushed on.
            match self
                .first
                .compare_exchange(first, group as u64, MemoryOrder::Full)
            {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Takes the last group off. One flusher at a time.
    #[doc(alias = "llist_del_first_init")]
    fn pop(&self) -> Option<GroupIndex> {
        // Acquire: pairs with the exchange of `push`, which writes the group's link before.
        let mut first = self.first.load(MemoryOrder::Acquire);
        loop {
            if first == LAST {
                return None;
            }
            let group = first as usize;
            // Only a flusher takes groups off, so this one stays where it is.
            let next = self.next[group].load(MemoryOrder::Relaxed);
            // Full: pairs with the exchange of `push`.
            match self.first.compare_exchange(first, next, MemoryOrder::Full) {
                Ok(_) => {
                    // Release: the next push of the group comes after this one was taken.
                    self.next[group].store(OFF, MemoryOrder::Release);
                    return Some(group);
                }
                Err(now) => first = now,
            }
        }
    }
}

impl Links {
    /// Takes a listed `child` out of its parent's list, walking its siblings.
    fn unlink(&mut self, parent: GroupIndex, child: GroupIndex) {
        let after = std::mem::replace(&mut self.next[child], END);
        let mut at = self.first_child[parent];
        if at as usize == child {
            self.first_child[parent] = after;
            return;
        }
        while at != END {
            if self.next[at as usize] as usize == child {
                self.next[at as usize] = after;
                return;
            }
            at = self.next[at as usize];
        }
        unreachable!("a listed group is in its parent's list");
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::Host;

    use super::*;

    const CPU: Shard = Shard(0);

    /// 0 - 1 - {2, 3}, 0 - 4
    fn lists_by(listing: Listing) -> Updated<Host> {
        Updated::new(vec![None, Some(0), Some(1), Some(1), Some(0)], 1, listing)
    }

    fn lists() -> Updated<Host> {
        lists_by(Listing::Locked)
    }

    #[test]
    fn pushed_groups_are_listed_by_the_next_flusher_and_can_be_pushed_again() {
        let lists = lists_by(Listing::Pushed);
        for _ in 0..2 {
            for group in [2, 3, 3, 4] {
                lists.mark(CPU, group);
            }
            assert!((0..5).all(|group| !lists.is_listed(CPU, group)));
            // A flush of one group takes all from the list into the tree.
            assert_eq!(take(&lists, 3), [3]);
            assert!(
                [0, 1, 2, 4]
                    .iter()
                    .all(|&group| lists.is_listed(CPU, group))
            );
            lists.mark(CPU, 3);
            assert_eq!(take(&lists, 1), [2, 3, 1]);
            assert_eq!(take(&lists, 0), [4, 0]);
        }
    }

    fn take(lists: &Updated<Host>, target: GroupIndex) -> Vec<GroupIndex> {
        let mut taken = Vec::new();
        lists.take(CPU, target, &mut taken);
        taken
    }

    #[test]
    fn marking_lists_the_ancestors() {
        let lists = lists();
        lists.mark(CPU, 2);
        assert!([0, 1, 2].iter().all(|&group| lists.is_listed(CPU, group)));
        assert!([3, 4].iter().all(|&group| !lists.is_listed(CPU, group)));
    }

    #[test]
    fn children_come_before_their_parents() {
        let lists = lists();
        for group in [2, 3, 4] {
            lists.mark(CPU, group);
        }
        let taken = take(&lists, 0);
        let place = |group| taken.iter().position(|&other| other == group).unwrap();
        assert_eq!(taken.len(), 5);
        assert!(
            place(2) < place(1)
                && place(3) < place(1)
                && place(1) < place(0)
                && place(4) < place(0)
        );
        assert!(take(&lists, 0).is_empty());
    }

    #[test]
    fn a_subtree_leaves_the_rest_listed() {
        let lists = lists();
        for group in [2, 3, 4] {
            lists.mark(CPU, group);
        }
        assert_eq!(take(&lists, 3), [3]);
        assert_eq!(take(&lists, 1), [2, 1]);
        assert_eq!(take(&lists, 0), [4, 0]);
    }
}
