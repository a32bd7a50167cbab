//! A process that forks while other threads are anywhere. The child's books are consistent, and the parent's do not
//! change.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::child::live_in_child;
use crate::common::fork::in_child;
use crate::common::world::{FORKS, Stop, THREADS, World};
use crate::common::{Random, Short, seed};
use bursar::Charge;

#[test]
fn books_are_whole_in_the_child_and_untouched_in_the_parent() {
    let _alone = crate::common::fork::alone();
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
    let root = world.memory.exact();
    assert_eq!(root.usage().value, 0);
    for at in 1..3 {
        world.groups[at].set_max(0);
        assert_eq!(world.groups[at].reserved(), 0);
    }
}

fn in_child_with(world: &World, held: &mut Vec<(usize, Charge)>, random: &mut Random) {
    let seed = random.next();
    in_child(|| live_in_child(world, std::mem::take(held), &mut Random(seed)));
}
