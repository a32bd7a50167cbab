//! Small trees of tests, on one CPU of the host.

use std::sync::Arc;
use std::time::Duration;

use bursar_machine::host::{allowed_cpus, pin_to};
use bursar_machine::{AtomicWord, Host, Lock, Machine, MemoryOrder, Shard, Slot};

use super::fold::SHARDS_PER_HOLD;
use super::roster::Roster;
use super::schema::Column;
use super::{Counter, FlushPolicy, Keep, Layout, Place, ROOT, Statistic, Tree, exact, sealed};

/// The column of the only statistic of most trees here.
pub(super) const ROWS: usize = 1;
const STATISTICS: &[Statistic] = &[Statistic::counter("rows")];

/// A tree that counts rows.
pub(super) fn tree() -> Tree<Host> {
    tree_of(STATISTICS, SHARDS_PER_HOLD)
}

/// A tree with these statistics. The caller stays on one CPU, so all that it adds to a group is in one slot.
pub(super) fn tree_of(statistics: &'static [Statistic], shards_per_hold: usize) -> Tree<Host> {
    pin_to(allowed_cpus()[0]).expect("the CPU is allowed");
    let machine = Host::start().expect("the host starts");
    let layout = Layout::new(statistics, machine.nodes()).expect("the statistics can be used");
    let periods = (Duration::MAX, Duration::MAX);
    let tree = Tree::new(
        machine,
        layout,
        FlushPolicy::Combining,
        periods,
        shards_per_hold,
    );
    tree.expect("there is memory")
}

/// A tree with one group below the root, which has three rows on this CPU and four on the extra shard.
pub(super) fn tree_with_rows(shards_per_hold: usize) -> (Tree<Host>, u32) {
    let tree = tree_of(STATISTICS, shards_per_hold);
    let group = child(&tree, ROOT, "group");
    add(&tree, group, 3);
    add_extra(&tree, group, 4);
    (tree, group)
}

pub(super) fn child(tree: &Tree<Host>, parent: u32, name: &str) -> u32 {
    let child = tree.create(parent, name, |_| true, |_| true, |_| {});
    child.expect("the name is free")
}

/// Adds rows on this CPU.
pub(super) fn add(tree: &Tree<Host>, group: u32, rows: i64) {
    let rows_of = Counter::from_name(STATISTICS, "rows");
    tree.add(group, &tree.node(group).slot, place(rows_of), rows);
}

pub(super) fn place(counter: Counter) -> Place {
    sealed::Sealed::resolve(&counter).0
}

/// Adds rows on the extra shard.
pub(super) fn add_extra(tree: &Tree<Host>, group: u32, rows: i64) {
    tree.node(group).slot.add_extra(word(tree), rows);
    tree.publish(group, tree.extra());
}

/// Adds rows as a section that saw the slot published before it was cleaned.
pub(super) fn add_late(tree: &Tree<Host>, group: u32, shard: Shard, rows: i64) {
    let slot = &tree.node(group).slot;
    let word = slot.word(shard, word(tree));
    word.fetch_add_signed(rows, MemoryOrder::Full);
}

fn word(tree: &Tree<Host>) -> usize {
    let Column { word, .. } = tree.layout.columns[ROWS];
    word.expect("rows have a word")
}

/// Reads a group's rows, and may leave a roster.
pub(super) fn rows(tree: &Tree<Host>, group: u32) -> i64 {
    let reading = exact(tree, group, Keep::Roster).expect("reads may walk");
    reading.values[ROWS].value
}

pub(super) fn roster(tree: &Tree<Host>, group: u32) -> Option<Arc<Roster<Host>>> {
    tree.node(group).fold.lock().roster.clone()
}
