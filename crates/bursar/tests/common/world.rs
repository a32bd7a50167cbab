//! Groups three deep that threads work on. Each thread records its work, so that a forked child can compare.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use bursar::{Charge, Freshness, Group, Limits, Memory, Reading};

use super::{BALANCE, BATCHED, EAGER, ROWS, Random, memory};

pub const THREADS: usize = 5;
pub const FORKS: usize = 300;
/// So tight that charges are refused, stock is taken back and drains run all the time.
pub const TENANT_MAX: u64 = 600 << 10;
pub const QUERY_MAX: u64 = 400 << 10;

/// What a thread had done for sure, and what it may have done, to one group. Noted before and after each step, so that
/// wherever the thread was when its memory was copied, the truth lies between.
#[derive(Default)]
pub struct Note {
    rows: [AtomicI64; 2],
    bytes: [AtomicI64; 2],
    eager: [AtomicI64; 2],
}

impl Note {
    /// Notes around `work`, which adds `delta`.
    pub fn around<R>(pair: &[AtomicI64; 2], delta: i64, work: impl FnOnce() -> R) -> R {
        let (early, late) = if delta < 0 { (0, 1) } else { (1, 0) };
        pair[early].fetch_add(delta, Ordering::SeqCst);
        let result = work();
        pair[late].fetch_add(delta, Ordering::SeqCst);
        result
    }

    pub fn add(&self, group: &Group) {
        Self::around(&self.rows, 1, || group.add(ROWS, 1));
    }

    pub fn add_eager(&self, group: &Group, delta: i64) {
        Self::around(&self.eager, delta, || group.add(EAGER, delta));
    }

    pub fn charge(&self, bytes: u64, charge: impl FnOnce(u64) -> Option<Charge>) -> Option<Charge> {
        let size = bytes as i64;
        self.bytes[1].fetch_add(size, Ordering::SeqCst);
        let charge = charge(bytes);
        let late = usize::from(charge.is_none());
        let delta = if late == 1 { -size } else { size };
        self.bytes[late].fetch_add(delta, Ordering::SeqCst);
        charge
    }

    pub fn uncharge(&self, charge: Charge) {
        let bytes = charge.bytes() as i64;
        Self::around(&self.bytes, -bytes, || drop(charge));
    }
}

/// A memory with groups three deep, and what was done to them.
pub struct World {
    pub memory: Memory,
    /// With its ancestors' positions, itself included.
    pub groups: Vec<(Group, Vec<usize>)>,
    pub notes: Vec<Note>,
}

impl World {
    pub fn new() -> Self {
        let memory = memory();
        let mut groups = vec![(memory.root(), vec![0])];
        let mut level = 0..1;
        for (width, max) in [(2, TENANT_MAX), (2, QUERY_MAX), (2, u64::MAX)] {
            let end = groups.len();
            for parent in level.clone() {
                for child in 0..width {
                    let (above, mut way) = groups[parent].clone();
                    way.push(groups.len());
                    let child = above.child(child.to_string(), Limits::max(max)).unwrap();
                    groups.push((child, way));
                }
            }
            level = end..groups.len();
        }
        let notes = groups.iter().map(|_| Note::default()).collect();
        Self {
            memory,
            groups,
            notes,
        }
    }

    /// One random step of a thread.
    pub fn step(&self, random: &mut Random, held: &mut Vec<(usize, Charge)>) {
        let at = 1 + random.below(self.groups.len() - 1);
        let (group, note) = (&self.groups[at].0, &self.notes[at]);
        match random.below(16) {
            0..3 => note.add(group),
            3 | 4 => {
                let delta = random.below(200) as i64 - 100;
                group.add(BALANCE, delta);
                group.add(BATCHED, delta);
                note.add_eager(group, delta);
            }
            5..7 => held.extend(
                note.charge(random.below(20_000) as u64, |bytes| {
                    group.try_charge(bytes).ok()
                })
                .map(|charge| (at, charge)),
            ),
            7..10 => held.extend(
                note.charge(random.below(60_000) as u64, |bytes| {
                    group.try_charge_nowait(bytes).ok()
                })
                .map(|charge| (at, charge)),
            ),
            10 if random.below(8) == 0 => held.extend(
                note.charge(random.below(30_000) as u64, |bytes| {
                    Some(group.charge(bytes))
                })
                .map(|charge| (at, charge)),
            ),
            11 if random.below(4) == 0 => drop(group.read(Freshness::Exact).unwrap()),
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

    /// A child of a group comes and goes; what happens to it is noted at the group.
    pub fn live_and_die(&self, at: usize, random: &mut Random) {
        let (group, note) = (&self.groups[at].0, &self.notes[at]);
        let Ok(child) = group.child(format!("t{}", random.next()), Limits::none()) else {
            return;
        };
        note.add(&child);
        note.add_eager(&child, random.below(200) as i64);
        let charge = note.charge(random.below(9_000) as u64, |bytes| {
            child.try_charge(bytes).ok()
        });
        child.remove().unwrap();
        note.add(&child);
        drop(child);
        if let Some(charge) = charge {
            note.uncharge(charge);
        }
    }

    /// Reads everything, while nothing runs, and compares it with the notes: whole subtrees, and what is a group's own.
    pub fn check(&self) {
        for (at, (group, _)) in self.groups.iter().enumerate() {
            let reading = check_conservation(group);
            // Children that come and go have no notes of their own.
            let mut fleeting = [0; 3];
            for child in group.children() {
                if child.name().starts_with('t') {
                    let part = child.read(Freshness::Exact).unwrap();
                    let values = [part.usage(), part.get(ROWS), part.get(EAGER)];
                    fleeting = std::array::from_fn(|kind| fleeting[kind] + values[kind].value);
                }
            }
            let subtree = |(_, way): &(Group, Vec<usize>)| way.contains(&at);
            let own = |(_, way): &(Group, Vec<usize>)| way.ends_with(&[at]);
            for (value, is_part, pair) in [
                (reading.usage().value, &subtree as &dyn Fn(&_) -> bool, 0),
                (reading.get(ROWS).value, &subtree, 1),
                (reading.get(EAGER).value, &subtree, 2),
                (reading.own_usage() + fleeting[0], &own, 0),
                (reading.own(ROWS) + fleeting[1], &own, 1),
                (reading.own(EAGER) + fleeting[2], &own, 2),
            ] {
                let parts = self.groups.iter().zip(&self.notes);
                let notes = parts.filter(|(group, _)| is_part(group));
                let (lo, hi) = notes.fold((0, 0), |(lo, hi), (_, note)| {
                    let pair = [&note.bytes, &note.rows, &note.eager][pair];
                    let [least, most] = pair.each_ref().map(|word| word.load(Ordering::SeqCst));
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
    let whole = group.read(Freshness::Exact).unwrap();
    let children = group.children();
    let parts: Vec<_> = children
        .iter()
        .map(|child| child.read(Freshness::Exact).unwrap())
        .collect();
    let usage: i64 = parts.iter().map(|part| part.usage().value).sum();
    assert_eq!(usage + whole.own_usage(), whole.usage().value, "{group:?}");
    let rows: i64 = parts.iter().map(|part| part.get(ROWS).value).sum();
    assert_eq!(rows + whole.own(ROWS), whole.get(ROWS).value, "{group:?}");
    for gauge in [BALANCE, BATCHED, EAGER] {
        let sum: i64 = parts.iter().map(|part| part.get(gauge).value).sum();
        assert_eq!(sum + whole.own(gauge), whole.get(gauge).value, "{group:?}");
    }
    assert!(
        group.reserved() as i64 >= whole.usage().value,
        "{group:?}: {} reserved, {} used",
        group.reserved(),
        whole.usage().value
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
