//! Threads that a fork stops at any instruction outside operations, and signals that interrupt the child's first
//! operation.
#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, OnceLock};

use crate::common::child::live_in_child;
use crate::common::fork::in_child;
use crate::common::world::{FORKS, Stop, THREADS, World};
use crate::common::{BATCHED, Random, Short, seed, signals};
use bursar::Charge;

/// Handler in which threads stand still, at any instruction. It is part of no operation.
static ROUND: AtomicUsize = AtomicUsize::new(0);
static STANDING: AtomicUsize = AtomicUsize::new(0);

fn stand_still() {
    let round = ROUND.load(Ordering::SeqCst);
    STANDING.fetch_add(1, Ordering::SeqCst);
    while ROUND.load(Ordering::SeqCst) == round {
        std::thread::yield_now();
    }
}

/// A step that a signal handler may take: it asks the system for no memory, because a fork wants that lock.
fn step_nowait(world: &World, random: &mut Random, held: &mut Vec<(usize, Charge)>) {
    let at = 1 + random.below(world.groups.len() - 1);
    let (group, note) = (&world.groups[at], &world.notes[at]);
    match random.below(4) {
        0 => note.add(group),
        1 => {
            let delta = random.below(200) as i64 - 100;
            group.add(BATCHED, delta);
            note.add_eager(group, delta);
        }
        _ if held.len() < held.capacity() => held.extend(
            note.charge(random.below(60_000) as u64, |bytes| {
                group.engine().try_charge_nowait(bytes)
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
    let _alone = crate::common::fork::alone();
    let mut random = Random(seed());
    let world = World::new();
    signals::on(libc::SIGUSR1, stand_still);
    let (stop, ready) = (AtomicBool::new(false), Barrier::new(THREADS + 1));
    let (sender, targets) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let (world, stop, ready, sender) = (&world, &stop, &ready, sender.clone());
            let mut random = Random(random.next());
            scope.spawn(move || {
                let mut held = Vec::with_capacity(6);
                sender.send(signals::this_thread()).unwrap();
                // It asks the system for no memory from here on, so it never stands still with a lock that a fork wants.
                ready.wait();
                while !stop.load(Ordering::Relaxed) {
                    step_nowait(world, &mut random, &mut held);
                }
                world.uncharge(held);
            });
        }
        let targets: Vec<_> = targets.iter().take(THREADS).collect();
        ready.wait();
        let _stop = Stop(&stop);
        let _go = Go;
        for _ in 0..FORKS {
            STANDING.store(0, Ordering::SeqCst);
            // From here on they publish anew.
            world.memory.exact();
            for target in &targets {
                let most = 1 << random.below(14);
                let steps = random.below(most);
                (0..steps).for_each(|_| std::hint::spin_loop());
                signals::send(target, libc::SIGUSR1);
            }
            while STANDING.load(Ordering::SeqCst) < THREADS {
                std::thread::yield_now();
            }
            let seed = random.next();
            in_child(|| {
                live_in_child(&world, Vec::new(), &mut Random(seed));
            });
            ROUND.fetch_add(1, Ordering::SeqCst);
        }
    });
    world.check();
    assert_eq!(world.memory.used(), 0);
}

/// Lets those go on that stand still, also after a panic.
struct Go;

impl Drop for Go {
    fn drop(&mut self) {
        ROUND.fetch_add(1, Ordering::SeqCst);
    }
}

static WORLD: OnceLock<World> = OnceLock::new();
/// Set in the child just before its first operation, lest all is returned by then.
static BEGUN: AtomicBool = AtomicBool::new(false);
static HELD: Mutex<Vec<(usize, Charge)>> = Mutex::new(Vec::new());

fn uncharge_one() {
    if BEGUN.load(Ordering::SeqCst)
        && let Some(world) = WORLD.get()
        && let Ok(mut held) = HELD.try_lock()
        && let Some((at, charge)) = held.pop()
    {
        world.notes[at].uncharge(charge);
        world.notes[at].add(&world.groups[at]);
        let _ = world.groups[at].engine().try_charge_nowait(50_000);
    }
}

#[test]
fn signals_may_come_while_the_books_are_put_right() {
    let _alone = crate::common::fork::alone();
    let mut random = Random(seed());
    let world = WORLD.get_or_init(World::new);
    signals::on(libc::SIGUSR2, uncharge_one);
    for _ in 0..FORKS {
        {
            let mut held = HELD.lock().unwrap();
            for _ in 0..200 {
                let at = 1 + random.below(world.groups.len() - 1);
                let note = &world.notes[at];
                let charge = note.charge(1 + random.below(6_000) as u64, |bytes| {
                    world.groups[at].try_charge(bytes)
                });
                held.extend(charge.map(|charge| (at, charge)));
            }
        }
        in_child(|| {
            {
                let _signals = signals::Signals::every_ns(40_000, libc::SIGUSR2);
                BEGUN.store(true, Ordering::SeqCst);
                world.memory.tick();
            }
            while !HELD.lock().unwrap().is_empty() {
                uncharge_one();
            }
            world.check();
            for group in &world.groups {
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
