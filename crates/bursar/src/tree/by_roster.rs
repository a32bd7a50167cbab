//! Reads by roster (`roster.rs`).

use std::sync::Arc;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder, STATE, Slot, State};

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
    let mut folded = sum(tree, roster);
    // Full, here and below: comes after the words, and before the looks at states. See `roster.rs`.
    let retirements = node.retirements.load(MemoryOrder::Full);
    let mut shorter = None;
    if retirements != roster.retirements.load(MemoryOrder::Full) {
        *looked_at += roster.entries.len() as u64;
        let looked = sum_and_look(tree, roster)?;
        if looked.all_in_use {
            roster.retirements.store(retirements, MemoryOrder::Full);
        }
        (folded, shorter) = (looked.folded, looked.shorter);
    }
    // Full: comes last. See `roster.rs`.
    if node.changes.load(MemoryOrder::Full) != roster.changes {
        return None;
    }
    if let Some(shorter) = shorter {
        let mut shorter = Some(Arc::new(shorter));
        let mut fold = node.fold.lock();
        // Another reader may have been first, or a walk made another. The one before is dropped when the lock is free again.
        if fold
            .roster
            .as_ref()
            .is_some_and(|now| Arc::ptr_eq(now, roster))
        {
            std::mem::swap(&mut fold.roster, &mut shorter);
        }
    }
    Some(folded)
}

/// Adds up the words of a roster.
fn sum<M: Machine>(tree: &Tree<M>, roster: &Roster<M>) -> Folded {
    let layout = &tree.layout;
    let (mut totals, mut own) = (roster.totals.clone(), roster.own.clone());
    for_each_ahead(layout, &roster.entries, |entry| {
        for (column, word) in layout.words_of_columns() {
            // Full: comes before the look at `retirements`.
            let value = entry
                .slot
                .word(entry.shard, word)
                .load_signed(MemoryOrder::Full);
            entry.add_word(layout, column, value, &mut totals, &mut own);
        }
    });
    folded(tree, totals, own)
}

fn folded<M: Machine>(tree: &Tree<M>, totals: Vec<i64>, own: Vec<i64>) -> Folded {
    Folded {
        totals,
        own,
        errors: vec![Some(0); tree.layout.columns.len()],
        is_absorbed: false,
    }
}

/// Calls `each` with one entry after the other, whose words are fetched ahead.
fn for_each_ahead<M: Machine>(
    layout: &Layout,
    entries: &[Entry<M>],
    mut each: impl FnMut(&Entry<M>),
) {
    entries
        .iter()
        .take(SLOTS_AHEAD)
        .for_each(|entry| entry.prefetch(layout));
    for (at, entry) in entries.iter().enumerate() {
        if let Some(ahead) = entries.get(at + SLOTS_AHEAD) {
            ahead.prefetch(layout);
        }
        each(entry);
    }
}

/// Numbers of a roster of which slots were retired.
struct Looked<M: Machine> {
    folded: Folded,
    /// The roster without the slots that have left the marks; `None` if all are still there.
    shorter: Option<Roster<M>>,
    /// Whether all slots are published.
    all_in_use: bool,
}

/// Adds up the numbers of a roster, and looks at each slot's state. `None` if the group of a slot has ended.
fn sum_and_look<M: Machine>(tree: &Tree<M>, roster: &Roster<M>) -> Option<Looked<M>> {
    let layout = &tree.layout;
    let (mut totals, mut own) = (roster.totals.clone(), roster.own.clone());
    let mut words = vec![0; layout.columns.len()];
    let (mut left, mut all_in_use) = (Vec::new(), true);
    for (at, entry) in roster.entries.iter().enumerate() {
        for (column, word) in layout.words_of_columns() {
            // Full: comes before the look at the state.
            words[column] = entry
                .slot
                .word(entry.shard, word)
                .load_signed(MemoryOrder::Full);
        }
        if state(entry).tag() != State::PUBLISHED {
            all_in_use = false;
            if fold(tree, entry, &mut words)? {
                left.push((at, words.clone()));
            }
        }
        entry.add_to(layout, &words, &mut totals, &mut own);
    }
    Some(Looked {
        folded: folded(tree, totals, own),
        shorter: (!left.is_empty()).then(|| roster.without(layout, &left)),
        all_in_use,
    })
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
