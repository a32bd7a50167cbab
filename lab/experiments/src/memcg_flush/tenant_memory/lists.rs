//! The four lists of a tenant's resident pages: inactive and active, anonymous and of files (the kernel's `lruvec->lists`).
//!
//! Doubly linked through one table indexed by page, so that a page leaves the middle of its list in constant time. A page is on
//! one list at most; newest pages are at the head, and reclaim takes from the tail.

/// A page of the tenant, by number.
pub(super) type PageId = u32;

/// Contents of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Anon,
    File,
}

impl Kind {
    pub(super) const BOTH: [Self; 2] = [Self::Anon, Self::File];
}

/// One of the four lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List {
    pub(super) kind: Kind,
    pub(super) is_active: bool,
}

impl List {
    pub(super) const ALL: [Self; 4] = [
        Self::inactive(Kind::Anon),
        Self::active(Kind::Anon),
        Self::inactive(Kind::File),
        Self::active(Kind::File),
    ];

    pub(super) const fn inactive(kind: Kind) -> Self {
        Self {
            kind,
            is_active: false,
        }
    }

    pub(super) const fn active(kind: Kind) -> Self {
        Self {
            kind,
            is_active: true,
        }
    }

    fn index(self) -> usize {
        2 * self.kind as usize + usize::from(self.is_active)
    }
}

const NONE: PageId = PageId::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    newer: PageId,
    older: PageId,
    list: Option<List>,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    newest: PageId,
    oldest: PageId,
    len: u64,
}

#[derive(Debug)]
pub(super) struct Lists {
    nodes: Vec<Node>,
    ends: [Ends; 4],
}

impl Lists {
    /// Makes lists for pages below `pages`, none of which is on one.
    pub(super) fn new(pages: usize) -> Self {
        let node = Node {
            newer: NONE,
            older: NONE,
            list: None,
        };
        let ends = Ends {
            newest: NONE,
            oldest: NONE,
            len: 0,
        };
        Self {
            nodes: vec![node; pages],
            ends: [ends; 4],
        }
    }

    pub(super) fn len(&self, list: List) -> u64 {
        self.ends[list.index()].len
    }

    /// Returns the number of pages on all lists.
    pub(super) fn all(&self) -> u64 {
        self.ends.iter().map(|ends| ends.len).sum()
    }

    /// Returns the list that a page is on.
    pub(super) fn list_of(&self, page: PageId) -> Option<List> {
        self.nodes[page as usize].list
    }

    /// Puts a page that is on no list at the head of one.
    pub(super) fn push(&mut self, list: List, page: PageId) {
        let ends = &mut self.ends[list.index()];
        let older = std::mem::replace(&mut ends.newest, page);
        ends.len += 1;
        match older {
            NONE => ends.oldest = page,
            older => self.nodes[older as usize].newer = page,
        }
        let node = &mut self.nodes[page as usize];
        assert!(node.list.is_none(), "page {page} is on a list");
        *node = Node {
            newer: NONE,
            older,
            list: Some(list),
        };
    }

    /// Takes a page off its list; returns that list.
    pub(super) fn remove(&mut self, page: PageId) -> Option<List> {
        let Node { newer, older, list } = self.nodes[page as usize];
        let list = list?;
        let ends = &mut self.ends[list.index()];
        ends.len -= 1;
        match newer {
            NONE => ends.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => ends.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        self.nodes[page as usize].list = None;
        Some(list)
    }

    /// Takes the oldest page off a list.
    pub(super) fn pop(&mut self, list: List) -> Option<PageId> {
        let oldest = self.ends[list.index()].oldest;
        (oldest != NONE).then(|| {
            self.remove(oldest);
            oldest
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::random::Random;

    /// The pages of a list, oldest first, and the same walked from the other end.
    fn walk(lists: &Lists, list: List) -> Vec<PageId> {
        let ends = lists.ends[list.index()];
        let step = |next: fn(&Node) -> PageId| {
            move |page: &PageId| Some(next(&lists.nodes[*page as usize])).filter(|&at| at != NONE)
        };
        // A broken link may go round in circles.
        let bound = lists.nodes.len() + 1;
        let first = |page| Some(page).filter(|&page| page != NONE);
        let up: Vec<_> = std::iter::successors(first(ends.oldest), step(|node| node.newer))
            .take(bound)
            .collect();
        let mut down: Vec<_> = std::iter::successors(first(ends.newest), step(|node| node.older))
            .take(bound)
            .collect();
        down.reverse();
        assert_eq!(up, down, "both ways show the same pages");
        up
    }

    #[test]
    fn random_operations_agree_with_queues() {
        const PAGES: u64 = 24;
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let mut lists = Lists::new(PAGES as usize);
            let mut queues: [VecDeque<PageId>; 4] = Default::default();
            for _ in 0..400 {
                let page = random.below(PAGES) as PageId;
                let list = List::ALL[random.below(4) as usize];
                let is_on = queues.iter().position(|queue| queue.contains(&page));
                match random.below(3) {
                    0 if is_on.is_none() => {
                        lists.push(list, page);
                        queues[list.index()].push_back(page);
                    }
                    1 => {
                        let expected = is_on.map(|at| List::ALL[at]);
                        assert_eq!(lists.list_of(page), expected, "seed {seed}");
                        assert_eq!(lists.remove(page), expected, "seed {seed}");
                        if let Some(at) = is_on {
                            queues[at].retain(|&other| other != page);
                        }
                    }
                    2 => assert_eq!(lists.pop(list), queues[list.index()].pop_front()),
                    _ => {}
                }
                for list in List::ALL {
                    let queue = &queues[list.index()];
                    assert_eq!(queue, &walk(&lists, list), "seed {seed}");
                    assert_eq!(lists.len(list), queue.len() as u64, "seed {seed}");
                }
            }
        }
    }
}
