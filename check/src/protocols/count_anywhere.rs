//! Charges that neither wait nor fail, and their returns, while others drain, lower limits and read: used memory is
//! counted wherever it is allocated. No charge needs the help of others to finish, and none is lost.

use bursar_machine::Watched;

use super::Protocol;
use super::books::{Books, NO_LIMIT, run};
use super::charging::{Charging, some_bytes};
use super::own_steps::OwnSteps;
use crate::random::Random;

pub(super) fn protocol<M: Watched>() -> Protocol<M> {
    Protocol {
        name: "count-anywhere",
        summary: "charges that neither wait nor fail, with drains, limits and exact reads: few steps, nothing lost",
        cpus: 2,
        scenario,
    }
}

const MAX: u64 = 1000;

fn scenario<M: Watched>(machine: &M, seed: u64) {
    // Nobody charges within limits here, and what limits leave is not checked: an overshoot that may not wait leaves stock for
    // others to drain.
    let books = Books::new(machine, NO_LIMIT, &[(0, MAX), (1, MAX / 2), (1, NO_LIMIT)]);
    let charging = Charging::new(books);
    let steps = OwnSteps::new(machine);
    let (all, steps) = (&charging, &steps);
    let count = move |random: Random| {
        all.churn(random, 5, |random, held| {
            let group = 1 + random.below(3) as usize;
            match random.below(3) {
                0 if !held.is_empty() => {
                    let holding = held.swap_remove(random.below(held.len() as u64) as usize);
                    steps.of("a return that tells nobody", || {
                        all.uncharge_nowait(holding)
                    });
                }
                _ => {
                    let bytes = some_bytes(random, MAX / 2);
                    let charge = || all.charge_anyway_nowait(group, bytes);
                    held.push(steps.of("a charge that neither waits nor fails", charge));
                }
            }
        });
    };
    let drain = move |mut random: Random| {
        for _ in 0..3 {
            let group = 1 + random.below(3) as usize;
            match random.below(4) {
                0 => {
                    all.read(random.below(4) as usize);
                    all.books.memory.tick();
                }
                1 => {
                    let holding = all.charge_anyway(group, some_bytes(&mut random, MAX));
                    all.uncharge(holding);
                }
                _ => {
                    let max = [0, MAX / 4, MAX][random.below(3) as usize];
                    all.books.groups[group].set_max(max);
                }
            }
        }
    };
    run(
        machine,
        seed,
        || {
            all.check_all_held();
            steps.check();
        },
        vec![Box::new(count), Box::new(count), Box::new(drain)],
    );
    charging.finish();
}
