//! Reads by roster (`roster.rs`).

use std::sync::Arc;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder, STATE, Slot, State};

use super::node::Node;
use super::reading::Folded;
use super::roster::{Entry, Roster};
use super::{Layout, Tree};

/// Slots whose words are fetched ahead: as many transfers as a CPU has under way at once, and some.
const SLOTS_AHEAD: usize = 16;

/// The numbers of a group by its roster: they include each update that returned before this call. `None` if the roster is not
/// right any more. Adds the number of slots looked at to `looked_at`.
pub(super) fn by_roster<M: Machine>(
    tree: &Tree<M>,
    index: u32,
    roster: &Arc<Roster<M>>,
    looked_at: &mut u64,
) -> Option<Folded> {
    let node = tree.node(index);
    // Full: an update's publication is counted before the update returns.
    if node.publications.load(MemoryOrder::Full) != roster.publications {
        return None;
    }
    *looked_at += roster.entries.len() as u64;
    let (folded, next) = match sum(tree, node, roster) {
        Some(folded) => (folded, None),
        None => sum_and_look(tree, node, roster)?,
    };
    // Full: comes last. See `roster.rs`.
    if node.changes.load(MemoryOrder::Full) != roster.changes {
        return None;
    }
    if let Some(next) = next {
        let mut next = Some(Arc::new(next));
        let mut fold = node.fold.lock();
        // Another reader may have been first, or a walk made another. The one before is dropped when the lock is free again.
        if fold
            .roster
            .as_ref()
            .is_some_and(|now| Arc::ptr_eq(now, roster))
        {
            std::mem::swap(&mut fold.roster, &mut next);
        }
    }
    Some(folded)
}

/// Adds up the words of a roster. `None` if slots may have been retired.
fn sum<M: Machine>(tree: &Tree<M>, node: &Node<M>, roster: &Roster<M>) -> Option<Folded> {
    // Full: the second look comes after the words. See `roster.rs`.
    let all_are_in_use = || roster.retirements == Some(node.retirements.load(MemoryOrder::Full));
    if !all_are_in_use() {
        return None;
    }
    let layout = &tree.layout;
    let (mut totals, mut own) = (roster.totals.clone(), roster.own.clone());
    for entry in ahead(layout, &roster.entries) {
        for (column, word) in layout.words_of_columns() {
            // Full: comes before the second look at `retirements`.
            let value = entry
                .slot
                .word(entry.shard, word)
                .load_signed(MemoryOrder::Full);
            entry.add_word(layout, column, value, &mut totals, &mut own);
        }
    }
    all_are_in_use().then(|| folded(layout, totals, own))
}

fn folded(layout: &Layout, totals: Vec<i64>, own: Vec<i64>) -> Folded {
    Folded {
        totals,
        own,
        errors: vec![Some(0); layout.columns.len()],
        is_absorbed: false,
    }
}

/// The entries, one after the other, with the words of those that follow fetched ahead.
fn ahead<'a, M: Machine>(
    layout: &'a Layout,
    entries: &'a [Entry<M>],
) -> impl Iterator<Item = &'a Entry<M>> {
    let fetch = |entry: &Entry<M>| entry.prefetch(layout);
    entries.iter().take(SLOTS_AHEAD).for_each(fetch);
    entries.iter().enumerate().map(move |(at, entry)| {
        entries.get(at + SLOTS_AHEAD).into_iter().for_each(fetch);
        entry
    })
}

/// Adds up the numbers of a roster, and looks at each slot's state. Returns the roster without the slots that have left the marks,
/// too, unless it is as before. `None` if the group of a slot has ended.
fn sum_and_look<M: Machine>(
    tree: &Tree<M>,
    node: &Node<M>,
    roster: &Roster<M>,
) -> Option<(Folded, Option<Roster<M>>)> {
    let layout = &tree.layout;
    // Full: comes before the looks at the states.
    let retirements = node.retirements.load(MemoryOrder::Full);
    let mut next = Roster {
        publications: roster.publications,
        changes: roster.changes,
        retirements: Some(retirements),
        entries: Vec::with_capacity(roster.entries.len()),
        totals: roster.totals.clone(),
        own: roster.own.clone(),
    };
    let (mut totals, mut own) = (roster.totals.clone(), roster.own.clone());
    let mut words = vec![0; layout.columns.len()];
    for entry in ahead(layout, &roster.entries) {
        for (column, word) in layout.words_of_columns() {
            // Full: comes before the look at the state.
            words[column] = entry
                .slot
                .word(entry.shard, word)
                .load_signed(MemoryOrder::Full);
        }
        let is_published = state(entry).tag() == State::PUBLISHED;
        let has_left = !is_published && fold(tree, entry, &mut words)?;
        entry.add_to(layout, &words, &mut totals, &mut own);
        if has_left {
            entry.add_to(layout, &words, &mut next.totals, &mut next.own);
            continue;
        }
        if !is_published {
            next.retirements = None;
        }
        next.entries.push(entry.clone());
    }
    let is_new = next.retirements.is_some() || next.entries.len() < roster.entries.len();
    next.entries.shrink_to_fit();
    Some((folded(layout, totals, own), is_new.then_some(next)))
}

fn state<M: Machine>(entry: &Entry<M>) -> State {
    // Full: comes after the words. If it says published, all marks were set when we read what was added before.
    State(entry.slot.word(entry.shard, STATE).load(MemoryOrder::Full))
}

/// Folds a slot, and takes its words as folded. Returns whether it has left the marks; `None` if its group has ended.
fn fold<M: Machine>(tree: &Tree<M>, entry: &Entry<M>, words: &mut [i64]) -> Option<bool> {
    let node = tree.node(entry.index);
    let mut fold = node.fold.lock();
    if fold.has_ended {
        return None;
    }
    tree.fold_shard(&mut fold, entry.index, entry.shard);
    words.copy_from_slice(fold.seen(&tree.layout, entry.shard));
    // Under the lock no mark is removed. A slot that is marked may be clean since a moment ago: sections that saw it published may
    // still commit, until the fence that comes before its mark goes.
    let is_marked = node.published.has(entry.shard.0);
    Some(!is_marked && state(entry).tag() == State::CLEAN)
}

#[cfg(test)]
mod tests {
    use bursar_machine::{Host, Shard};

    use super::super::fixture::{
        add_extra, add_late, add_rows, child, roster, rows, tree, tree_with_rows,
    };
    use super::super::fold::SHARDS_PER_HOLD;
    use super::super::{ROOT, flush_counts, retire};
    use super::*;

    /// A group with rows in two slots, and the root with a roster of both, which a read has looked at. All is there seven times.
    fn enlisted() -> (Tree<Host>, u32) {
        let (tree, group) = tree_with_rows(SHARDS_PER_HOLD);
        // Something new, nothing new, and the first read by roster.
        assert_eq!([(); 3].map(|()| rows(&tree, ROOT)), [7; 3]);
        (tree, group)
    }

    fn the_roster(tree: &Tree<Host>) -> Arc<Roster<Host>> {
        roster(tree, ROOT).expect("a calm walk has left one")
    }

    /// Does what the fence of a retirement follows: the slot is clean, and still marked.
    fn clean(tree: &Tree<Host>, group: u32, shard: Shard) {
        assert!(tree.node(group).clean_published(shard).is_some());
        tree.count(group, |node| &node.retirements);
    }

    #[test]
    fn reads_by_roster_count_their_slots_and_do_not_walk() {
        let (tree, group) = enlisted();
        let before = flush_counts(&tree);
        for added in 1..4 {
            add_rows(&tree, group, 1);
            assert_eq!(rows(&tree, ROOT), 7 + added);
        }
        let after = flush_counts(&tree);
        assert_eq!(after.root, before.root);
        assert_eq!(after.rosters, before.rosters + 3);
        assert_eq!(after.slots, before.slots + 3 * 2);
    }

    /// All slots are looked at once. A roster of which no slot was retired since stays as it is.
    #[test]
    fn slots_are_looked_at_again_only_after_a_retirement() {
        let (tree, _) = enlisted();
        let seen = the_roster(&tree);
        assert_eq!((seen.retirements, seen.entries.len()), (Some(0), 2));
        assert_eq!(rows(&tree, ROOT), 7);
        assert!(Arc::ptr_eq(&seen, &the_roster(&tree)));
    }

    #[test]
    fn slots_that_have_left_the_marks_leave_the_roster() {
        let (tree, group) = enlisted();
        retire(&tree);
        add_extra(&tree, group, 1);
        retire(&tree);
        let before = flush_counts(&tree);
        assert_eq!(before.retired, 1);
        assert_eq!([(); 2].map(|()| rows(&tree, ROOT)), [8; 2]);
        let after = flush_counts(&tree);
        assert_eq!(after.root, before.root);
        assert_eq!(after.rosters, before.rosters + 2);
        assert_eq!(after.slots, before.slots + 2 + 1);
        let left = the_roster(&tree);
        assert_eq!((left.retirements, left.entries.len()), (Some(1), 1));
        assert_eq!(left.entries[0].shard, tree.extra());
    }

    /// Sections that saw a slot published may still commit while it is marked.
    #[test]
    fn slots_that_are_clean_and_marked_stay_in_the_roster() {
        let (tree, group) = enlisted();
        let (here, extra) = (tree.machine.current_shard(), tree.extra());
        let before = the_roster(&tree);
        clean(&tree, group, extra);
        assert_eq!(rows(&tree, ROOT), 7);
        assert!(Arc::ptr_eq(&before, &the_roster(&tree)));
        // The other slot leaves the marks.
        clean(&tree, group, here);
        tree.node(group).published.unmark(here.0);
        assert_eq!(rows(&tree, ROOT), 7);
        let left = the_roster(&tree);
        assert_eq!((left.retirements, left.entries.len()), (None, 1));
        add_late(&tree, group, extra, 5);
        assert_eq!(rows(&tree, ROOT), 12);
        assert_eq!(flush_counts(&tree).root, 2);
    }

    #[test]
    fn all_slots_are_read_however_many_are_fetched_ahead() {
        let tree = tree();
        for at in 0..3 * SLOTS_AHEAD {
            let group = child(&tree, ROOT, &at.to_string());
            add_rows(&tree, group, 1 << at);
        }
        let all = (1 << (3 * SLOTS_AHEAD)) - 1;
        assert_eq!([(); 4].map(|()| rows(&tree, ROOT)), [all; 4]);
        assert_eq!(flush_counts(&tree).rosters, 2);
    }
}
