//! A small tree on this machine, for the tests of this folder.

use std::time::Duration;

use bursar_machine::host::{allowed_cpus, pin_to};
use bursar_machine::{AtomicWord, Host, Machine, MemoryOrder, STATE, Shard, Slot, State};

use super::{Counter, FlushPolicy, Gauge, Layout, Place, Statistic, Tree, sealed::Sealed};

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

/// A tree whose calling thread stays on one CPU. Readers retire idle slots after `retire_period`.
pub(super) fn tree_with(retire_period: Duration, shards_per_slice: usize) -> Tree<Host> {
    pin_to(allowed_cpus()[0]).expect("an allowed CPU");
    let machine = Host::start().expect("this machine is known");
    let layout = Layout::new(STATISTICS, machine.nodes()).expect("the declaration is right");
    let periods = (Duration::MAX, retire_period);
    let tree = Tree::new(
        machine,
        layout,
        FlushPolicy::Combining,
        periods,
        shards_per_slice,
    );
    tree.expect("there is memory")
}

pub(super) fn tree() -> Tree<Host> {
    tree_with(Duration::MAX, 64)
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
