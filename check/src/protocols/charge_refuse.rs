//! Charges near limits at two levels: no charge commits above a limit, and none is refused while the memory is free.

use bursar_machine::Watched;

use super::Protocol;
use super::books::{Books, NO_LIMIT, run};
use super::charging::{Charging, some_bytes};
use crate::random::Random;

pub(super) fn protocol<M: Watched>() -> Protocol<M> {
    Protocol {
        name: "charge-refuse",
        summary: "charges near limits at two levels, returns, drains: nothing above a limit, no false refusal",
        cpus: 2,
        scenario,
    }
}

const MAX: u64 = 1000;

fn scenario<M: Watched>(machine: &M, seed: u64) {
    let mut random = Random::fork(seed, 0);
    // Now the parent refuses, now a child does, now the root does what a child would grant.
    let root_max = [NO_LIMIT, MAX - 100][random.below(2) as usize];
    let child_max = [NO_LIMIT, MAX / 2][random.below(2) as usize];
    let books = Books::new(
        machine,
        root_max,
        &[(0, MAX), (1, child_max), (1, NO_LIMIT)],
    );
    let charging = Charging::new(books);
    let all = &charging;
    let charge = move |random: Random| {
        all.churn(random, 3, |random, held| {
            let group = 1 + random.below(3) as usize;
            held.extend(all.charge(group, some_bytes(random, MAX)));
            if random.below(8) == 0 {
                all.books.add(group);
            }
        });
    };
    let read = move |mut random: Random| {
        for _ in 0..random.below(2) {
            all.read(random.below(4) as usize);
        }
    };
    run(
        machine,
        seed,
        all.check(),
        vec![
            Box::new(charge),
            Box::new(charge),
            Box::new(charge),
            Box::new(read),
        ],
    );
    charging.finish();
}
