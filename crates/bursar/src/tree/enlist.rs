//! Making a roster (`roster.rs`), after a walk that found nothing newly published.

use std::sync::Arc;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::roster::{Entry, Roster};
use super::walk::dirty_from;
use super::{LEVELS, Tree};

/// A group's place below the scope of a roster.
#[derive(Clone, Copy)]
struct Below {
    parent: u32,
    /// Levels between the scope and the parent.
    level: usize,
    /// Whether the parent's numbers are in the scope's own part.
    is_own: bool,
}

/// Makes a roster, unless numbers move meanwhile from one group to another.
pub(super) fn make_roster<M: Machine>(tree: &Tree<M>, scope: u32) {
    let node = tree.node(scope);
    let zeroes = vec![0; tree.layout.width];
    let mut roster = Roster {
        // Full: loaded before we look at any mark.
        publications: node.publications.load(MemoryOrder::Full),
        changes: node.changes.load(MemoryOrder::Full),
        // A slot may be clean already: the first read looks at all.
        retirements: None,
        entries: Vec::new(),
        totals: zeroes.clone(),
        own: zeroes,
    };
    // A read looks at the counts again. A roster that is outgrown already would only take memory.
    if enlist(tree, scope, None, &mut roster, &mut Vec::new()).is_none()
        || node.has_outgrown(&roster)
    {
        return;
    }
    roster.entries.shrink_to_fit();
    let mut roster = Some(Arc::new(roster));
    // The one before is dropped when the lock is free again.
    std::mem::swap(&mut node.fold.lock().roster, &mut roster);
}

/// Adds a group and all below it that is marked. `None` if numbers moved up meanwhile from one of these groups to another: they might
/// be in the sum twice, or not at all.
fn enlist<M: Machine>(
    tree: &Tree<M>,
    index: u32,
    below: Option<Below>,
    roster: &mut Roster<M>,
    way: &mut Vec<u32>,
) -> Option<()> {
    let node = tree.node(index);
    let first = way.len();
    roster.entries.reserve(tree.shards_per_hold);
    let mut fold = node.fold.lock();
    let is_own = match below {
        None => {
            roster.totals.copy_from_slice(&fold.totals);
            roster.own.copy_from_slice(&fold.own);
            true
        }
        // The mark has outlived the group, whose numbers are in the groups above.
        Some(below) if !tree.is_child(below.parent, node, &fold) => return Some(()),
        Some(below) => {
            // An absorbed child counts as the scope's own, and so does all below it.
            let is_own = match below.level {
                0 => fold.is_absorbed,
                _ => below.is_own,
            };
            roster.add_base(&fold.up, is_own);
            is_own
        }
    };
    let (received, folds) = (fold.received, fold.folds);
    let mut from = Some(0);
    while let Some(at) = from {
        from = tree.some_marked(node, at, |shard| {
            let entry = Entry {
                slot: node.slot.clone(),
                index,
                shard,
                home: tree.home(shard) as u16,
                is_own,
            };
            roster.add_slot(&tree.layout, fold.seen(&tree.layout, shard), entry);
        });
        if from.is_some() {
            drop(fold);
            roster.entries.reserve(tree.shards_per_hold);
            fold = node.fold.lock();
            // Else what a later shard has in the base and what it has in its remembered words are of different moments.
            // (`received` is compared in the end, too. The look here only ends a vain attempt early.)
            if (fold.received, fold.folds) != (received, folds) {
                return None;
            }
        }
    }
    let mut next = dirty_from(node, 0, way);
    drop(fold);
    if way.len() == first {
        return Some(());
    }
    let level = below.map_or(0, |below| below.level + 1);
    while way.len() > first {
        tree.children_at(node, way, first);
        // As in a walk, a record may be used again elsewhere while we are on our way to it.
        if level < LEVELS {
            for at in first..way.len() {
                let below = Below {
                    parent: index,
                    level,
                    is_own,
                };
                enlist(tree, way[at], Some(below), roster, way)?;
            }
        }
        way.truncate(first);
        if let Some(from) = next {
            let fold = node.fold.lock();
            next = dirty_from(node, from, way);
            drop(fold);
        }
    }
    (node.fold.lock().received == received).then_some(())
}

#[cfg(test)]
mod tests {
    use bursar_machine::Host;

    use super::super::ROOT;
    use super::super::by_roster::by_roster;
    use super::super::fixture::{ROWS_COLUMN, add_rows, child, roster, rows, tree_with_rows};
    use super::super::fold::SHARDS_PER_HOLD;
    use super::*;

    #[test]
    fn slots_are_enlisted_a_few_under_each_hold() {
        let (tree, _) = tree_with_rows(1);
        // Nothing new is found by the second walk.
        assert_eq!([(); 2].map(|()| rows(&tree, ROOT)), [7; 2]);
        let made = roster(&tree, ROOT).expect("a calm walk leaves one");
        assert_eq!(made.entries.len(), 2);
    }

    /// The base has what was folded and not handed up yet.
    #[test]
    fn numbers_on_their_way_up_are_enlisted() {
        let (tree, group) = tree_with_rows(SHARDS_PER_HOLD);
        let below = child(&tree, group, "below");
        add_rows(&tree, below, 5);
        assert_eq!([rows(&tree, below), rows(&tree, group)], [5, 12]);
        add_rows(&tree, below, 6);
        assert_eq!(rows(&tree, below), 11);
        make_roster(&tree, ROOT);
        let made = roster(&tree, ROOT).expect("nothing moves");
        let read = by_roster(&tree, ROOT, &made, &mut 0).expect("nothing is new");
        assert_eq!((read.totals[ROWS_COLUMN], read.own[ROWS_COLUMN]), (18, 0));
    }

    /// On the way to it, a record may have got a group elsewhere.
    #[test]
    fn a_group_that_is_not_below_is_not_enlisted() {
        let (tree, group) = tree_with_rows(SHARDS_PER_HOLD);
        let parent = child(&tree, ROOT, "parent");
        assert_eq!(rows(&tree, ROOT), 7);
        make_roster(&tree, ROOT);
        let before = roster(&tree, ROOT).expect("nothing moves");
        let mut after = Roster {
            publications: before.publications,
            changes: before.changes,
            retirements: before.retirements,
            entries: Vec::new(),
            totals: before.totals.clone(),
            own: before.own.clone(),
        };
        let below = Below {
            parent,
            level: 0,
            is_own: false,
        };
        let done = enlist(&tree, group, Some(below), &mut after, &mut Vec::new());
        assert_eq!((done, after.entries.len()), (Some(()), 0));
        assert_eq!(
            (after.totals, after.own),
            (before.totals.clone(), before.own.clone())
        );
    }

    /// Lets something happen while a task is between a group and the groups below it. Returns whether it has made a roster.
    fn makes_roster_beside(happens: impl FnOnce(&Tree<Host>, u32)) -> bool {
        let (tree, group) = tree_with_rows(SHARDS_PER_HOLD);
        assert_eq!(rows(&tree, ROOT), 7);
        let children = &tree.node(ROOT).children;
        let before = children.waits();
        std::thread::scope(|scope| {
            let held = children.lock();
            let maker = scope.spawn(|| make_roster(&tree, ROOT));
            while children.waits() == before && !maker.is_finished() {
                std::thread::yield_now();
            }
            happens(&tree, group);
            drop(held);
            maker.join().expect("no panic");
        });
        roster(&tree, ROOT).is_some()
    }

    #[test]
    fn a_roster_that_would_not_be_right_is_not_made() {
        assert!(makes_roster_beside(|tree, group| add_rows(tree, group, 1)));
        assert!(
            !makes_roster_beside(|tree, _| add_rows(tree, ROOT, 1)),
            "outgrown"
        );
        let hand_up = |tree: &Tree<Host>, group| {
            add_rows(tree, group, 1);
            tree.walk(group);
            tree.with_both(ROOT, group, |above, fold| fold.hand_up(above));
        };
        assert!(!makes_roster_beside(hand_up), "numbers move");
    }
}
