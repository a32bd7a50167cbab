//! Random operations against the model: a tree of groups whose numbers are added up by a walk.

use std::collections::BTreeMap;

use crate::common::{BALANCE, BATCHED, EAGER, ROWS, Random, Short, Task, memory, numbers, seed};
use bursar::{Charge, ChargeError, Freshness, Group, Limits, Memory};
use bursar_check::model::Tree;

struct Held {
    /// Group that was charged, or the one that took its numbers when its last handle went.
    group: usize,
    charge: Charge,
    is_orphan: bool,
}

struct Model {
    memory: Memory,
    /// Groups with a handle. Of the numbers, the first is usage; then come rows, balance, eager, batched.
    tree: Tree,
    handles: BTreeMap<usize, Group>,
    next: usize,
    held: Vec<Held>,
    random: Random,
}

impl Model {
    fn new(seed: u64) -> Self {
        let memory = memory();
        let mut tree = Tree::default();
        tree.add(0, None, "", Limits::none());
        Self {
            tree,
            handles: BTreeMap::from([(0, memory.root())]),
            memory,
            next: 1,
            held: Vec::new(),
            random: Random(seed),
        }
    }

    fn any_group(&mut self) -> usize {
        let at = self.random.below(self.handles.len());
        *self.handles.keys().nth(at).unwrap()
    }

    fn is_removed(&self, group: usize) -> bool {
        self.tree.nodes[&group].is_removed
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..6 => self.create(),
            6..8 => self.remove(),
            8..9 => self.close(),
            9..13 => self.set_max(),
            13..45 => self.add(),
            45..70 => self.charge(),
            70..85 => self.drop_charge(),
            85..92 => self.resize(),
            92..96 => self.move_charge(),
            96..97 => self.memory.tick(),
            _ => self.check(),
        }
    }

    fn create(&mut self) {
        if self.handles.len() > 40 {
            return;
        }
        let parent = self.any_group();
        let max = match self.random.below(3) {
            0 => 1 << (self.random.below(8) + 14),
            _ => u64::MAX,
        };
        let name = format!("g{}", self.random.below(30));
        let mut children = self.tree.children(parent).into_iter();
        let exists = children.any(|child| self.tree.nodes[&child].name == name);
        let made = self.handles[&parent].child(&name, Limits::max(max));
        let expected = !exists && !self.is_removed(parent);
        assert_eq!(made.is_ok(), expected, "{made:?}");
        if let Ok(handle) = made {
            self.tree
                .add(self.next, Some(parent), &name, Limits::max(max));
            self.handles.insert(self.next, handle);
            self.next += 1;
        }
    }

    fn remove(&mut self) {
        let group = self.any_group();
        if group == 0 {
            return;
        }
        let mut nodes = self.tree.nodes.values();
        let has_children = nodes.any(|other| other.parent == Some(group));
        if !self.is_removed(group) {
            let is_leaf = self.tree.children(group).is_empty();
            let removed = self.handles[&group].remove();
            assert_eq!(removed.is_ok(), is_leaf);
            if !is_leaf {
                return;
            }
            self.tree.remove(group);
        }
        // Sometimes the handle goes as well, and the record may be used again.
        if !has_children && self.random.below(2) == 0 {
            let account = self.tree.account(group);
            for held in self.held.iter_mut().filter(|held| held.group == group) {
                held.group = account;
                held.is_orphan = true;
            }
            self.handles.remove(&group);
            self.tree.nodes.remove(&group);
        }
    }

    /// Closes a group with all that is below.
    fn close(&mut self) {
        let group = self.any_group();
        let handle = self.handles[&group].clone();
        assert_eq!(handle.close().is_ok(), group != 0);
        if group == 0 {
            return;
        }
        self.tree.remove(group);
        for (&at, handle) in &self.handles {
            assert_eq!(handle.is_removed(), self.is_removed(at), "{at}");
        }
        let is_empty = handle.reserved() == 0;
        let is_held = |held: &Held| !held.is_orphan && self.tree.way(held.group).contains(&group);
        let held = self.held.iter().filter(|held| is_held(held));
        let bytes: u64 = held.map(|held| held.charge.bytes()).sum();
        // More may be reserved: for charges of groups below whose last handle is gone.
        assert!(
            !is_empty || bytes == 0,
            "{bytes} bytes held, and none reserved"
        );
        let mut emptied = Task::new(handle.emptied());
        assert_eq!(emptied.poll().is_ready(), is_empty, "{group}");
    }

    fn set_max(&mut self) {
        let group = self.any_group();
        let max = match self.random.below(3) {
            0 => u64::MAX,
            _ => 1 << (self.random.below(10) + 12),
        };
        self.handles[&group].set_max(max);
        self.tree.node(group).limits.max = max;
    }

    fn add(&mut self) {
        let group = self.any_group();
        let handle = &self.handles[&group];
        let amount = self.random.below(100) as i64 - 40;
        let mut numbers = [0; 5];
        match self.random.below(4) {
            0 => {
                handle.add(ROWS, amount.unsigned_abs());
                numbers[1] = amount.abs();
            }
            1 => {
                handle.add(BALANCE, amount);
                numbers[2] = amount;
            }
            2 => {
                handle.add(EAGER, amount);
                numbers[3] = amount;
            }
            _ => {
                handle.add(BATCHED, amount);
                numbers[4] = amount;
            }
        }
        self.tree.give(group, numbers);
    }

    /// Whether `bytes` more fit below `end`, by the naive rule: nothing but what is held counts.
    fn fits(&self, group: usize, end: Option<usize>, bytes: u64) -> bool {
        let limiting = self.tree.limiting(group, end, bytes);
        !self.is_removed(group) && (bytes == 0 || limiting.is_none())
    }

    fn charge(&mut self) {
        let group = self.any_group();
        let bytes = match self.random.below(4) {
            0 => self.random.below(1 << 19) + 1,
            1 => self.random.below(100),
            _ => 4096 * (self.random.below(8) + 1),
        } as u64;
        let handle = &self.handles[&group];
        let charge = if self.random.below(10) == 0 {
            handle.charge(bytes)
        } else {
            let charged = handle.try_charge(bytes);
            let expected = self.fits(group, None, bytes);
            assert_eq!(charged.is_ok(), expected, "{bytes} to {group}: {charged:?}");
            match charged {
                Ok(charge) => charge,
                Err(ChargeError::LimitReached(reached)) => {
                    assert!(reached.usage + bytes > reached.max, "{reached}");
                    return;
                }
                Err(_) => return,
            }
        };
        self.tree.give_bytes(group, bytes as i64);
        self.held.push(Held {
            group,
            charge,
            is_orphan: false,
        });
    }

    fn drop_charge(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.random.below(self.held.len());
        let held = self.held.swap_remove(at);
        self.tree
            .give_bytes(held.group, -(held.charge.bytes() as i64));
    }

    /// A charge whose group still has a handle.
    fn any_held(&mut self) -> Option<usize> {
        let candidates: Vec<usize> = (0..self.held.len())
            .filter(|&at| !self.held[at].is_orphan)
            .collect();
        if candidates.is_empty() {
            return None;
        }
        Some(candidates[self.random.below(candidates.len())])
    }

    fn resize(&mut self) {
        let Some(at) = self.any_held() else { return };
        let group = self.held[at].group;
        let before = self.held[at].charge.bytes();
        let wanted = self.random.below(before as usize * 2 + 100) as u64;
        let expected = wanted <= before || self.fits(group, None, wanted - before);
        let resized = self.held[at].charge.resize(wanted);
        assert_eq!(
            resized.is_ok(),
            expected,
            "{before} to {wanted}: {resized:?}"
        );
        if resized.is_ok() {
            self.tree.give_bytes(group, wanted as i64 - before as i64);
        }
    }

    fn move_charge(&mut self) {
        let Some(at) = self.any_held() else { return };
        let (from, to) = (self.held[at].group, self.any_group());
        let bytes = self.held[at].charge.bytes();
        let above = self.tree.way(to);
        let common = *self
            .tree
            .way(from)
            .iter()
            .find(|at| above.contains(at))
            .unwrap();
        let expected = from == to || self.fits(to, Some(common), bytes);
        let moved = self.held[at].charge.move_to(&self.handles[&to]);
        assert_eq!(moved.is_ok(), expected, "{moved:?}");
        if moved.is_ok() {
            self.held[at].group = to;
            self.tree.give_bytes(from, -(bytes as i64));
            self.tree.give_bytes(to, bytes as i64);
        }
    }

    fn check(&mut self) {
        for id in self.tree.living() {
            let total = self.tree.total(id);
            let cached = self.handles[&id].read(Freshness::Cached).unwrap();
            for (value, truth) in [(cached.usage(), total[0]), (cached.get(BATCHED), total[4])] {
                assert!(
                    value.lo <= truth && truth <= value.hi,
                    "{value:?} excludes {truth} of group {id}"
                );
            }
        }
        let snapshot = self.memory.snapshot(Freshness::Exact).unwrap();
        assert_eq!(snapshot.groups().len(), self.tree.living().count());
        for id in self.tree.living() {
            let (node, handle) = (&self.tree.nodes[&id], &self.handles[&id]);
            let part = snapshot.get(&handle.path()).unwrap();
            let total = self.tree.total(id);
            let alone = handle.exact();
            for reading in [&alone, &part.reading] {
                let found = numbers(reading);
                assert_eq!(found.map(|(value, _)| value), total, "group {id}");
                assert_eq!(found.map(|(_, own)| own), node.own, "own part of {id}");
            }
            assert!(handle.reserved() >= alone.usage().value as u64);
            assert_eq!(part.limits.max, node.limits.max);
        }
    }
}

#[test]
fn random_operations_agree_with_the_model() {
    let seed = seed();
    for round in 0..12 {
        let mut model = Model::new(seed + round);
        for _ in 0..1500 {
            model.step();
        }
        model.check();
        while !model.held.is_empty() {
            model.drop_charge();
        }
        model.check();
        assert_eq!(model.handles[&0].used(), 0);
    }
}
