//! A process that forks while other threads are anywhere: in the child the books are whole, in the parent nothing happened.
#![cfg(unix)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use bursar::{Charge, ChargeError, Freshness, Group, Limits, Memory, NowaitError};
use common::fork::{in_child, limit_time};
use common::{BALANCE, BATCHED, EAGER, ROWS, Random, memory, seed, signals};

const THREADS: usize = 5;
const NO_SIGNALS: (libc::c_int, usize) = (0, 0);
const FORKS: usize = 1000;
/// So tight that charges are refused, stock is taken back and drains run all the time.
const TENANT_MAX: u64 = 600 << 10;
const QUERY_MAX: u64 = 400 << 10;

/// What a thread had done for sure, and what it may have done, to one group. Noted before and after each step, so that
/// wherever the thread was when its memory was copied, the truth lies between.
#[derive(Default)]
struct Note {
    rows: [AtomicI64; 2],
    bytes: [AtomicI64; 2],
}

impl Note {
    /// Notes around `work`, which adds `delta`.
    fn around<R>(pair: &[AtomicI64; 2], delta: i64, work: impl FnOnce() -> R) -> R {
        let (early, late) = if delta < 0 { (0, 1) } else { (1, 0) };
        pair[early].fetch_add(delta, Ordering::SeqCst);
        let result = work();
        pair[late].fetch_add(delta, Ordering::SeqCst);
        result
    }

    fn add(&self, group: &Group) {
        Self::around(&self.rows, 1, || group.add(ROWS, 1));
    }

    fn charge(&self, bytes: usize, charge: impl FnOnce(usize) -> Option<Charge>) -> Option<Charge> {
        let size = bytes as i64;
        self.bytes[1].fetch_add(size, Ordering::SeqCst);
        let charge = charge(bytes);
        let late = usize::from(charge.is_none());
        let delta = if late == 1 { -size } else { size };
        self.bytes[late].fetch_add(delta, Ordering::SeqCst);
        charge
    }

    fn uncharge(&self, charge: Charge) {
        let bytes = charge.bytes() as i64;
        Self::around(&self.bytes, -bytes, || drop(charge));
    }
}

/// A memory with groups three deep, and what was done to them.
struct World {
    memory: Memory,
    /// With its ancestors' positions, itself included.
    groups: Vec<(Group, Vec<usize>)>,
    notes: Vec<Note>,
}

impl World {
    fn new() -> Self {
        let memory = memory();
        let mut groups = vec![(memory.root(), vec![0])];
        let mut level = 0..1;
        for (width, max) in [(2, TENANT_MAX), (2, QUERY_MAX), (2, u64::MAX)] {
            let end = groups.len();
            for parent in level.clone() {
                for child in 0..width {
                    let (above, mut way) = groups[parent].clone();
                    way.push(groups.len());
                    let child = above.child(&child.to_string(), Limits::max(max)).unwrap();
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
    fn step(&self, random: &mut Random, held: &mut Vec<(usize, Charge)>) {
        let at = 1 + random.below(self.groups.len() - 1);
        let (group, note) = (&self.groups[at].0, &self.notes[at]);
        match random.below(16) {
            0..3 => note.add(group),
            3 | 4 => {
                let delta = random.below(200) as i64 - 100;
                group.add(BALANCE, delta);
                group.add(BATCHED, delta);
                group.add(EAGER, delta);
            }
            5..7 => held.extend(
                note.charge(random.below(20_000), |bytes| group.try_charge(bytes).ok())
                    .map(|charge| (at, charge)),
            ),
            7..10 => held.extend(
                note.charge(random.below(60_000), |bytes| {
                    group.try_charge_nowait(bytes).ok()
                })
                .map(|charge| (at, charge)),
            ),
            10 if random.below(8) == 0 => held.extend(
                note.charge(random.below(30_000), |bytes| Some(group.charge(bytes)))
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
    fn live_and_die(&self, at: usize, random: &mut Random) {
        let (group, note) = (&self.groups[at].0, &self.notes[at]);
        let Ok(child) = group.child(&format!("t{}", random.next()), Limits::none()) else {
            return;
        };
        note.add(&child);
        let charge = note.charge(random.below(9_000), |bytes| child.try_charge(bytes).ok());
        child.remove().unwrap();
        note.add(&child);
        drop(child);
        if let Some(charge) = charge {
            note.uncharge(charge);
        }
    }

    /// The least and the most that a group and all below it may have by the notes.
    fn bounds(&self, at: usize, pair: impl Fn(&Note) -> &[AtomicI64; 2]) -> (i64, i64) {
        let below = self.groups.iter().zip(&self.notes);
        let notes = below.filter(|((_, way), _)| way.contains(&at));
        notes.fold((0, 0), |(lo, hi), (_, note)| {
            let [least, most] = pair(note)
                .each_ref()
                .map(|word| word.load(Ordering::SeqCst));
            (lo + least, hi + most)
        })
    }

    /// Reads everything, while nothing runs, and compares.
    fn check(&self) {
        for at in 0..self.groups.len() {
            let group = &self.groups[at].0;
            let usage = check_conservation(group);
            let (lo, hi) = self.bounds(at, |note| &note.bytes);
            assert!(
                (lo..=hi).contains(&usage),
                "{group:?}: {usage}, {lo}..={hi}"
            );
            let rows = group.read(Freshness::Exact).unwrap().get(ROWS).value;
            let (lo, hi) = self.bounds(at, |note| &note.rows);
            assert!((lo..=hi).contains(&rows), "{group:?}: {rows}, {lo}..={hi}");
        }
    }
}

/// Children and own make the parent, and stock is all that is reserved beside. Returns the usage.
fn check_conservation(group: &Group) -> i64 {
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
    whole.usage().value
}

/// Charges a group all that fits, and no byte more.
fn fill(world: &World, at: usize) {
    let (group, way) = &world.groups[at];
    let room = |&at: &usize| {
        let above = &world.groups[at].0;
        let used = above.read(Freshness::Exact).unwrap().usage().value as u64;
        above.max().saturating_sub(used)
    };
    let fits = way.iter().map(room).min().unwrap();
    let charge = group.try_charge(fits as usize).unwrap();
    match group.try_charge(1) {
        Err(ChargeError::LimitReached(reached)) => assert!(reached.usage >= reached.max),
        other => panic!("{other:?} beyond {fits} bytes"),
    }
    drop(charge);
    drop(group.try_charge(fits as usize).unwrap());
}

/// What the child does with a memory that it inherited, and with a fresh one.
fn live_in_child(world: &World, mut held: Vec<(usize, Charge)>, random: &mut Random) {
    // Before anything else, as a signal handler might: refused, or put off.
    if random.below(2) == 0 {
        let refused = world.groups[1].0.try_charge_nowait(1 << 20).unwrap_err();
        assert_eq!(refused, NowaitError::Busy);
        while held.len() > 6 {
            let (at, charge) = held.pop().unwrap();
            world.notes[at].uncharge(charge);
        }
    }
    world.memory.tick();
    world.check();
    for (group, _) in &world.groups {
        let usage = group.read(Freshness::Exact).unwrap().usage().value;
        assert_eq!(group.reserved() as i64, usage, "no stock is left");
    }

    let before = world.memory.reserved();
    let bytes: u64 = held.iter().map(|(_, charge)| charge.bytes() as u64).sum();
    let (fresh, groups) = world.memory.reset_after_fork().unwrap();
    assert_eq!(groups.len(), fresh_paths(&world.memory.root()).len());
    assert_eq!(
        fresh_paths(&fresh.root()),
        fresh_paths(&world.memory.root())
    );
    for (group, _) in &world.groups {
        let copy = fresh.find(&group.path()).unwrap();
        assert_eq!((copy.max(), copy.reserved()), (group.max(), 0));
        assert_eq!(copy.read(Freshness::Exact).unwrap().get(ROWS).value, 0);
    }
    for (at, charge) in held.drain(..) {
        world.notes[at].uncharge(charge);
    }
    assert_eq!(fresh.reserved(), 0);
    world.groups[1].0.set_max(TENANT_MAX);
    world.groups[2].0.set_max(TENANT_MAX);
    world.check();
    let left = world.memory.root().read(Freshness::Exact).unwrap().usage();
    assert_eq!(left.value as u64, before - bytes);

    for at in 1..world.groups.len() {
        fill(world, at);
    }
    // Threads of the child's own.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut random = Random(random.next());
            scope.spawn(move || {
                let mut held = Vec::new();
                (0..200).for_each(|_| world.step(&mut random, &mut held));
                for (at, charge) in held {
                    world.notes[at].uncharge(charge);
                }
            });
        }
    });
    world.check();
    for (group, _) in &world.groups {
        let usage = group.read(Freshness::Exact).unwrap().usage().value;
        let cached = group.read(Freshness::Cached).unwrap().usage();
        assert!((cached.lo..=cached.hi).contains(&usage), "{cached:?}");
    }

    let tenant = fresh.find("0").unwrap();
    let charge = tenant.try_charge(tenant.max() as usize).unwrap();
    assert!(tenant.try_charge(1).is_err());
    fresh.find("0/0").unwrap().add(ROWS, 3);
    assert_eq!(
        fresh.root().read(Freshness::Exact).unwrap().get(ROWS).value,
        3
    );
    drop((charge, groups));
    world.check();
}

fn fresh_paths(group: &Group) -> Vec<(String, u64)> {
    let mut paths = Vec::new();
    for child in group.children() {
        paths.push((child.path(), child.max()));
        paths.extend(fresh_paths(&child));
    }
    paths
}

/// Ends the threads, also if this one panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn books_are_whole_in_the_child_and_untouched_in_the_parent() {
    limit_time();
    let seed = seed();
    let world = World::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (world, stop) = (&world, &stop);
            scope.spawn(move || {
                let mut random = Random(seed ^ thread as u64);
                let mut held = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    world.step(&mut random, &mut held);
                }
                for (at, charge) in held {
                    world.notes[at].uncharge(charge);
                }
            });
        }
        let _stop = Stop(&stop);
        let mut random = Random(seed);
        let mut held = Vec::new();
        for _ in 0..FORKS {
            (0..random.below(60)).for_each(|_| world.step(&mut random, &mut held));
            // The child has the charges that we have; each drops its own.
            in_child_with(&world, &mut held, &mut random);
        }
        for (at, charge) in held {
            world.notes[at].uncharge(charge);
        }
    });
    world.check();
    let root = world.memory.root().read(Freshness::Exact).unwrap();
    assert_eq!(root.usage().value, 0);
    for at in 1..3 {
        world.groups[at].0.set_max(0);
        assert_eq!(world.groups[at].0.reserved(), 0);
    }
}

fn in_child_with(world: &World, held: &mut Vec<(usize, Charge)>, random: &mut Random) {
    let seed = random.next();
    in_child(NO_SIGNALS, || {
        live_in_child(world, std::mem::take(held), &mut Random(seed))
    });
}

/// Where threads stand still, at whatever instruction the signal met them; it is of no operation.
static ROUND: AtomicUsize = AtomicUsize::new(0);
static STANDING: AtomicUsize = AtomicUsize::new(0);

fn stand_still() {
    let round = ROUND.load(Ordering::SeqCst);
    STANDING.fetch_add(1, Ordering::SeqCst);
    while ROUND.load(Ordering::SeqCst) == round {
        std::thread::yield_now();
    }
}

/// What a signal handler may do, over and over, without memory from the system, whose lock a fork wants.
fn step_nowait(world: &World, random: &mut Random, held: &mut Vec<(usize, Charge)>) {
    let at = 1 + random.below(world.groups.len() - 1);
    let (group, note) = (&world.groups[at].0, &world.notes[at]);
    match random.below(4) {
        0 => note.add(group),
        1 => {
            let delta = random.below(200) as i64 - 100;
            group.add(BATCHED, delta);
            group.add(EAGER, delta);
        }
        _ if held.len() < held.capacity() => held.extend(
            note.charge(random.below(60_000), |bytes| {
                group.try_charge_nowait(bytes).ok()
            })
            .map(|charge| (at, charge)),
        ),
        _ => {}
    }
    if held.len() == held.capacity() || !held.is_empty() && random.below(2) == 0 {
        let (at, charge) = held.swap_remove(random.below(held.len()));
        world.notes[at].uncharge(charge);
    }
}

#[test]
fn threads_that_are_gone_may_have_been_anywhere_but_in_an_operation() {
    limit_time();
    let mut random = Random(seed());
    let world = World::new();
    signals::on(libc::SIGUSR1, stand_still);
    let stop = AtomicBool::new(false);
    let (sender, targets) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let (world, stop, sender) = (&world, &stop, sender.clone());
            let mut random = Random(random.next());
            scope.spawn(move || {
                sender.send(signals::this_thread()).unwrap();
                let mut held = Vec::with_capacity(6);
                while !stop.load(Ordering::Relaxed) {
                    step_nowait(world, &mut random, &mut held);
                }
                for (at, charge) in held {
                    world.notes[at].uncharge(charge);
                }
            });
        }
        let targets: Vec<_> = targets.iter().take(THREADS).collect();
        let _stop = Stop(&stop);
        let _go = Go;
        for _ in 0..FORKS {
            STANDING.store(0, Ordering::SeqCst);
            for target in &targets {
                (0..random.below(20_000)).for_each(|_| std::hint::spin_loop());
                signals::send(target, libc::SIGUSR1);
            }
            while STANDING.load(Ordering::SeqCst) < THREADS {
                std::thread::yield_now();
            }
            let seed = random.next();
            in_child(NO_SIGNALS, || {
                live_in_child(&world, Vec::new(), &mut Random(seed));
            });
            ROUND.fetch_add(1, Ordering::SeqCst);
        }
    });
    world.check();
    assert_eq!(
        world
            .memory
            .root()
            .read(Freshness::Exact)
            .unwrap()
            .usage()
            .value,
        0
    );
}

/// Lets those go on that stand still, also after a panic.
struct Go;

impl Drop for Go {
    fn drop(&mut self) {
        ROUND.fetch_add(1, Ordering::SeqCst);
    }
}

static WORLD: OnceLock<World> = OnceLock::new();
static HELD: Mutex<Vec<(usize, Charge)>> = Mutex::new(Vec::new());

fn uncharge_one() {
    if let Some(world) = WORLD.get()
        && let Ok(mut held) = HELD.try_lock()
        && let Some((at, charge)) = held.pop()
    {
        world.notes[at].uncharge(charge);
        world.notes[at].add(&world.groups[at].0);
        let _ = world.groups[at].0.try_charge_nowait(50_000);
    }
}

#[test]
fn signals_may_come_while_the_books_are_put_right() {
    limit_time();
    let mut random = Random(seed());
    let world = WORLD.get_or_init(World::new);
    signals::on(libc::SIGUSR2, uncharge_one);
    for _ in 0..FORKS {
        {
            let mut held = HELD.lock().unwrap();
            for _ in 0..200 {
                let at = 1 + random.below(world.groups.len() - 1);
                let note = &world.notes[at];
                let charge = note.charge(1 + random.below(6_000), |bytes| {
                    world.groups[at].0.try_charge(bytes).ok()
                });
                held.extend(charge.map(|charge| (at, charge)));
            }
        }
        in_child((libc::SIGUSR2, 300), || {
            world.memory.tick();
            while !HELD.lock().unwrap().is_empty() {
                uncharge_one();
            }
            world.check();
            for (group, _) in &world.groups {
                group.set_max(0);
                assert_eq!(group.reserved(), 0, "{group:?}");
            }
        });
        for (at, charge) in HELD.lock().unwrap().drain(..) {
            world.notes[at].uncharge(charge);
        }
    }
    world.check();
}
