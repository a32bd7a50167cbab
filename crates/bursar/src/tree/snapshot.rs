//! The numbers of a whole subtree, such that a group's own part and its children add up to it.
//!
//! An update of a group is counted in the group's own part, and later in the totals of the groups above. Between two flushes the
//! totals lag behind. So a snapshot takes the own parts only, and sums them from the bottom. Readers may fold meanwhile: each
//! number is in the own part of one group. Only the end of a group moves numbers between own parts, and only the end of a record
//! takes numbers out of the tree. So a snapshot closes the gate of both while it walks.
//!
//! Snapshots of one memory walk one after the other, and let tasks that wait for the gate go first. So the end of a group waits for
//! one walk at most, however many tasks take snapshots.

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::flush::{folded, reading};
use super::reading::{Folded, Reading};
use super::{Tree, flush};

/// Children looked up under one hold of their parent's lock.
const CHILDREN_PER_HOLD: usize = 64;

/// One group of a subtree.
pub(crate) struct Part<T> {
    /// Names from the group at the top, which has none here, each after a `/`.
    pub(crate) path: String,
    /// Levels below the group at the top.
    pub(crate) depth: usize,
    pub(crate) reading: Reading,
    /// The caller's note on the group.
    pub(crate) noted: T,
}

/// One group as the walk found it.
struct Found<T> {
    /// The parent's position in the walk; its own for the group at the top.
    parent: usize,
    path: String,
    depth: usize,
    /// The own part; with the children's totals once these were added.
    totals: Vec<i64>,
    /// The totals of the children that are part of the snapshot.
    children: Vec<i64>,
    errors: Vec<Option<u64>>,
    usage_range: (i64, i64),
    /// Bytes by which usages below 0 were raised, in this group and below.
    raised: u64,
    /// `None` if the group has lost its name: then it counts as its parent's own.
    noted: Option<T>,
}

/// Reads a subtree, parents before children, and siblings by name. The caller keeps the record of `top`.
///
/// `usage_range` gives bounds on a group's usage from elsewhere. `note` is called for each group, whose record is certain
/// to be there. With `is_exact`, the caller has brought the numbers of `top` up to date.
pub(crate) fn snapshot<M: Machine, T>(
    tree: &Tree<M>,
    top: u32,
    is_exact: bool,
    usage_range: impl Fn(u32) -> (i64, i64),
    note: impl Fn(u32) -> T,
) -> Vec<Part<T>> {
    let (age_ns, mut walk);
    {
        let _one_at_a_time = tree.walking.lock();
        tree.ends.give_way(&tree.machine);
        tree.ends.close(&tree.machine);
        age_ns = flush::age_ns(tree, top);
        walk = walk_own(tree, top, usage_range, note);
        tree.ends.open();
    }
    let mut parts = Vec::with_capacity(walk.len());
    // From the bottom: when a group is taken out, its children were.
    while let Some(mut found) = walk.pop() {
        // As in a reading of one group, no usage is below 0.
        found.raised += found.totals[0].min(0).unsigned_abs();
        found.totals[0] = found.totals[0].max(0);
        if let Some(parent) = walk.get_mut(found.parent) {
            add(&mut parent.totals, &found.totals);
            parent.raised += found.raised;
            if found.noted.is_some() {
                add(&mut parent.children, &found.totals);
            }
        }
        parts.extend(part(tree, age_ns, is_exact, found));
    }
    parts.reverse();
    parts
}

fn walk_own<M: Machine, T>(
    tree: &Tree<M>,
    top: u32,
    usage_range: impl Fn(u32) -> (i64, i64),
    note: impl Fn(u32) -> T,
) -> Vec<Found<T>> {
    let mut walk: Vec<Found<T>> = Vec::new();
    let mut next = vec![(top, 0, String::new(), 0, false)];
    while let Some((index, parent, path, depth, is_counted_above)) = next.pop() {
        let usage_range = usage_range(index);
        let Folded {
            own: mut totals,
            errors,
            is_absorbed,
            ..
        } = folded(tree, index);
        // The parent's own part has the numbers of an absorbed group, and with them those of all groups below. These may be
        // absorbed later: tasks that end a group and its parent at the same time come in any order.
        let is_counted = is_counted_above || is_absorbed && index != top;
        if is_counted {
            totals.fill(0);
        }
        add_own_eager(tree, index, &mut totals);
        let position = walk.len();
        // After all siblings were looked up: if another has its name by now, this one has lost it.
        let is_shown = index == top || !tree.node(index).is_removed();
        let mut below: Vec<_> = children_of(tree, index);
        // The last is the first to be taken.
        below.sort_unstable_by(|one, other| other.0.cmp(&one.0));
        next.extend(below.into_iter().map(|(name, child)| {
            (
                child,
                position,
                format!("{path}/{name}"),
                depth + 1,
                is_counted,
            )
        }));
        walk.push(Found {
            parent,
            path,
            depth,
            children: vec![0; totals.len()],
            totals,
            errors,
            usage_range,
            raised: 0,
            noted: is_shown.then(|| note(index)),
        });
    }
    walk
}

/// Adds the own part of eager statistics, which stays with a removed group until its record ends.
fn add_own_eager<M: Machine>(tree: &Tree<M>, index: u32, totals: &mut [i64]) {
    let own = &tree.node(index).eager[tree.layout.eager..];
    let columns = tree.layout.columns.iter().enumerate();
    let eager = columns.filter(|(_, column)| column.word.is_none());
    for ((column, _), word) in eager.zip(own) {
        // Full: pairs with `add_eager`.
        totals[column] = totals[column].wrapping_add(word.load_signed(MemoryOrder::Full));
    }
}

/// The names and ids of a group's children, also of those that have lost their names.
fn children_of<M: Machine>(tree: &Tree<M>, index: u32) -> Vec<(String, u32)> {
    let mut children = Vec::new();
    let mut from = 0;
    loop {
        {
            let found = tree.node(index).children.lock();
            let Some(ordinals) = found.ordinals.get(from..) else {
                break;
            };
            let some = ordinals.iter().take(CHILDREN_PER_HOLD);
            children.extend(some.flatten().copied());
            if ordinals.len() <= CHILDREN_PER_HOLD {
                break;
            }
        }
        from += CHILDREN_PER_HOLD;
    }
    let named = |child: u32| (tree.node(child).name(), child);
    children.into_iter().map(named).collect()
}

/// A group's part of the snapshot, unless it counts as its parent's own.
fn part<M: Machine, T>(
    tree: &Tree<M>,
    age_ns: u64,
    is_exact: bool,
    found: Found<T>,
) -> Option<Part<T>> {
    let mut own = found.totals.clone();
    own.iter_mut()
        .zip(&found.children)
        .for_each(|(own, children)| *own = own.wrapping_sub(*children));
    let mut errors = found.errors;
    if is_exact {
        errors.fill(Some(0));
    }
    let mut reading = reading(
        tree,
        age_ns,
        Folded {
            totals: found.totals,
            own,
            errors,
            is_absorbed: false,
        },
    );
    let usage = &mut reading.values[0];
    if usage.error() > 0 {
        usage.lo = found.usage_range.0.min(usage.value);
        usage.hi = found.usage_range.1.max(usage.value);
    }
    usage.lo = usage.lo.saturating_sub_unsigned(found.raised).max(0);
    usage.hi = usage.hi.saturating_add_unsigned(found.raised);
    Some(Part {
        path: found.path,
        depth: found.depth,
        reading,
        noted: found.noted?,
    })
}

/// Adds one group's numbers to another's.
fn add(sums: &mut [i64], values: &[i64]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.wrapping_add(*value);
    }
}

#[cfg(test)]
mod tests {
    use bursar_machine::{CHARGED, Slot};

    use super::super::fixture::{child, tree};
    use super::super::{Keep, ROOT};
    use super::*;

    /// A return may be seen before its charge. The range of each group above has room for what was raised to 0.
    #[test]
    fn usages_below_zero_widen_the_ranges_above() {
        let tree = tree();
        let parent = child(&tree, ROOT, "parent");
        let children = ["a", "b", "c"].map(|name| child(&tree, parent, name));
        for (group, bytes) in children.into_iter().zip([-5, -7, 30]) {
            tree.node(group).slot.add_extra(CHARGED, bytes);
            tree.publish(group, tree.extra());
        }
        flush::exact(&tree, ROOT, Keep::Folded).expect("reads may walk");
        let parts = snapshot(&tree, ROOT, true, |_| (0, 0), |_| ());
        let usages = parts.iter().map(|part| {
            let usage = part.reading.usage();
            (&*part.path, (usage.value, usage.lo, usage.hi))
        });
        assert!(usages.eq([
            ("", (30, 18, 42)),
            ("/parent", (30, 18, 42)),
            ("/parent/a", (0, 0, 5)),
            ("/parent/b", (0, 0, 7)),
            ("/parent/c", (30, 30, 30)),
        ]));
    }
}
