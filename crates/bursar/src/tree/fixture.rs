//! Small trees of tests, on one CPU of the host.

use std::sync::Arc;
use std::time::Duration;

use bursar_machine::host::{allowed_cpus, pin_to};
use bursar_machine::{AtomicWord, Host, Lock, Machine, MemoryOrder, STATE, Shard, Slot, State};

use super::fold::SHARDS_PER_HOLD;
use super::roster::Roster;
use super::sealed::Sealed;
use super::{Counter, FlushPolicy, Gauge, Keep, Layout, Place, ROOT, Statistic, Tree, exact};

pub(super) const STATISTICS: &[Statistic] = &[
    Statistic::counter("rows").per_node(),
    Statistic::gauge("batched").batch(100),
    Statistic::gauge("open").eager(),
    Statistic::gauge("shut").eager(),
];
pub(super) const ROWS: Counter = Counter::from_name(STATISTICS, "rows");
pub(super) const BATCHED: Gauge = Gauge::from_name(STATISTICS, "batched");
pub(super) const OPEN: Gauge = Gauge::from_name(STATISTICS, "open");
pub(super) const SHUT: Gauge = Gauge::from_name(STATISTICS, "shut");

/// The column of rows.
pub(super) const ROWS_COLUMN: usize = 1;

/// A tree with these statistics. Readers retire idle slots after `retire_period`. The caller stays on one CPU, so all that it adds to a
/// group is in one slot.
pub(super) fn tree_of(
    statistics: &'static [Statistic],
    retire_period: Duration,
    shards_per_hold: usize,
) -> Tree<Host> {
    pin_to(allowed_cpus()[0]).expect("the CPU is allowed");
    let machine = Host::start().expect("the host starts");
    let own = machine.current_shard().index();
    assert!(own < machine.cpus(), "BURSAR_CPUS leaves this CPU no shard");
    let layout = Layout::new(statistics, machine.nodes()).expect("the statistics can be used");
    let tree = Tree::new(
        machine,
        layout,
        FlushPolicy::Combining,
        (Duration::MAX, retire_period),
        shards_per_hold,
    );
    tree.expect("there is memory")
}

pub(super) fn tree() -> Tree<Host> {
    tree_of(STATISTICS, Duration::MAX, SHARDS_PER_HOLD)
}

/// A tree with one group below the root, which has three rows on this CPU and four on the extra shard.
pub(super) fn tree_with_rows(shards_per_hold: usize) -> (Tree<Host>, u32) {
    let tree = tree_of(STATISTICS, Duration::MAX, shards_per_hold);
    let group = child(&tree, ROOT, "group");
    add_rows(&tree, group, 3);
    add_extra(&tree, group, 4);
    (tree, group)
}

pub(super) fn child(tree: &Tree<Host>, parent: u32, name: &str) -> u32 {
    let made = tree.create(parent, name, |_| true, |_| true, |_| ());
    made.expect("the name is free")
}

pub(super) fn place(handle: impl Sealed) -> Place {
    handle.resolve().0
}

pub(super) fn add(tree: &Tree<Host>, index: u32, handle: impl Sealed, delta: i64) {
    tree.add(index, &tree.node(index).slot, place(handle), delta);
}

pub(super) fn state(tree: &Tree<Host>, index: u32, shard: Shard) -> State {
    let word = tree.node(index).slot.word(shard, STATE);
    State(word.load(MemoryOrder::Full))
}

/// The shards that are marked in a group.
pub(super) fn marked(tree: &Tree<Host>, index: u32) -> Vec<u32> {
    let mut marked = Vec::new();
    tree.node(index).published.peek(|shard| marked.push(shard));
    marked
}

/// Adds rows on this CPU.
pub(super) fn add_rows(tree: &Tree<Host>, group: u32, rows: i64) {
    add(tree, group, ROWS, rows);
}

/// Adds rows on the extra shard.
pub(super) fn add_extra(tree: &Tree<Host>, group: u32, rows: i64) {
    tree.node(group)
        .slot
        .add_extra(usize::from(place(ROWS).word), rows);
    tree.publish(group, tree.extra());
}

/// Adds rows as a section that saw the slot published before it was cleaned.
pub(super) fn add_late(tree: &Tree<Host>, group: u32, shard: Shard, rows: i64) {
    let slot = &tree.node(group).slot;
    let word = slot.word(shard, usize::from(place(ROWS).word));
    word.fetch_add_signed(rows, MemoryOrder::Full);
}

/// Reads a group's rows, and may leave a roster.
pub(super) fn rows(tree: &Tree<Host>, group: u32) -> i64 {
    let reading = exact(tree, group, Keep::Roster).expect("reads may walk");
    reading.get(ROWS).value
}

pub(super) fn roster(tree: &Tree<Host>, group: u32) -> Option<Arc<Roster<Host>>> {
    tree.node(group).fold.lock().roster.clone()
}
