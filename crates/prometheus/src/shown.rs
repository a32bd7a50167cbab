//! The choice of groups that have series of their own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bursar::{GroupSnapshot, Snapshot};

/// Groups with series of their own, and the sums of those without.
pub(crate) struct Shown<'a> {
    /// Groups and their labels.
    pub(crate) groups: Vec<(Labels, &'a GroupSnapshot)>,
    /// Sums of the children without series, by the position of their parent in `groups`.
    pub(crate) others: BTreeMap<usize, Others>,
}

/// Labels that each series of a group has.
#[derive(Clone)]
pub(crate) struct Labels {
    pub(crate) group: String,
    pub(crate) parent: String,
}

/// Children without series of their own, added up.
#[derive(Default)]
pub(crate) struct Others {
    pub(crate) groups: u64,
    pub(crate) usage: i64,
    pub(crate) reserved: u64,
    pub(crate) statistics: Vec<i64>,
}

/// Chooses the biggest groups, and puts their paths in `before` for the next time.
pub(crate) fn choose<'a>(
    snapshot: &'a Snapshot,
    (depth_max, groups_max): (usize, usize),
    before: &mut BTreeSet<String>,
) -> Shown<'a> {
    let rank = |group: &GroupSnapshot| {
        let times = if before.contains(&group.path) { 2 } else { 1 };
        group.reserved.saturating_mul(times)
    };
    let mut ranked: Vec<_> = snapshot
        .iter()
        .enumerate()
        .filter(|(_, group)| group.depth <= depth_max)
        .map(|(at, group)| (Reverse(rank(group)), group.depth, at))
        .collect();
    if ranked.len() > groups_max {
        ranked.select_nth_unstable(groups_max);
        ranked.truncate(groups_max);
    }
    let mut chosen = vec![false; snapshot.groups().len()];
    ranked.iter().for_each(|&(_, _, at)| chosen[at] = true);

    let mut shown = Shown {
        groups: Vec::with_capacity(ranked.len()),
        others: BTreeMap::new(),
    };
    // Positions in `shown` of the groups on the way to the present one; `None` for those without series.
    let mut way: Vec<Option<usize>> = Vec::new();
    for (group, chosen) in snapshot.iter().zip(chosen) {
        way.truncate(group.depth);
        let parent = way.last().copied();
        // Numbers of different moments may rank a group above its parent. It has no series without it.
        let has_place = parent.is_none_or(|at| at.is_some());
        let position = (chosen && has_place).then_some(shown.groups.len());
        if position.is_some() {
            let parent = parent.flatten().map(|at| shown.groups[at].0.group.clone());
            let labels = Labels {
                group: label(&group.path),
                parent: parent.unwrap_or_default(),
            };
            shown.groups.push((labels, group));
        } else if let Some(Some(parent)) = parent
            && group.depth <= depth_max
        {
            shown.others.entry(parent).or_default().add(group);
        }
        way.push(position);
    }
    before.clear();
    before.extend(shown.groups.iter().map(|(_, group)| group.path.clone()));
    shown
}

impl Others {
    fn add(&mut self, group: &GroupSnapshot) {
        self.groups += 1;
        // Statistics are any numbers of the program, so sums wrap, as in a parent.
        self.usage = self.usage.wrapping_add(group.reading.usage().value);
        self.reserved = self.reserved.saturating_add(group.reserved);
        let values: Vec<i64> = group.reading.iter().map(|(_, value)| value.value).collect();
        self.statistics.resize(values.len(), 0);
        for (sum, value) in self.statistics.iter_mut().zip(values) {
            *sum = sum.wrapping_add(value);
        }
    }
}

/// A path as a label. Doubled backslashes keep what [`bursar::printable`] escapes apart from names that look like it.
pub(crate) fn label(path: &str) -> String {
    bursar::printable(&path.replace('\\', r"\\")).into_owned()
}
