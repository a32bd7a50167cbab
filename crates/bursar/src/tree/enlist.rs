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
