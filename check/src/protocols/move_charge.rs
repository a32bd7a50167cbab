//! Charges that move between groups: the target's limits hold, and groups above both neither gain nor lose.

use bursar_machine::Watched;

use super::Protocol;
use super::books::{Books, NO_LIMIT, run};
use super::charging::{Charging, some_bytes};
use crate::random::Random;

pub(super) fn protocol<M: Watched>() -> Protocol<M> {
    Protocol {
        name: "move-charge",
        summary: "charges move between groups with limits while others charge there",
        cpus: 2,
        scenario,
    }
}

const MAX: u64 = 1000;

fn scenario<M: Watched>(machine: &M, seed: u64) {
    let books = Books::new(
        machine,
        NO_LIMIT,
        &[(0, MAX), (0, MAX), (1, NO_LIMIT), (1, MAX / 2)],
    );
    let charging = Charging::new(books);
    let all = &charging;
    let charge = move |random: Random| {
        all.churn(random, 3, |random, held| {
            let group = 1 + random.below(4) as usize;
            match held.last_mut() {
                Some(holding) if random.below(2) == 0 => all.move_to(holding, group),
                _ => held.extend(all.charge(group, some_bytes(random, MAX))),
            }
        });
    };
    let read = move |mut random: Random| {
        for _ in 0..random.below(2) {
            all.read(random.below(2) as usize);
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
