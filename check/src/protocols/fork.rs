//! A fork at any moment, and the life of the child: its books are right after its first operation, and tasks that are
//! gone hinder no other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Context;

use bursar::{ChargeAsync, Freshness, Group, Level, Limits, Registration};
use bursar_machine::Machine;
use bursar_rig::Forks;

use super::books::{Books, NO_LIMIT, run};
use super::charging::{Charging, Holding, some_bytes};
use super::executor::{self, Patience};
use super::locked::locked;
use crate::model::{GroupIndex, judge};
use crate::random::Random;

const MAX: u64 = 1000;
/// Group whose limit changes, and that has a reclaimer.
const LIMITED: GroupIndex = 1;
const WATCHED: [GroupIndex; 2] = [LIMITED, 3];
/// Number of tasks: the one that forks, and others.
const TASKS: u64 = 4;

/// A waiting charge, its bytes and its group.
type Wait<M> = (ChargeAsync<M>, GroupIndex, u64);

struct World<M: Machine> {
    machine: M,
    charging: Charging<M>,
    /// Holdings that the reclaimer frees. Neither these nor the levels are the machine's: nothing happens while they
    /// are locked.
    cache: Mutex<Vec<Holding<M>>>,
    /// Last level that each subscriber was told.
    told: [Mutex<Level>; 2],
    /// Whether the child has done its first operation.
    is_right: AtomicBool,
}

impl<M: Forks> World<M> {
    fn group(&self, at: GroupIndex) -> &Group<M> {
        &self.charging.books.groups[at]
    }

    fn some_group(random: &mut Random) -> GroupIndex {
        1 + random.below(4) as usize
    }

    fn reclaim(&self, target: u64) -> u64 {
        let mut freed = 0;
        while freed < target {
            let Some(one) = locked(&self.cache).pop() else {
                break;
            };
            freed += one.bytes();
            self.charging.uncharge(one);
        }
        freed
    }

    /// Does one thing that any task may be in the middle of.
    fn step(&self, random: &mut Random, held: &mut Vec<Holding<M>>, patience: Patience) {
        let all = &self.charging;
        let at = Self::some_group(random);
        let bytes = some_bytes(random, MAX / 2);
        match random.below(17) {
            0 | 1 => all.books.add(at),
            2..=4 => held.extend(all.charge(at, bytes)),
            5 | 6 => held.extend(all.charge_nowait(at, bytes)),
            7 | 8 => held.pop().into_iter().for_each(|one| all.uncharge(one)),
            9 | 10 => held
                .pop()
                .into_iter()
                .for_each(|one| all.uncharge_nowait(one)),
            11 => all.read(at),
            12 => drop(all.books.read(at)),
            13 => self.live_and_die(random, at),
            14 => {
                all.set_max(LIMITED, MAX / 2);
                all.set_max(LIMITED, MAX);
            }
            // Of the root, which has no limit to overstep.
            15 => held.push(all.charge_anyway_nowait(0, bytes)),
            _ => {
                let mut wait = self.begin_waiting(at, bytes);
                held.extend(self.wait(&mut wait, patience));
            }
        }
    }

    fn begin_waiting(&self, at: GroupIndex, bytes: u64) -> Wait<M> {
        (self.group(at).charge_async(bytes), at, bytes)
    }

    fn wait(&self, (future, at, bytes): &mut Wait<M>, patience: Patience) -> Option<Holding<M>> {
        let poll = |context: &mut Context<'_>| self.charging.poll(future, *at, *bytes, context);
        executor::wait::<M, _>(patience, poll).flatten()
    }

    /// Lets a child of a group come and go; its operations are recorded at the group.
    fn live_and_die(&self, random: &mut Random, at: GroupIndex) {
        let all = &self.charging;
        let name = format!("t{}", random.number());
        let child = self.group(at).child(&name, Limits::none());
        let child = child.expect("a name of its own");
        all.books.add_to(&child, at);
        let charge = all.charge_below(&child, at, some_bytes(random, MAX / 4));
        child.remove().expect("it has no children");
        all.books.add_to(&child, at);
        drop(child);
        all.uncharge_all(charge);
    }

    fn work(&self, mut random: Random, patience: Patience) {
        let mut held = Vec::new();
        for _ in 0..4 {
            self.step(&mut random, &mut held, patience);
        }
        self.charging.uncharge_all(held);
    }

    fn fork(&self, mut random: Random) {
        let mut held = Vec::new();
        for _ in 0..random.below(5) {
            self.step(&mut random, &mut held, Patience::None);
        }
        let mut waits = None;
        if random.below(3) == 0 {
            let at = Self::some_group(&mut random);
            let wait = waits.insert(self.begin_waiting(at, some_bytes(&mut random, MAX / 2)));
            if let Some(holding) = self.wait(wait, Patience::None) {
                held.push(holding);
                waits = None;
            }
        }
        self.machine.fork();
        self.live_as_child(random, held, waits);
    }

    fn live_as_child(&self, mut random: Random, mut held: Vec<Holding<M>>, waits: Option<Wait<M>>) {
        let all = &self.charging;
        // Before anything else, as a signal handler might.
        for _ in 0..random.below(3) {
            let at = Self::some_group(&mut random);
            match random.below(4) {
                0 => held.extend(all.charge_nowait(at, some_bytes(&mut random, MAX))),
                1 => held.push(all.charge_anyway_nowait(0, some_bytes(&mut random, MAX))),
                2 => held
                    .pop()
                    .into_iter()
                    .for_each(|one| all.uncharge_nowait(one)),
                _ => all.books.add(at),
            }
        }
        match random.below(3) {
            0 => all.books.memory.tick(),
            1 => all.read(Self::some_group(&mut random)),
            _ => drop(all.books.read(Self::some_group(&mut random))),
        }
        self.is_right.store(true, Ordering::Relaxed);
        (0..all.books.groups.len()).for_each(|at| self.check_no_stock(at));
        self.check();
        self.check_told();
        locked(&self.cache).append(&mut held);
        self.reclaim(NO_LIMIT);
        if let Some(mut wait) = waits
            && wait.2 <= self.room(wait.1)
        {
            self.check_wait(&mut wait);
        }
        for at in 1..all.books.groups.len() {
            self.fill(at);
        }
        all.set_max(LIMITED, 0);
        (LIMITED..all.books.groups.len()).for_each(|at| self.check_no_stock(at));
        all.set_max(LIMITED, MAX);
    }

    /// Polls a waiting charge. If it waits for a task that is gone, no other task can wake it.
    fn check_wait(&self, wait: &mut Wait<M>) {
        let holding = self.wait(wait, Patience::Endless);
        let holding = holding.expect("a charge that fits is granted");
        self.charging.uncharge(holding);
    }

    /// Returns the bytes that fit, while no other task runs.
    fn room(&self, at: GroupIndex) -> u64 {
        let books = &self.charging.books;
        let room = |at: GroupIndex| books.groups[at].limits().max.saturating_sub(self.usage(at));
        books.shape.chain(at).map(room).min().unwrap_or(0)
    }

    fn usage(&self, at: GroupIndex) -> u64 {
        let reading = self
            .group(at)
            .read(Freshness::Exact)
            .expect("readers may flush");
        u64::try_from(reading.usage().value).expect("no more is returned than was charged")
    }

    /// Charges all that fits, in each way, and checks that not one byte more fits.
    fn fill(&self, at: GroupIndex) {
        let all = &self.charging;
        let room = self.room(at);
        let Some(all_of_it) = (room > 0).then(|| all.charge(at, room)) else {
            return;
        };
        let all_of_it = all_of_it.expect("a charge that fits is granted");
        assert!(
            all.charge(at, 1).is_none(),
            "a byte more than fits is granted"
        );
        all.uncharge(all_of_it);
        self.check_wait(&mut self.begin_waiting(at, room));
    }

    /// Checks that all reserved bytes are charged.
    fn check_no_stock(&self, at: GroupIndex) {
        let path = &self.charging.books.shape.paths[at];
        let (usage, reserved) = (self.usage(at), self.group(at).reserved());
        assert_eq!(reserved, usage, "bytes reserved in {path}, and charged");
    }

    /// Checks everything, while no other task runs.
    fn check(&self) {
        let all = &self.charging;
        all.books.check_parts();
        for at in 0..all.books.groups.len() {
            all.read(at);
            let path = &all.books.shape.paths[at];
            let (usage, reserved) = (self.usage(at), self.group(at).reserved());
            assert!(
                usage <= reserved,
                "{reserved} bytes reserved in {path}, and {usage} charged"
            );
        }
    }

    /// Checks that the remaining tasks tell subscribers, while no other task runs.
    fn check_told(&self) {
        let books = &self.charging.books;
        books.memory.tick();
        for (told, at) in self.told.iter().zip(WATCHED) {
            let level = self.group(at).pressure().level;
            let told = *locked(told);
            let path = &books.shape.paths[at];
            assert_eq!(told, level, "the last level told of {path}, and its level");
        }
    }

    /// Runs a task that comes after the one that forked, and that may have the number of a task that is gone.
    fn run_again(&self, random: &mut Random, seed: u64) {
        let all = &self.charging;
        let name = random.below(TASKS);
        let mut tasks: Vec<Box<dyn FnOnce(Random) + Send + '_>> = Vec::new();
        (0..name).for_each(|_| tasks.push(Box::new(|_| ())));
        tasks.push(Box::new(|_| {
            let room = self.room(LIMITED);
            if room > 0 {
                let charge = all
                    .charge(LIMITED, room)
                    .expect("a charge that fits is granted");
                locked(&self.cache).push(charge);
                let charge = all.charge(LIMITED, 1).expect("a reclaimer makes room");
                all.uncharge(charge);
            }
        }));
        run(&self.machine, seed, || (), tasks);
        // No task returns the bytes that tasks held which are gone.
        let work = |random| self.work(random, Patience::None);
        run(
            &self.machine,
            seed + 1,
            || all.check_all_held(),
            tasks![work, work],
        );
    }
}

fn register<M: Forks>(world: &Arc<World<M>>) -> Vec<Registration> {
    let watch = |number: usize| {
        let told = world.clone();
        world.group(WATCHED[number]).on_pressure(move |pressure| {
            *locked(&told.told[number]) = pressure.level;
            // Takes a step, so that a fork comes in between.
            let _ = told.group(LIMITED).reserved();
        })
    };
    let caches = world.clone();
    let reclaimer = world
        .group(LIMITED)
        .add_reclaimer(0, move |request| caches.reclaim(request.target));
    vec![watch(0), watch(1), reclaimer]
}

pub(super) fn scenario<M: Forks>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    let below = [(0, MAX), (1, MAX * 3 / 4), (2, NO_LIMIT), (1, MAX / 2)];
    let books = Books::new(machine, NO_LIMIT, &below);
    let world = Arc::new(World {
        machine: machine.clone(),
        charging: Charging::new(books),
        cache: Mutex::default(),
        told: [Level::None; 2].map(Mutex::new),
        is_right: AtomicBool::new(false),
    });
    let registrations = register(&world);
    let all = &world.charging;
    let some = all.charge(LIMITED, MAX / 5);
    locked(&world.cache).extend(some);
    let mut before = all.check();
    let mut after = None;
    let mut check = || {
        if machine.forks() == 0 {
            before();
        } else if world.is_right.load(Ordering::Relaxed) {
            after.get_or_insert_with(|| all.check_from_now())();
        }
    };
    // Waits without end, perhaps: the fork ends it.
    let work = |random| world.work(random, Patience::Endless);
    let fork = |random| world.fork(random);
    run(machine, seed, &mut check, tasks![fork, work, work, work]);
    world.run_again(&mut random, seed);
    world.check_told();
    drop(registrations);
    world.check();
    all.set_max(0, 0);
    (0..all.books.groups.len()).for_each(|at| world.check_no_stock(at));
    judge(&all.truth);
}
