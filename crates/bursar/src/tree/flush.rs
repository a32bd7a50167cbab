//! Reads of a group: what each freshness costs, and the walks that bring numbers up to date.

use std::sync::Arc;
use std::time::Duration;

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};

use super::by_roster::by_roster;
use super::enlist::make_roster;
use super::reading::{Folded, Freshness, Keep, Reading, Value};
use super::roster::Roster;
use super::schema::Column;
use super::turns::{DONE_ONE, FlushCounts};
use super::{FlushPolicy, ROOT, Tree, retire};

/// Slots that reads of a scope look at for each step of retiring that they do: several times the cost of the step, fence included, so
/// that readers spend a small part of their time on it. Judgement.
const MANY_SLOTS: u64 = 8192;

/// Whether a group's own words hold all its updates.
fn is_childless<M: Machine>(tree: &Tree<M>, index: u32) -> bool {
    // Acquire: a child that had an update before this read was counted before that update.
    tree.node(index).child_count.load(MemoryOrder::Acquire) == 0
}

/// Reads a group as fresh as is wanted. `None` if the policy forbids the walk that this needs. The usage range is asked for
/// where the last walk's numbers will do.
pub(crate) fn read<M: Machine>(
    tree: &Tree<M>,
    index: u32,
    freshness: Freshness,
    usage_range: impl Fn() -> (i64, i64),
) -> Option<Reading> {
    let cached = || cached(tree, index, usage_range());
    match freshness {
        Freshness::Exact => exact(tree, index, Keep::Roster),
        Freshness::Cached => Some(cached()),
        Freshness::AtMost(age) if u128::from(age_ns(tree, index)) <= age.as_nanos() => {
            Some(cached())
        }
        Freshness::AtMost(_) => exact(tree, index, Keep::Folded),
        Freshness::UsageWithin(_) | Freshness::CounterWithin(..) | Freshness::GaugeWithin(..) => {
            let reading = cached();
            match reading.is_within(freshness) {
                true => Some(reading),
                false => exact(tree, index, Keep::Folded),
            }
        }
    }
}

/// Numbers that include each update that returned before this call; `None` if the policy forbids it.
pub(crate) fn exact<M: Machine>(tree: &Tree<M>, index: u32, keep: Keep) -> Option<Reading> {
    if tree.policy == FlushPolicy::PeriodicOnly {
        return None;
    }
    let began_ns = tree.machine.now_ns();
    let in_use = match folded_if_unmarked(tree, index) {
        // Nothing is noted for other readers: this writes no line but the lock's.
        Ok(folded) => {
            return Some(exact_reading(
                tree,
                index,
                (began_ns, began_ns),
                folded,
                false,
            ));
        }
        Err(roster) => roster,
    };
    let mut slots = 0;
    let found = in_use
        .filter(|_| keep == Keep::Roster)
        .and_then(|roster| by_roster(tree, index, &roster, &mut slots));
    let turns = &tree.node(index).turns;
    let mut many_slots = false;
    if found.is_some() {
        // Relaxed: a count.
        turns.rosters.fetch_add(1, MemoryOrder::Relaxed);
    } else if is_childless(tree, index) {
        // It is over so soon that sharing it would cost more.
        slots += tree.walk(index).slots;
    } else {
        many_slots = flush(tree, index, keep);
    }
    if slots > 0 {
        many_slots |= count_slots(tree, index, slots);
    }
    let now_ns = tree.machine.now_ns();
    let folded = found.unwrap_or_else(|| folded(tree, index));
    Some(exact_reading(
        tree,
        index,
        (began_ns, now_ns),
        folded,
        many_slots,
    ))
}

fn exact_reading<M: Machine>(
    tree: &Tree<M>,
    index: u32,
    (began_ns, now_ns): (u64, u64),
    folded: Folded,
    many_slots: bool,
) -> Reading {
    let age_ns = now_ns.saturating_sub(began_ns);
    let (mut reading, below_zero) = last_reading(tree, index, age_ns, folded);
    for value in &mut reading.values {
        *value = Value::within(value.value, Some(0));
    }
    let usage = &mut reading.values[0];
    usage.hi = usage.hi.saturating_add_unsigned(below_zero);
    // Only now: the reader has its answer.
    if many_slots || tree.retirer.period_ns == 0 {
        retire::retire_if_due(tree, now_ns);
    }
    reading
}

/// Age of the folded numbers, ns.
pub(crate) fn age_ns<M: Machine>(tree: &Tree<M>, index: u32) -> u64 {
    // Acquire: pairs with the Release at the end of a flush.
    let began = |at| tree.node(at).as_of_ns.load(MemoryOrder::Acquire);
    let newest = tree
        .chain(index)
        .map(began)
        .max()
        .expect("a chain has a group");
    tree.machine.now_ns().saturating_sub(newest)
}

/// Numbers of the last flush. `usage_range` bounds the usage by other means and was taken before this call.
pub(crate) fn cached<M: Machine>(tree: &Tree<M>, index: u32, usage_range: (i64, i64)) -> Reading {
    let age_ns = age_ns(tree, index);
    let (mut reading, below_zero) = last_reading(tree, index, age_ns, folded(tree, index));
    let usage = &mut reading.values[0];
    if usage.error() > 0 {
        usage.lo = usage_range.0.min(usage.value);
        usage.hi = usage_range.1.max(usage.value);
    }
    usage.hi = usage.hi.saturating_add_unsigned(below_zero);
    reading
}

/// A reading of folded numbers, and the bytes by which the usage was below 0. The usage's range must be at least that wide.
fn last_reading<M: Machine>(
    tree: &Tree<M>,
    index: u32,
    age_ns: u64,
    mut folded: Folded,
) -> (Reading, u64) {
    // Shards are read one after the other, so a return may be in whose charge is not: no usage is below 0.
    let below_zero = folded.totals[0].min(0).unsigned_abs();
    folded.totals[0] = folded.totals[0].max(0);
    let mut reading = reading(tree, age_ns, folded);
    let usage = &mut reading.values[0];
    usage.lo = usage.lo.max(0);
    read_eager(tree, index, &mut reading.values, &mut reading.own);
    (reading, below_zero)
}

/// Takes what is folded of a group if nothing is marked there and below: then it is all that there is. If something is, returns
/// the group's roster, if it has one.
fn folded_if_unmarked<M: Machine>(
    tree: &Tree<M>,
    index: u32,
) -> Result<Folded, Option<Arc<Roster<M>>>> {
    let node = tree.node(index);
    let sample = node.sample();
    // Under this lock, marks are only removed with it held, after what they stood for was folded and handed up.
    let mut fold = node.fold.lock();
    if !node.is_unmarked() {
        return Err(fold.roster.clone());
    }
    fold.settle(sample, 0);
    Ok(Folded {
        totals: fold.totals.clone(),
        own: fold.own.clone(),
        errors: vec![Some(0); tree.layout.columns.len()],
        is_absorbed: fold.is_absorbed,
    })
}

/// Takes what is folded of a group, in one step.
pub(super) fn folded<M: Machine>(tree: &Tree<M>, index: u32) -> Folded {
    let node = tree.node(index);
    let layout = &tree.layout;
    let fold = node.fold.lock();
    // Full: an update's publication is counted before the update returns.
    let publications = node
        .publications
        .load(MemoryOrder::Full)
        .wrapping_sub(fold.sampled_publications);
    // A slot that the last walk left marked takes updates without another publication.
    let slots = publications.saturating_add(fold.left);
    let error = |(column, declared): (usize, &Column)| match (slots, declared.batch) {
        (0, _) => Some(0),
        // Eager statistics do not wait for a flush.
        _ if declared.word.is_none() => Some(0),
        (_, 0) => None,
        (_, batch) => {
            let sampled = fold.sampled_reports.get(column).copied().unwrap_or(0);
            // Full: pairs with `report`.
            let reported = node.reported[column]
                .load(MemoryOrder::Full)
                .wrapping_sub(sampled);
            // Each of these slots holds back less than a batch on either side of its folded value.
            let held_back = slots.saturating_mul(batch.saturating_mul(2));
            Some(reported.saturating_add(held_back))
        }
    };
    let errors = layout.columns.iter().enumerate().map(error).collect();
    Folded {
        totals: fold.totals.clone(),
        own: fold.own.clone(),
        errors,
        is_absorbed: fold.is_absorbed,
    }
}

/// A reading of these numbers.
pub(super) fn reading<M: Machine>(tree: &Tree<M>, age_ns: u64, folded: Folded) -> Reading {
    let layout = &tree.layout;
    let Folded {
        totals,
        mut own,
        errors,
        ..
    } = folded;
    own.truncate(layout.columns.len());
    let values = totals.iter().zip(errors);
    let share = |(index, column): (usize, &Column)| {
        let first = column.per_node?;
        Some((index, totals[first..=first + tree.machine.nodes()].to_vec()))
    };
    Reading {
        statistics: layout.statistics,
        fingerprint: layout.fingerprint,
        age: Duration::from_nanos(age_ns),
        values: values
            .map(|(&total, error)| Value::within(total, error))
            .collect(),
        own,
        over_returned: 0,
        per_node: layout.columns[1..]
            .iter()
            .enumerate()
            .filter_map(share)
            .collect(),
    }
}

fn read_eager<M: Machine>(tree: &Tree<M>, index: u32, values: &mut [Value], own: &mut [i64]) {
    if tree.layout.eager == 0 {
        return;
    }
    // Full: pairs with `add_eager`.
    let read = |at: u32, word: usize| tree.node(at).eager[word].load_signed(MemoryOrder::Full);
    // The children come first, so that what is added meanwhile is the group's own. Under the lock, a name has its record.
    let mut below = vec![0_i64; tree.layout.eager];
    tree.for_each_child(index, |_, child| {
        for (word, sum) in below.iter_mut().enumerate() {
            *sum = sum.wrapping_add(read(child, word));
        }
    });
    let eager = (1..values.len()).filter(|&column| tree.layout.columns[column].word.is_none());
    for ((word, below), column) in below.into_iter().enumerate().zip(eager) {
        let value = read(index, word);
        values[column] = Value::within(value, Some(0));
        own[column] = value.wrapping_sub(below);
    }
}

/// Brings the totals of `scope` up to date: they include each update that returned before this call.
///
/// Returns whether walks of this scope have looked at many slots since a reader was last told so.
#[doc(alias = "css_rstat_flush")]
pub(crate) fn flush<M: Machine>(tree: &Tree<M>, scope: u32, keep: Keep) -> bool {
    let turns = &tree.node(scope).turns;
    if turns.wait(&tree.machine) {
        // Relaxed, here and below: these counts only inform.
        turns.joined.fetch_add(1, MemoryOrder::Relaxed);
        return false;
    }
    let walked = match tree.policy {
        FlushPolicy::CombiningFence => retire::walk_and_retire_all(tree, scope),
        FlushPolicy::Combining | FlushPolicy::PeriodicOnly => tree.walk(scope),
    };
    turns.finish();
    if walked.is_calm && keep == Keep::Roster {
        make_roster(tree, scope);
    }
    count_slots(tree, scope, walked.slots)
}

/// Counts slots that a read of `scope` looked at. Returns what [`flush`] returns.
pub(super) fn count_slots<M: Machine>(tree: &Tree<M>, scope: u32, slots: u64) -> bool {
    // Relaxed: a count.
    let before = tree
        .node(scope)
        .turns
        .slots
        .fetch_add(slots, MemoryOrder::Relaxed);
    before / MANY_SLOTS != before.wrapping_add(slots) / MANY_SLOTS
}

pub(crate) fn flush_counts<M: Machine>(tree: &Tree<M>) -> FlushCounts {
    let (fences, retired) = tree.retirer.counts();
    let mut counts = FlushCounts {
        fences,
        retired,
        ..FlushCounts::default()
    };
    for index in 0..tree.records() {
        let turns = &tree.node(index).turns;
        let walks = turns.word.load(MemoryOrder::Relaxed) / DONE_ONE;
        match index {
            ROOT => counts.root = walks,
            _ => counts.subtree += walks,
        }
        counts.joined += turns.joined.load(MemoryOrder::Relaxed);
        counts.rosters += turns.rosters.load(MemoryOrder::Relaxed);
        counts.slots += turns.slots.load(MemoryOrder::Relaxed);
    }
    counts
}

#[cfg(test)]
mod tests {
    use bursar_machine::Host;

    use super::super::fixture::{OPEN, ROWS, STATISTICS, add, child, marked, tree, tree_of};
    use super::super::{retire, snapshot};
    use super::*;

    fn exact_rows(tree: &Tree<Host>, index: u32) -> i64 {
        let reading = exact(tree, index, Keep::Roster).expect("reads may walk");
        reading.get(ROWS).value
    }

    #[test]
    fn a_read_of_a_group_without_children_is_no_walk() {
        let tree = tree();
        let group = child(&tree, ROOT, "group");
        for read in 1..5 {
            add(&tree, group, ROWS, 1);
            assert_eq!(exact_rows(&tree, group), read);
            let counts = flush_counts(&tree);
            assert_eq!((counts.subtree, counts.slots), (0, read as u64));
        }
    }

    /// The first read walks. So does the second, which finds nothing new in use and makes a roster.
    #[test]
    fn a_third_read_of_the_same_slots_is_by_roster() {
        let tree = tree();
        let tenant = child(&tree, ROOT, "tenant");
        let query = child(&tree, tenant, "query");
        for read in 1..6 {
            add(&tree, query, ROWS, 1);
            assert_eq!(exact_rows(&tree, tenant), read);
            let counts = flush_counts(&tree);
            let walks = read.min(2) as u64;
            assert_eq!(counts.subtree, walks);
            assert_eq!(counts.rosters, read as u64 - walks);
            assert_eq!(counts.slots, read as u64);
        }
        // One that keeps folded numbers for others has no use for a roster.
        for walks in 3..6 {
            exact(&tree, tenant, Keep::Folded).expect("reads may walk");
            assert_eq!(flush_counts(&tree).subtree, walks);
        }
    }

    #[test]
    fn a_walk_for_others_makes_no_roster() {
        let tree = tree();
        let tenant = child(&tree, ROOT, "tenant");
        add(&tree, child(&tree, tenant, "query"), ROWS, 1);
        for _ in 0..3 {
            flush(&tree, tenant, Keep::Folded);
        }
        assert!(tree.node(tenant).fold.lock().roster.is_none());
    }

    /// Half of the reads are of a leaf, which no walk serves, and half by roster.
    #[test]
    fn reads_retire_slots_after_they_have_looked_at_many() {
        for is_leaf in [true, false] {
            let tree = tree_of(STATISTICS, Duration::from_nanos(1), 64);
            let tenant = child(&tree, ROOT, "tenant");
            let query = child(&tree, tenant, "query");
            let read = if is_leaf { query } else { tenant };
            add(&tree, query, ROWS, 1);
            let mut fences = Vec::new();
            for looked_at in 1..=3 * MANY_SLOTS {
                assert_eq!(exact_rows(&tree, read), 1);
                if flush_counts(&tree).fences > fences.len() as u64 {
                    fences.push(looked_at);
                }
            }
            // The first step finds that the slot has changed since the tree was made.
            assert_eq!(fences, [2 * MANY_SLOTS]);
            assert!(marked(&tree, query).is_empty());
        }
    }

    #[test]
    fn counts_are_sums_over_all_groups() {
        let tree = tree();
        let groups = [child(&tree, ROOT, "a"), child(&tree, ROOT, "b")];
        for (index, count) in groups.into_iter().zip([3, 4]) {
            let turns = &tree.node(index).turns;
            turns.joined.store(count, MemoryOrder::Full);
            turns.rosters.store(10 * count, MemoryOrder::Full);
            turns.slots.store(100 * count, MemoryOrder::Full);
            turns.word.store(DONE_ONE * count, MemoryOrder::Full);
        }
        let counts = flush_counts(&tree);
        assert_eq!((counts.joined, counts.rosters), (7, 70));
        assert_eq!((counts.slots, counts.subtree, counts.root), (700, 7, 0));
    }

    /// Usage is known without a range once nothing is marked, whatever the limits' counters hold in stock.
    #[test]
    fn the_usage_has_the_range_of_others_only_while_it_is_unknown() {
        let tree = tree();
        let group = child(&tree, ROOT, "group");
        let usage = || cached(&tree, group, (-5, 50)).usage();
        assert_eq!((usage().lo, usage().hi), (0, 0));
        add(&tree, group, ROWS, 1);
        assert_eq!((usage().lo, usage().hi), (-5, 50));
        tree.walk(group);
        assert_eq!((usage().lo, usage().hi), (-5, 50), "its slot is in use");
        for _ in 0..2 {
            retire(&tree);
        }
        assert_eq!((usage().lo, usage().hi), (0, 0));
    }

    #[test]
    fn eager_statistics_of_a_snapshot_are_exact() {
        let tree = tree();
        let group = child(&tree, ROOT, "group");
        add(&tree, group, ROWS, 1);
        add(&tree, group, OPEN, 3);
        let parts = snapshot(&tree, ROOT, false, |_| (0, 0), |_| ());
        for part in &parts {
            let open = part.reading.get(OPEN);
            assert_eq!((open.value, open.error()), (3, 0));
            assert_eq!(part.reading.get(ROWS).error(), u64::MAX);
        }
        assert_eq!(parts.len(), 2);
    }
}
