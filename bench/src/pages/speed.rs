//! *pair*, *deep* and *remote*: what an allocation and its free cost together.
//!
//! Nobody writes to the blocks: what is measured is the allocator. Threads are timed as everywhere (`timing.rs`), but after
//! a quarter of a turn untimed, for the process is new.

use std::hint::black_box;

use bursar_bench_peers::Pages;

use crate::contender::unrolled;
use crate::hand_over::{BATCH, Belt};
use crate::timing::{Meeting, Slice, Spent, Stopwatch, on_cpus};

/// Pairs of a block of *pair*.
const PAIRS: u64 = 4096;
/// Blocks held at a time in *deep*.
const DEPTH: usize = 1024;

#[inline(always)]
pub fn alloc<P: Pages>(pages: &P) -> P::Block {
    let block = pages.alloc().expect("more memory than is asked for");
    // Where it is, is used; whether the token lies in registers is the compiler's affair, as in a program.
    black_box(P::address(&block));
    block
}

/// Runs `block`, which returns the pairs it did, for a while, and then timed.
fn timed(slice: Slice, meeting: &Meeting, mut block: impl FnMut() -> u64) -> Spent {
    let warm = Slice { ns: slice.ns / 4 };
    warm.run(|| (), &mut block);
    slice.run(|| meeting.join(), block)
}

/// One block after another, each freed at once.
pub fn pair<P: Pages>(pages: &P, cpus: &[usize], slice: Slice) -> Spent {
    on_cpus(cpus, |_, meeting| {
        timed(slice, meeting, || {
            for _ in 0..PAIRS / 4 {
                unrolled!([0 1 2 3] |_number| {
                    pages.free(alloc(pages));
                });
            }
            PAIRS
        })
    })
}

/// 1,024 blocks at a time, freed in the order in which they came.
pub fn deep<P: Pages>(pages: &P, cpus: &[usize], slice: Slice) -> Spent {
    on_cpus(cpus, |_, meeting| {
        let mut held = Vec::with_capacity(DEPTH);
        timed(slice, meeting, || {
            for _ in 0..DEPTH {
                held.push(alloc(pages));
            }
            for block in held.drain(..) {
                pages.free(block);
            }
            DEPTH as u64
        })
    })
}

/// The first thread allocates, the second frees; blocks change hands 256 at a time over a short belt, whose cost (the same
/// for all) is included. The cost of a pair is what both threads spent.
pub fn remote<P: Pages>(pages: &P, cpus: &[usize], slice: Slice) -> Spent {
    let belt = Belt::new();
    on_cpus(cpus, |thread, meeting| match thread {
        0 => allocate_all(pages, &belt, meeting, slice),
        _ => free_all(pages, &belt, meeting),
    })
}

fn allocate_all<P: Pages>(
    pages: &P,
    belt: &Belt<P::Block>,
    meeting: &Meeting,
    slice: Slice,
) -> Spent {
    let mut batch = Vec::with_capacity(BATCH);
    // The other thread is there from the first batch on.
    meeting.join();
    let mut block = || {
        for _ in 0..BATCH {
            batch.push(alloc(pages));
        }
        belt.put(&mut batch);
        BATCH as u64
    };
    let spent = slice.run(|| (), &mut block);
    belt.close();
    spent
}

fn free_all<P: Pages>(pages: &P, belt: &Belt<P::Block>, meeting: &Meeting) -> Spent {
    let mut batch = Vec::with_capacity(BATCH);
    meeting.join();
    let watch = Stopwatch::start();
    while belt.take(&mut batch) {
        for block in batch.drain(..) {
            pages.free(block);
        }
    }
    // The pairs are counted where they begin.
    Spent {
        ns: watch.ns(),
        operations: 0,
    }
}
