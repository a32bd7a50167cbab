//! Retiring idle slots: they leave the marks, so that walks meet only what is in use now.
//!
//! A slot that was published stays so, and marked, while it is in use: walks change nothing. A slot that did not change between
//! two passes is retired, in nobody's way:
//!
//! 1. Its state becomes `Clean` in a new epoch. The marks stay. From here on an update publishes again.
//! 2. One fence serves all slots of a step. After it, no section commits that saw the slot published.
//! 3. Under the lock of the group's fold: the slot is folded, and its mark removed. If its state is not that `Clean` any more, an
//!    updater has published it, and may have found the mark still set: the mark is set again, before the lock is released.
//! 4. A group without marks hands its numbers up and leaves the marks of its parent, under the locks of both folds. Again a second
//!    look finds an updater that came meanwhile.
//!
//! A walk looks at marks under the same locks. So it finds a mark, or numbers that were folded before the mark was removed.
//!
//! A pass goes over the whole tree in steps of bounded size; [`crate::Memory::tick`] does one, and so does a reader now and then,
//! after it has its answer.

use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder, STATE, Shard, Slot, State};

use super::fold::Fold;
use super::node::Node;
use super::turns::Stop;
use super::walk::Walked;
use super::{FlushPolicy, ROOT, Tree};

/// Groups and slots that a step looks at, so that it takes about as long as its fence. Judgement.
const LOOKED_AT_BY_STEP: usize = 1024;

/// Steps of one pass in a period, at most. With the default period a fence each millisecond takes 0.1 % of a CPU's time. Judgement.
const STEPS_A_PERIOD: u64 = 10;

/// A slot that is clean and marked.
struct Idle {
    index: u32,
    shard: Shard,
    /// Its epoch.
    epoch: u64,
}

/// Slots that a step retires.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Slots that did not change between two passes.
    Unchanged,
    All,
}

/// Does a step of a pass if one is due and no other task does it. With [`FlushPolicy::CombiningFence`] readers retire all that
/// they visit anyway.
pub(super) fn retire_if_due<M: Machine>(tree: &Tree<M>, now_ns: u64) {
    if tree.policy == FlushPolicy::CombiningFence {
        return;
    }
    let retirer = &tree.retirer;
    // Relaxed: a time, and nothing else is read by it.
    let is_due = || now_ns >= retirer.due_ns.load(MemoryOrder::Relaxed);
    if is_due()
        && let Some(mut way) = retirer.way.try_lock()
        && is_due()
    {
        retire_some(tree, &mut way);
    }
}

/// Does a step of a pass.
pub(crate) fn retire<M: Machine>(tree: &Tree<M>) {
    if let Some(mut way) = tree.retirer.way.try_lock() {
        retire_some(tree, &mut way);
    }
}

fn retire_some<M: Machine>(tree: &Tree<M>, way: &mut Vec<Stop>) {
    let retirer = &tree.retirer;
    let now_ns = tree.machine.now_ns();
    if way.is_empty() {
        way.push(Stop {
            index: ROOT,
            next: None,
        });
    }
    retire_step(tree, way, LOOKED_AT_BY_STEP, Which::Unchanged);
    // A pass over a large tree takes many steps. If they came no faster than passes, slots would come faster than they go.
    let pause_ns = match way.is_empty() {
        true => retirer.period_ns,
        false => retirer.period_ns / STEPS_A_PERIOD,
    };
    // Relaxed: as in `retire_if_due`.
    retirer
        .due_ns
        .store(now_ns.saturating_add(pause_ns), MemoryOrder::Relaxed);
}

/// Brings the totals of `scope` up to date and retires all slots below it that are in no update's hands.
/// Its slots are the groups and slots that it looked at.
pub(super) fn walk_and_retire_all<M: Machine>(tree: &Tree<M>, scope: u32) -> Walked {
    let began_ns = tree.machine.now_ns();
    let mut way = vec![Stop {
        index: scope,
        next: None,
    }];
    let looked_at = retire_step(tree, &mut way, usize::MAX, Which::All);
    tree.end_walk(scope, began_ns);
    Walked {
        slots: looked_at as u64,
        is_calm: false,
    }
}

/// Returns how many groups and slots it looked at.
fn retire_step<M: Machine>(
    tree: &Tree<M>,
    way: &mut Vec<Stop>,
    most: usize,
    which: Which,
) -> usize {
    let (mut idle, mut done) = (Vec::new(), Vec::new());
    let mut looked_at = 0;
    while looked_at < most
        && let Some(stop) = way.last_mut()
    {
        looked_at += 1;
        let node = tree.node(stop.index);
        match stop.next {
            None => {
                looked_at += collect_idle(tree, stop.index, which, &mut idle);
                stop.next = Some(0);
            }
            Some(from) => match next_marked_child(node, from) {
                Some((ordinal, child)) => {
                    stop.next = Some(ordinal + 1);
                    way.push(Stop {
                        index: child,
                        next: None,
                    });
                }
                None => {
                    done.push(stop.index);
                    way.pop();
                }
            },
        }
    }
    if !idle.is_empty() {
        tree.retirer.fences.fetch_add(1, MemoryOrder::Relaxed);
        // This fence pairs with the sections of all CPUs: none commits after it that saw one of these slots published.
        tree.machine.fence();
    }
    for idle in idle.chunk_by(|one, other| one.index == other.index) {
        // Before their marks go: a reader by roster that still sees the old count has read marked slots.
        tree.count(idle[0].index, |node| &node.retirements);
        for some in idle.chunks(tree.shards_per_hold) {
            unmark_idle(tree, some);
        }
    }
    // Children before their parents.
    for index in done {
        leave_parent(tree, index);
    }
    looked_at
}

/// Folds the marked slots of a group, and cleans those to retire. Returns how many it looked at.
fn collect_idle<M: Machine>(
    tree: &Tree<M>,
    index: u32,
    which: Which,
    idle: &mut Vec<Idle>,
) -> usize {
    let node = tree.node(index);
    let mut looked_at = 0;
    let mut from = Some(0);
    while let Some(at) = from {
        from = tree.fold_some(&mut node.fold.lock(), index, at, |fold, shard| {
            looked_at += 1;
            let is_idle = fold.is_idle(&tree.layout, shard) || which == Which::All;
            if let Some(epoch) = is_idle.then(|| node.clean_published(shard)).flatten() {
                idle.push(Idle {
                    index,
                    shard,
                    epoch,
                });
            }
        });
    }
    looked_at
}

/// The first marked child from an ordinal on. Removes marks that outlived their children.
fn next_marked_child<M: Machine>(node: &Node<M>, mut from: u32) -> Option<(u32, u32)> {
    loop {
        let mut first = None;
        {
            let _fold = node.fold.lock();
            node.dirty.peek_from(from, |ordinal| {
                first = Some(ordinal);
                false
            });
        }
        let ordinal = first?;
        // Lock order: children before fold.
        let children = node.children.lock();
        if let Some(&Some(child)) = children.ordinals.get(ordinal as usize) {
            return Some((ordinal, child));
        }
        let _fold = node.fold.lock();
        // No second look: a child that is born here later marks after its birth, for which it needs the lock of the children.
        node.dirty.unmark(ordinal);
        from = ordinal + 1;
    }
}

/// Removes the marks of slots of one group that are still clean after the fence.
fn unmark_idle<M: Machine>(tree: &Tree<M>, idle: &[Idle]) {
    let index = idle[0].index;
    let node = tree.node(index);
    let mut fold = node.fold.lock();
    for &Idle { shard, epoch, .. } in idle {
        tree.fold_shard(&mut fold, index, shard);
        node.published.unmark(shard.0);
        // Full: pairs with the begin of a publication. Either we see it, or its marks come after ours is removed.
        let state = State(node.slot.word(shard, STATE).load(MemoryOrder::Full));
        if state.tag() == State::CLEAN && state.epoch() == epoch {
            tree.retirer.retired.fetch_add(1, MemoryOrder::Relaxed);
        } else {
            node.published.mark(shard.0);
        }
    }
}

/// Hands a group's numbers up, and removes it from its parent's marks if it has none itself.
fn leave_parent<M: Machine>(tree: &Tree<M>, index: u32) {
    let node = tree.node(index);
    let sample = node.sample();
    // Freed when no lock is held any more.
    let mut old = None;
    let mut look = |fold: &mut Fold<M>| {
        let is_unmarked = node.is_unmarked();
        // Without marks, no read needs a roster, and the next publication makes it wrong.
        old = fold
            .roster
            .take_if(|roster| is_unmarked || node.has_outgrown(roster));
        is_unmarked
    };
    let Some(parent) = node.parent() else {
        let mut fold = node.fold.lock();
        if look(&mut fold) {
            fold.settle(sample, 0);
        }
        return;
    };
    tree.with_both(parent, index, |above, fold| {
        fold.hand_up(above);
        if !look(fold) {
            return;
        }
        fold.settle(sample, 0);
        let dirty = &tree.node(parent).dirty;
        let ordinal = node.ordinal();
        dirty.unmark(ordinal);
        // Full, in here: pairs with the marks of a publication, which sets ours after the group's own. Either we see its mark
        // in the group, or its mark of the group comes after we removed it.
        if !node.is_unmarked() {
            dirty.mark(ordinal);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bursar_machine::Host;

    use super::super::fixture::{ROWS, STATISTICS, add, child, marked, tree, tree_of};
    use super::super::{Keep, exact};
    use super::*;

    fn step(tree: &Tree<Host>, most: usize) -> usize {
        let mut way = vec![Stop {
            index: ROOT,
            next: None,
        }];
        retire_step(tree, &mut way, most, Which::Unchanged)
    }

    /// The root has no slot in use. Each of its children has one, and is looked at when a pass comes and when it goes.
    #[test]
    fn a_step_looks_at_as_much_as_it_may() {
        let tree = tree();
        for name in ["a", "b", "c"] {
            add(&tree, child(&tree, ROOT, name), ROWS, 1);
        }
        assert_eq!(step(&tree, 1), 1);
        assert_eq!(step(&tree, 2), 2);
        assert_eq!(step(&tree, 3), 4, "a child, and its slot");
        // The root, three times a look for its next child, and the look that finds none; each child twice, and its slot.
        assert_eq!(step(&tree, usize::MAX), 1 + 3 + 1 + 3 * 3);
    }

    #[test]
    fn a_slot_that_changes_is_not_retired() {
        let tree = tree();
        let group = child(&tree, ROOT, "group");
        for _ in 0..3 {
            add(&tree, group, ROWS, 1);
            retire(&tree);
            assert_eq!(tree.retirer.counts(), (0, 0));
        }
        assert_eq!(marked(&tree, group).len(), 1);
        retire(&tree);
        assert_eq!(tree.retirer.counts(), (1, 1));
        assert!(marked(&tree, group).is_empty());
        assert!(tree.node(ROOT).is_unmarked());
        retire(&tree);
        assert_eq!(tree.retirer.counts(), (1, 1), "no fence for nothing");
    }

    #[test]
    fn a_group_without_marks_has_no_roster() {
        let tree = tree();
        let tenant = child(&tree, ROOT, "tenant");
        add(&tree, child(&tree, tenant, "query"), ROWS, 1);
        let has_roster = || tree.node(tenant).fold.lock().roster.is_some();
        for is_there in [false, true] {
            exact(&tree, tenant, Keep::Roster).expect("reads may walk");
            assert_eq!(has_roster(), is_there);
        }
        retire(&tree);
        assert!(has_roster(), "its slot is in use");
        retire(&tree);
        assert!(!has_roster());
    }

    #[test]
    fn a_pass_that_needs_many_steps_takes_them_sooner() {
        const PERIOD: Duration = Duration::from_secs(1_000_000);
        let tree = tree_of(STATISTICS, PERIOD, 64);
        let period = PERIOD.as_nanos() as u64;
        for at in 0..LOOKED_AT_BY_STEP {
            add(&tree, child(&tree, ROOT, &at.to_string()), ROWS, 1);
        }
        let due_in = || {
            let before = tree.machine.now_ns();
            retire(&tree);
            let due = tree.retirer.due_ns.load(MemoryOrder::Full);
            let is_over = tree.retirer.way.lock().is_empty();
            // The clock may have moved on a little.
            (is_over, (due - before) * 1000 / period)
        };
        assert_eq!(due_in(), (false, 100));
        while !tree.retirer.way.lock().is_empty() {
            let (is_over, due) = due_in();
            assert_eq!(due, if is_over { 1000 } else { 100 });
        }
    }
}
