//! Limits that change while others charge: a lowered limit holds when the call returns, and not even stock charges
//! above it.

use bursar_machine::Watched;

use super::Protocol;
use super::books::{Books, NO_LIMIT, run};
use super::charging::{Charging, some_bytes};
use crate::random::Random;

pub(super) fn protocol<M: Watched>() -> Protocol<M> {
    Protocol {
        name: "set-limit",
        summary: "limits go up and down while others charge: a lowered one holds from the return on",
        cpus: 2,
        scenario,
    }
}

const MAX: u64 = 1000;

fn scenario<M: Watched>(machine: &M, seed: u64) {
    let books = Books::new(machine, NO_LIMIT, &[(0, MAX), (1, MAX)]);
    // Two tasks that set one limit at once, or two limits.
    let other = 1 + Random::fork(seed, 0).below(2) as usize;
    let charging = Charging::new(books);
    let all = &charging;
    let charge = move |random: Random| {
        all.churn(random, 4, |random, held| {
            let group = 1 + random.below(2) as usize;
            held.extend(all.charge(group, some_bytes(random, MAX / 2)));
        });
    };
    let change = move |group: usize| {
        move |mut random: Random| {
            for _ in 0..1 + random.below(2) {
                let some = random.below(2 * MAX);
                let max = [0, 10, some, MAX][random.below(4) as usize];
                all.set_max(group, max);
            }
        }
    };
    run(
        machine,
        seed,
        all.check(),
        vec![
            Box::new(charge),
            Box::new(charge),
            Box::new(change(1)),
            Box::new(change(other)),
        ],
    );
    charging.finish();
}
