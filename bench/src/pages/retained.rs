//! *retained*: memory that an allocator keeps when everything was given back.
//!
//! 64 threads, all of them alive to the end, take turns: each allocates 2 MiB, writes all of it, and frees it. Kept is by how
//! much the process is larger then than before the first turn, less what was offered to the kernel: *at once*, after the
//! program has been *idle* for some periods, and after it went on for as many with one thread *busy*, for some allocators
//! give memory back only when they are called. Only what an allocator does by default is asked of it ([`Pages::upkeep`]).

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bursar_bench_peers::Pages;

use crate::pages::resident;
use crate::pages::speed::alloc;

/// Bytes that each thread holds in its turn.
const HELD_BYTES: usize = 2 << 20;
/// Periods that pass: with periods of a second more than jemalloc's decay of 10 s.
const PERIODS: usize = 12;
/// Pairs in each period when one thread is busy.
const PAIRS: usize = 1000;

/// Bytes kept.
pub struct Retained {
    pub at_once_bytes: u64,
    pub idle_bytes: u64,
    pub busy_bytes: u64,
}

/// Whose turn it is.
struct Turns {
    now: Mutex<usize>,
    changed: Condvar,
}

impl Turns {
    fn await_turn(&self, turn: usize) {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let reached = self.changed.wait_while(now, |now| *now < turn);
        drop(reached.unwrap_or_else(PoisonError::into_inner));
    }

    fn next(&self) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.changed.notify_all();
    }
}

/// Lets `threads` threads take turns and looks what is kept. `period` is that of the idle time.
///
/// # Errors
/// If the kernel does not say.
pub fn run<P: Pages>(
    pages: &P,
    bytes: usize,
    threads: usize,
    period: Duration,
) -> Result<Retained, String> {
    // One turn to arrive and one to allocate for each thread, and one in between and one at the end for this one.
    let (begin, end) = (threads, 2 * threads + 1);
    let turns = Turns {
        now: Mutex::new(0),
        changed: Condvar::new(),
    };
    thread::scope(|scope| {
        for number in 0..threads {
            let turns = &turns;
            scope.spawn(move || {
                // The list is there before anything is measured.
                let mut held = Vec::with_capacity(HELD_BYTES / bytes);
                turns.await_turn(number);
                turns.next();
                turns.await_turn(begin + 1 + number);
                for _ in 0..HELD_BYTES / bytes {
                    let mut block = alloc(pages);
                    P::fill(&mut block);
                    held.push(block);
                }
                held.drain(..).for_each(|block| pages.free(block));
                turns.next();
                turns.await_turn(end + 1);
            });
        }
        turns.await_turn(begin);
        let before = resident::kept_bytes();
        turns.next();
        turns.await_turn(end);
        let measured = before.and_then(|before| after(pages, before, period));
        // The threads end in any case.
        turns.next();
        measured
    })
}

/// Memory that is kept, at three times.
fn after<P: Pages>(pages: &P, before: u64, period: Duration) -> Result<Retained, String> {
    let kept_bytes = || Ok::<_, String>(resident::kept_bytes()?.saturating_sub(before));
    let at_once_bytes = kept_bytes()?;
    for _ in 0..PERIODS {
        thread::sleep(period);
        pages.upkeep();
    }
    let idle_bytes = kept_bytes()?;
    for _ in 0..PERIODS {
        thread::sleep(period);
        for _ in 0..PAIRS {
            pages.free(alloc(pages));
        }
        pages.upkeep();
    }
    Ok(Retained {
        at_once_bytes,
        idle_bytes,
        busy_bytes: kept_bytes()?,
    })
}
