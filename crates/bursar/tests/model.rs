//! Random operations against a naive model: a tree of groups whose numbers are added up by walking it.

mod common;

use std::collections::BTreeMap;

use bursar::{Charge, ChargeError, Freshness, Group, Limits, Memory};
use common::{BALANCE, BATCHED, EAGER, ROWS, Random, Task, memory, seed};

/// Usage, rows, balance, eager, batched.
type Numbers = [i64; 5];

struct ModelGroup {
    parent: Option<usize>,
    /// Of itself, of removed children, of children whose last handle is gone.
    own: Numbers,
    max: u64,
    handle: Group,
    is_removed: bool,
}

struct Held {
    /// Where it was charged, or whoever took that group's numbers when its last handle went.
    group: usize,
    charge: Charge,
    is_orphan: bool,
}

struct Model {
    memory: Memory,
    groups: BTreeMap<usize, ModelGroup>,
    next: usize,
    held: Vec<Held>,
    random: Random,
}

impl Model {
    fn new(seed: u64) -> Self {
        let memory = memory();
        let root = ModelGroup {
            parent: None,
            own: [0; 5],
            max: u64::MAX,
            handle: memory.root(),
            is_removed: false,
        };
        Self {
            memory,
            groups: BTreeMap::from([(0, root)]),
            next: 1,
            held: Vec::new(),
            random: Random(seed),
        }
    }

    fn any_group(&mut self) -> usize {
        let at = self.random.below(self.groups.len());
        *self.groups.keys().nth(at).unwrap()
    }

    fn way(&self, group: usize) -> Vec<usize> {
        std::iter::successors(Some(group), |at| self.groups[at].parent).collect()
    }

    /// A removed group's numbers are its parent's own; where it was removed itself, of the next above.
    fn account(&self, group: usize) -> usize {
        *self
            .way(group)
            .iter()
            .find(|at| !self.groups[at].is_removed)
            .unwrap()
    }

    fn total(&self, group: usize) -> Numbers {
        let mut sum = self.groups[&group].own;
        for (&child, _) in self
            .groups
            .iter()
            .filter(|(_, child)| child.parent == Some(group))
        {
            if !self.groups[&child].is_removed {
                let part = self.total(child);
                sum.iter_mut()
                    .zip(part)
                    .for_each(|(sum, part)| *sum += part);
            }
        }
        sum
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
        if self.groups.len() > 40 {
            return;
        }
        let parent = self.any_group();
        let max = match self.random.below(3) {
            0 => 1 << (self.random.below(8) + 14),
            _ => u64::MAX,
        };
        let name = format!("g{}", self.random.below(30));
        let exists = self.groups.values().any(|group| {
            group.parent == Some(parent) && !group.is_removed && group.handle.name() == name
        });
        let made = self.groups[&parent].handle.child(&name, Limits::max(max));
        let expected = !exists && !self.groups[&parent].is_removed;
        assert_eq!(made.is_ok(), expected, "{made:?}");
        if let Ok(handle) = made {
            let group = ModelGroup {
                parent: Some(parent),
                own: [0; 5],
                max,
                handle,
                is_removed: false,
            };
            self.groups.insert(self.next, group);
            self.next += 1;
        }
    }

    fn remove(&mut self) {
        let group = self.any_group();
        if group == 0 {
            return;
        }
        let has_children = self
            .groups
            .values()
            .any(|other| other.parent == Some(group));
        if !self.groups[&group].is_removed {
            let living = self
                .groups
                .values()
                .any(|other| other.parent == Some(group) && !other.is_removed);
            let removed = self.groups[&group].handle.remove();
            assert_eq!(removed.is_ok(), !living);
            if living {
                return;
            }
            let own = self.groups[&group].own;
            self.groups.get_mut(&group).unwrap().own = [0; 5];
            self.groups.get_mut(&group).unwrap().is_removed = true;
            let account = self.account(group);
            self.give(account, own);
        }
        // Sometimes the handle goes as well, and the record may be used again.
        if !has_children && self.random.below(2) == 0 {
            let account = self.account(group);
            for held in self.held.iter_mut().filter(|held| held.group == group) {
                held.group = account;
                held.is_orphan = true;
            }
            self.groups.remove(&group);
        }
    }

    /// Closes a group with all that is below.
    fn close(&mut self) {
        let group = self.any_group();
        let handle = self.groups[&group].handle.clone();
        assert_eq!(handle.close().is_ok(), group != 0);
        if group == 0 {
            return;
        }
        let below = |model: &Self, at: usize| model.way(at).contains(&group);
        let mut closed: Vec<usize> = self.groups.keys().copied().collect();
        // Children have higher numbers than their parents, and give them what they have first.
        closed.retain(|&at| below(self, at) && !self.groups[&at].is_removed);
        for at in closed.into_iter().rev() {
            let removed = self.groups.get_mut(&at).unwrap();
            removed.is_removed = true;
            let own = std::mem::take(&mut removed.own);
            let account = self.account(at);
            self.give(account, own);
            assert!(self.groups[&at].handle.is_removed());
        }
        let is_empty = handle.reserved() == 0;
        let is_held = |held: &Held| !held.is_orphan && self.way(held.group).contains(&group);
        let held = self.held.iter().filter(|held| is_held(held));
        let bytes: usize = held.map(|held| held.charge.bytes()).sum();
        // More may be reserved: for charges of groups below whose last handle is gone.
        assert!(
            !is_empty || bytes == 0,
            "{bytes} bytes held, and none reserved"
        );
        let mut emptied = Task::new(handle.emptied());
        assert_eq!(emptied.poll().is_ready(), is_empty, "{group}");
    }

    fn give(&mut self, group: usize, numbers: Numbers) {
        let own = &mut self.groups.get_mut(&group).unwrap().own;
        own.iter_mut()
            .zip(numbers)
            .for_each(|(own, number)| *own += number);
    }

    fn set_max(&mut self) {
        let group = self.any_group();
        let max = match self.random.below(3) {
            0 => u64::MAX,
            _ => 1 << (self.random.below(10) + 12),
        };
        self.groups[&group].handle.set_max(max);
        self.groups.get_mut(&group).unwrap().max = max;
    }

    fn add(&mut self) {
        let group = self.any_group();
        let handle = &self.groups[&group].handle;
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
        let account = self.account(group);
        self.give(account, numbers);
    }

    /// Whether `bytes` more fit, by the naive rule: nothing but what is held counts.
    fn fits(&self, group: usize, end: Option<usize>, bytes: u64) -> bool {
        self.way(group)
            .iter()
            .take_while(|at| Some(**at) != end)
            .all(|at| self.usage_of(*at) + bytes <= self.groups[at].max)
    }

    /// What limits look at: also what is charged to removed groups below.
    fn usage_of(&self, group: usize) -> u64 {
        self.total(group)[0] as u64
            + if self.groups[&group].is_removed {
                self.residue(group)
            } else {
                0
            }
    }

    fn residue(&self, group: usize) -> u64 {
        self.held
            .iter()
            .filter(|held| held.group == group)
            .map(|held| held.charge.bytes() as u64)
            .sum()
    }

    fn charge(&mut self) {
        let group = self.any_group();
        let bytes = match self.random.below(4) {
            0 => self.random.below(1 << 19) + 1,
            1 => self.random.below(100),
            _ => 4096 * (self.random.below(8) + 1),
        };
        let handle = &self.groups[&group].handle;
        let charge = if self.random.below(10) == 0 {
            handle.charge(bytes)
        } else {
            let charged = handle.try_charge(bytes);
            let removed = self.groups[&group].is_removed;
            let expected = !removed && (bytes == 0 || self.fits(group, None, bytes as u64));
            assert_eq!(charged.is_ok(), expected, "{bytes} to {group}: {charged:?}");
            match charged {
                Ok(charge) => charge,
                Err(ChargeError::LimitReached(reached)) => {
                    assert!(reached.usage + bytes as u64 > reached.max, "{reached}");
                    return;
                }
                Err(_) => return,
            }
        };
        let account = self.account(group);
        self.give(account, [bytes as i64, 0, 0, 0, 0]);
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
        self.taken(held.group, held.charge.bytes() as i64);
    }

    fn taken(&mut self, group: usize, bytes: i64) {
        let account = self.account(group);
        self.give(account, [-bytes, 0, 0, 0, 0]);
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
        let wanted = self.random.below(before * 2 + 100);
        let expected = wanted <= before
            || !self.groups[&group].is_removed && self.fits(group, None, (wanted - before) as u64);
        let resized = self.held[at].charge.resize(wanted);
        assert_eq!(
            resized.is_ok(),
            expected,
            "{before} to {wanted}: {resized:?}"
        );
        if resized.is_ok() {
            let account = self.account(group);
            self.give(account, [wanted as i64 - before as i64, 0, 0, 0, 0]);
        }
    }

    fn move_charge(&mut self) {
        let Some(at) = self.any_held() else { return };
        let (from, to) = (self.held[at].group, self.any_group());
        let bytes = self.held[at].charge.bytes();
        let above = self.way(to);
        let common = *self.way(from).iter().find(|at| above.contains(at)).unwrap();
        let expected = from == to
            || !self.groups[&to].is_removed
                && (bytes == 0 || self.fits(to, Some(common), bytes as u64));
        let moved = self.held[at].charge.move_to(&self.groups[&to].handle);
        assert_eq!(moved.is_ok(), expected, "{moved:?}");
        if moved.is_ok() {
            self.held[at].group = to;
            let (from, to) = (self.account(from), self.account(to));
            self.give(from, [-(bytes as i64), 0, 0, 0, 0]);
            self.give(to, [bytes as i64, 0, 0, 0, 0]);
        }
    }

    fn check(&mut self) {
        let snapshot = self.memory.snapshot(Freshness::Exact).unwrap();
        let living = self.groups.iter().filter(|(_, group)| !group.is_removed);
        assert_eq!(snapshot.groups().len(), living.clone().count());
        for (&id, group) in living {
            let part = snapshot.get(&group.handle.path()).unwrap();
            let alone = group.handle.read(Freshness::Exact).unwrap();
            for reading in [&alone, &part.reading] {
                let seen = [
                    reading.usage().value,
                    reading.get(ROWS).value,
                    reading.get(BALANCE).value,
                    reading.get(EAGER).value,
                    reading.get(BATCHED).value,
                ];
                assert_eq!(seen, self.total(id), "group {id}");
                let own = [
                    reading.own_usage(),
                    reading.own(ROWS),
                    reading.own(BALANCE),
                    reading.own(EAGER),
                    reading.own(BATCHED),
                ];
                assert_eq!(own, group.own, "own part of group {id}");
            }
            assert!(group.handle.reserved() >= alone.usage().value as u64);
            assert_eq!(part.limits.max, group.max);
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
        assert_eq!(
            model.groups[&0]
                .handle
                .read(Freshness::Exact)
                .unwrap()
                .usage()
                .value,
            0
        );
    }
}
