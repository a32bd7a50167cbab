//! Charges that may not wait, and such that may not fail: the former keep to the limits; after the latter, no fallible
//! charge succeeds until the usage is back within the limit. What may not wait finishes without the help of others.

use bursar_machine::Watched;

use super::Protocol;
use super::books::{Books, NO_LIMIT, run};
use super::charging::{Charging, some_bytes};
use super::own_steps::OwnSteps;
use crate::random::Random;

pub(super) fn protocol<M: Watched>() -> Protocol<M> {
    Protocol {
        name: "nowait-and-overshoot",
        summary: "charges that never wait and charges that never fail: limits, the latch after an overshoot, few steps",
        cpus: 2,
        scenario,
    }
}

const MAX: u64 = 1000;

fn scenario<M: Watched>(machine: &M, seed: u64) {
    let books = Books::new(machine, NO_LIMIT, &[(0, MAX), (1, NO_LIMIT), (1, MAX / 2)]);
    let charging = Charging::new(books);
    let steps = OwnSteps::new(machine);
    let (all, steps) = (&charging, &steps);
    let fallibly = move |random: Random| {
        all.churn(random, 4, |random, held| {
            let group = 1 + random.below(3) as usize;
            let bytes = some_bytes(random, MAX);
            match random.below(6) {
                0 | 1 => {
                    let nowait = || all.charge_nowait(group, bytes);
                    held.extend(steps.of("a charge that may not wait", nowait));
                }
                2 => {
                    if let Some(holding) = held.pop() {
                        let nowait = || all.uncharge_nowait(holding);
                        steps.of("a return that tells nobody", nowait);
                    }
                }
                3 => steps.of("an update", || all.books.add(group)),
                _ => held.extend(all.charge(group, bytes)),
            }
        });
    };
    let anyway = move |random: Random| {
        all.churn(random, 3, |random, held| {
            let group = 1 + random.below(3) as usize;
            held.push(all.charge_anyway(group, some_bytes(random, MAX)));
        });
    };
    run(
        machine,
        seed,
        || {
            all.check_all_held();
            steps.check();
        },
        vec![Box::new(fallibly), Box::new(fallibly), Box::new(anyway)],
    );
    charging.finish();
}
