//! Waits for room: tasks of one query share bytes that are kept until they charge them, while others return bytes, the query is
//! stopped, or the time of a wait is over. Each bug leaves out one step.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bursar_machine::{Event, Lock, Machine};
use bursar_rig::Watched;

use super::bug::Planted;
use crate::protocols::books::run;
use crate::random::Random;

/// Step that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    DropKeeps,
    StoppedLate,
    NotLookedAgain,
    TimeComesFirst,
}

#[rustfmt::skip]
pub(super) fn all<M: Watched>() -> Vec<Planted<M>> {
    planted![
        "dropped-room": "a wait for room is dropped that was promised bytes meanwhile, and they stay kept for nobody",
            scenario, Some(Bug::DropKeeps), None;
        "stopped-room": "the waits of a query end before it is marked as stopped, and one that begins in between goes on",
            scenario, Some(Bug::StoppedLate), None;
        "unlooked-room": "a task looks for room, and begins to wait after the bytes have returned",
            scenario, Some(Bug::NotLookedAgain), None;
        "timed-out-room": "the time of a wait for room is over just after it was promised bytes, and it returns without them",
            scenario, Some(Bug::TimeComesFirst), None;
    ]
}

const MAX: i64 = 10;
/// Bytes that each wait needs.
const STEP: i64 = 4;
/// The query whose two tasks share, and one that holds most bytes at first.
const SHARING: usize = 0;
const HOLDER: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Denied {
    Stopped,
    TimedOut,
}

#[derive(Clone, Copy, Default)]
struct Query {
    charged: i64,
    /// Bytes that its waits share, and have not charged.
    kept: i64,
    /// Waits that were promised bytes and have not ended.
    sharers: u32,
    is_stopped: bool,
}

struct Wait<M: Machine> {
    number: u64,
    query: usize,
    is_promised: bool,
    ended: Arc<M::Event>,
}

struct Ledger<M: Machine> {
    queries: [Query; 2],
    waits: Vec<Wait<M>>,
    numbers: u64,
    /// Whether the time of all waits is over.
    is_late: bool,
}

struct World<M: Machine> {
    ledger: M::Mutex<Ledger<M>>,
    bug: Option<Bug>,
    // Not the machine's word: counting costs no step.
    held: AtomicI64,
}

impl<M: Machine> Ledger<M> {
    /// Promises a query room, if there is some.
    fn promise(&mut self, query: usize) -> bool {
        let held: i64 = self.queries.iter().map(|it| it.charged + it.kept).sum();
        let it = &mut self.queries[query];
        let missing = (STEP - it.kept).max(0);
        let fits = !it.is_stopped && held + missing <= MAX;
        if fits {
            it.kept += missing;
            it.sharers += 1;
        }
        fits
    }

    /// Ends a wait that was promised bytes. The last of those that share returns what none has charged.
    fn end_promise(&mut self, query: usize) {
        let it = &mut self.queries[query];
        it.sharers -= 1;
        if it.sharers == 0 {
            it.kept = 0;
        }
    }
}

impl<M: Machine> World<M> {
    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Changes the ledger, and promises bytes to all waits that can have some then.
    fn change<R>(&self, change: impl FnOnce(&mut Ledger<M>) -> R) -> R {
        let mut ended = Vec::new();
        let mut ledger = self.ledger.lock();
        let result = change(&mut ledger);
        for at in 0..ledger.waits.len() {
            let Wait {
                query, is_promised, ..
            } = ledger.waits[at];
            if !is_promised && ledger.promise(query) {
                ledger.waits[at].is_promised = true;
                ended.push(ledger.waits[at].ended.clone());
            }
        }
        let held: i64 = ledger.queries.iter().map(|it| it.charged + it.kept).sum();
        // Relaxed, here and below: one thread of the host runs all tasks.
        self.held.store(held, Ordering::Relaxed);
        drop(ledger);
        ended.iter().for_each(|ended| ended.set());
        result
    }

    /// Waits for room, or drops the wait at once.
    fn wait(&self, query: usize, is_dropped: bool) -> Result<(), Denied> {
        let ended = Arc::new(M::Event::new());
        let begin = |ledger: &mut Ledger<M>, looks: bool| {
            if ledger.queries[query].is_stopped {
                return Some(Err(Denied::Stopped));
            }
            if looks && ledger.promise(query) {
                return Some(Ok(()));
            }
            if ledger.is_late {
                return Some(Err(Denied::TimedOut));
            }
            None
        };
        let enter = |ledger: &mut Ledger<M>| {
            ledger.numbers += 1;
            ledger.waits.push(Wait {
                number: ledger.numbers,
                query,
                is_promised: false,
                ended: ended.clone(),
            });
            ledger.numbers
        };
        let begun = if self.has(Bug::NotLookedAgain) {
            self.change(|ledger| begin(ledger, true)).map_or_else(
                || {
                    // Without a look at what has returned.
                    let mut ledger = self.ledger.lock();
                    begin(&mut ledger, false).map_or_else(|| Err(enter(&mut ledger)), Ok)
                },
                Ok,
            )
        } else {
            self.change(|ledger| begin(ledger, true).map_or_else(|| Err(enter(ledger)), Ok))
        };
        let number = match begun {
            Ok(Ok(())) if is_dropped => {
                self.change(|ledger| ledger.end_promise(query));
                return Err(Denied::TimedOut);
            }
            Ok(answer) => return answer,
            Err(number) => number,
        };
        if !is_dropped {
            ended.wait();
        }
        self.change(|ledger| {
            let is_it = |wait: &Wait<M>| wait.number == number;
            let at = ledger.waits.iter().position(is_it).expect("it waits");
            let is_promised = ledger.waits.remove(at).is_promised;
            let is_stopped = ledger.queries[query].is_stopped;
            if is_dropped {
                if is_promised && !self.has(Bug::DropKeeps) {
                    ledger.end_promise(query);
                }
                return Err(Denied::TimedOut);
            }
            match is_promised {
                true if self.has(Bug::TimeComesFirst) && ledger.is_late => Err(Denied::TimedOut),
                true => Ok(()),
                false if is_stopped => Err(Denied::Stopped),
                false => Err(Denied::TimedOut),
            }
        })
    }

    /// Charges what is kept, as far as no sharer has done so, and ends the wait.
    fn charge(&self, query: usize) -> i64 {
        self.change(|ledger| {
            let it = &mut ledger.queries[query];
            let bytes = it.kept.min(STEP);
            it.kept -= bytes;
            it.charged += bytes;
            ledger.end_promise(query);
            bytes
        })
    }

    fn uncharge(&self, query: usize, bytes: i64) {
        self.change(|ledger| ledger.queries[query].charged -= bytes);
    }

    /// Ends the waits of a query, or of all, that have no promise.
    fn end_waits(ledger: &Ledger<M>, of: Option<usize>) {
        let waits = ledger.waits.iter().filter(|wait| !wait.is_promised);
        let waits = waits.filter(|wait| of.is_none_or(|query| wait.query == query));
        waits.for_each(|wait| wait.ended.set());
    }

    fn stop(&self, query: usize) {
        if self.has(Bug::StoppedLate) {
            self.change(|ledger| Self::end_waits(ledger, Some(query)));
            return self.change(|ledger| ledger.queries[query].is_stopped = true);
        }
        self.change(|ledger| {
            ledger.queries[query].is_stopped = true;
            Self::end_waits(ledger, Some(query));
        });
    }

    fn end_time(&self) {
        self.change(|ledger| {
            ledger.is_late = true;
            Self::end_waits(ledger, None);
        });
    }
}

fn scenario<M: Watched>(machine: &M, seed: u64, bug: Option<Bug>) {
    let holder = Query {
        charged: 2 * STEP,
        ..Query::default()
    };
    let world = World::<M> {
        ledger: M::Mutex::new(Ledger {
            queries: [Query::default(), holder],
            waits: Vec::new(),
            numbers: 0,
            is_late: false,
        }),
        bug,
        held: AtomicI64::new(0),
    };
    let world = &world;
    let share = move |mut random: Random| {
        for _ in 0..2 {
            if world.wait(SHARING, random.below(3) == 0).is_ok() {
                let bytes = world.charge(SHARING);
                world.uncharge(SHARING, bytes);
            }
        }
    };
    let hold = move |mut random: Random| {
        let bytes = random.below(STEP as u64) as i64;
        world.uncharge(HOLDER, STEP - bytes);
        world.uncharge(HOLDER, STEP + bytes);
        if world.wait(HOLDER, false).is_ok() {
            let bytes = world.charge(HOLDER);
            world.uncharge(HOLDER, bytes);
        }
    };
    let end = move |mut random: Random| match random.below(3) {
        0 => world.stop(SHARING),
        1 => world.end_time(),
        _ => (),
    };
    let check = || {
        let held = world.held.load(Ordering::Relaxed);
        assert!(held <= MAX, "{held} bytes are charged or kept of {MAX}");
    };
    run(machine, seed, check, tasks![share, share, hold, end]);
    let ledger = world.ledger.lock();
    assert!(ledger.waits.is_empty(), "a wait is left");
    for it in ledger.queries {
        let left = (it.charged, it.kept, it.sharers);
        assert_eq!(left, (0, 0, 0), "bytes that nobody holds");
    }
}
