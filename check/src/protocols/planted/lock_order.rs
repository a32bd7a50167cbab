//! Two locks: every task takes them in one order. In the broken version one task takes them in the other.

use bursar_machine::Lock;
use bursar_rig::Watched;

use super::bug::Version;
use crate::protocols::books::run;
use crate::random::Random;

pub(super) fn scenario<M: Watched>(machine: &M, seed: u64, version: Version) {
    let locks = [0, 1].map(<M::Mutex<u64> as Lock<u64>>::new);
    let locks = &locks;
    let take = move |first: usize| {
        move |_: Random| {
            for _ in 0..2 {
                let mut one = locks[first].lock();
                let mut other = locks[1 - first].lock();
                *one += 1;
                *other += 1;
            }
        }
    };
    let second = match version {
        Version::Broken => 1,
        Version::Mended => 0,
    };
    run(machine, seed, || (), tasks![take(0), take(second), take(0)]);
}
