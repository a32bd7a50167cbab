//! Groups three deep that threads work on. Each thread records its work, so that a forked child can compare.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};

use bursar::{Charge, Group, Limits, Memory, Reading};
use bursar_check::model::{Flow, Shape};

use super::{BALANCE, BATCHED, EAGER, ROWS, Random, Short, memory, numbers};

pub const THREADS: usize = 5;
pub const FORKS: usize = 300;
/// So tight that charges are refused, stock is taken back and drains run all the time.
pub const TENANT_MAX: u64 = 600 << 10;
pub const QUERY_MAX: u64 = 400 << 10;

/// Changes of one group, counted before and after each. Wherever a thread was when its memory was copied, the truth is within the
/// bounds.
#[derive(Default)]
pub struct Note {
    rows: Flow,
    bytes: Flow,
    eager: Flow,
}

impl Note {
    pub fn add(&self, group: &Group) {
        self.rows.change(1, || group.add(ROWS, 1));
    }

    pub fn add_eager(&self, group: &Group, delta: i64) {
        self.eager.change(delta, || group.add(EAGER, delta));
    }

    pub fn charge<E>(
        &self,
        bytes: u64,
        charge: impl FnOnce(u64) -> Result<Charge, E>,
    ) -> Option<Charge> {
        self.bytes.attempt(bytes, charge).ok()
    }

    pub fn uncharge(&self, charge: Charge) {
        self.bytes.give_back(charge.bytes(), || drop(charge));
    }
}

/// A memory with groups three deep, and what was done to them.
pub struct World {
    pub memory: Memory,
    pub groups: Vec<Group>,
    pub shape: Shape,
    pub notes: Vec<Note>,
}

impl World {
    pub fn new() -> Self {
        let memory = memory();
        let mut groups = vec![memory.root()];
        let mut parents = vec![None];
        let mut level = 0..1;
        for (width, max) in [(2, TENANT_MAX), (2, QUERY_MAX), (2, u64::MAX)] {
            let end = groups.len();
            for parent in level.clone() {
                for child in 0..width {
                    let name = child.to_string();
                    groups.push(groups[parent].make_max(name, max));
                    parents.push(Some(parent));
                }
            }
            level = end..groups.len();
        }
        let paths = groups.iter().map(Group::path).collect();
        let notes = groups.iter().map(|_| Note::default()).collect();
        Self {
            memory,
            groups,
            shape: Shape::new(parents, paths),
            notes,
        }
    }

    /// One random step of a thread.
    pub fn step(&self, random: &mut Random, held: &mut Vec<(usize, Charge)>) {
        let at = 1 + random.below(self.groups.len() - 1);
        let (group, note) = (&self.groups[at], &self.notes[at]);
        match random.below(16) {
            0..3 => note.add(group),
            3 | 4 => {
                let delta = random.below(200) as i64 - 100;
                group.add(BALANCE, delta);
                group.add(BATCHED, delta);
                note.add_eager(group, delta);
            }
            5..7 => held.extend(
                note.charge(random.below(20_000) as u64, |bytes| group.try_charge(bytes))
                    .map(|charge| (at, charge)),
            ),
            7..10 => held.extend(
                note.charge(random.below(60_000) as u64, |bytes| {
                    group.engine().try_charge_nowait(bytes)
                })
                .map(|charge| (at, charge)),
            ),
            10 if random.below(8) == 0 => held.extend(
                note.charge(random.below(30_000) as u64, |bytes| {
                    Ok::<_, Infallible>(group.charge(bytes))
                })
                .map(|charge| (at, charge)),
            ),
            11 if random.below(4) == 0 => drop(group.exact()),
            12 if random.below(4) == 0 => self.live_and_die(at, random),
            13 if random.below(8) == 0 && at < 7 => {
                let max = if at < 3 { TENANT_MAX } else { QUERY_MAX };
                group.set_max(max / 2);
                group.set_max(max);
            }
            _ => {}
        }
        while held.len() > 12 || !held.is_empty() && random.below(3) == 0 {
            let (at, charge) = held.swap_remove(random.below(held.len()));
            self.notes[at].uncharge(charge);
        }
    }

    /// Returns charges, each with the position of its group.
    pub fn uncharge(&self, held: Vec<(usize, Charge)>) {
        for (at, charge) in held {
            self.notes[at].uncharge(charge);
        }
    }

    /// A child of a group comes and goes; what happens to it is noted at the group.
    pub fn live_and_die(&self, at: usize, random: &mut Random) {
        let (group, note) = (&self.groups[at], &self.notes[at]);
        let Ok(child) = group.child(format!("t{}", random.next()), Limits::none()) else {
            return;
        };
        note.add(&child);
        note.add_eager(&child, random.below(200) as i64);
        let charge = note.charge(random.below(9_000) as u64, |bytes| child.try_charge(bytes));
        child.remove().unwrap();
        note.add(&child);
        drop(child);
        if let Some(charge) = charge {
            note.uncharge(charge);
        }
    }

    /// Reads everything, while nothing runs, and compares it with the notes: whole subtrees, and what is a group's own.
    pub fn check(&self) {
        for (at, group) in self.groups.iter().enumerate() {
            let reading = check_conservation(group);
            // Children that come and go have no notes of their own.
            let mut fleeting = [0; 3];
            for child in group.children() {
                if child.name().starts_with('t') {
                    let part = child.exact();
                    let values = [part.usage(), part.get(ROWS), part.get(EAGER)];
                    fleeting = std::array::from_fn(|kind| fleeting[kind] + values[kind].value);
                }
            }
            let subtree = |other: usize| self.shape.contains(at, other);
            let own = |other: usize| other == at;
            for (value, is_part, pair) in [
                (reading.usage().value, &subtree as &dyn Fn(usize) -> bool, 0),
                (reading.get(ROWS).value, &subtree, 1),
                (reading.get(EAGER).value, &subtree, 2),
                (reading.own_usage() + fleeting[0], &own, 0),
                (reading.own(ROWS) + fleeting[1], &own, 1),
                (reading.own(EAGER) + fleeting[2], &own, 2),
            ] {
                let notes = self.notes.iter().enumerate();
                let notes = notes.filter(|(other, _)| is_part(*other));
                let (lo, hi) = notes.fold((0, 0), |(lo, hi), (_, note)| {
                    let (least, most) = [&note.bytes, &note.rows, &note.eager][pair].bounds();
                    (lo + least, hi + most)
                });
                assert!(
                    (lo..=hi).contains(&value),
                    "{group:?}: {value} of kind {pair}, not in {lo}..={hi}"
                );
            }
        }
    }
}

/// Children and own make the parent, and stock is all that is reserved beside.
pub fn check_conservation(group: &Group) -> Reading {
    let whole = group.exact();
    let mut sums = numbers(&whole).map(|(_, own)| own);
    for child in group.children() {
        let parts = numbers(&child.exact()).into_iter();
        sums.iter_mut()
            .zip(parts)
            .for_each(|(sum, (part, _))| *sum += part);
    }
    assert_eq!(sums, numbers(&whole).map(|(value, _)| value), "{group:?}");
    let (reserved, used) = (group.reserved() as i64, whole.usage().value);
    assert!(
        reserved >= used,
        "{group:?}: {reserved} reserved, {used} used"
    );
    whole
}

/// Ends the threads, also if this one panics.
pub struct Stop<'a>(pub &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
