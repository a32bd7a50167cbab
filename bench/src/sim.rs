//! `sim`: what the simulator is asked to do, row by row, and what one turn of a row measures.
//!
//! All rows but the last run on virtual time, with a steady load on each CPU from the first moment to the last. The
//! timed part is `Tasks::run` as a whole: tasks get their stacks, work, end and give the stacks back. One *lock event*
//! is a lock taken together with its release.

use std::sync::atomic::{AtomicUsize, Ordering};

use bursar::{Freshness, Limits, Memory};
use bursar_machine::{AtomicWord, Lock, Machine, MemoryOrder};
use bursar_rig::Tasks;
use bursar_sim::{Explorer, SectionKind, Settings, Sim, SimSpin, SimWord, Simulator, Topology};
use serde::{Deserialize, Serialize};

use crate::timing::Stopwatch;
use crate::tree::{ROWS as COUNTED, STATISTICS};

/// CPUs of the machine that is as large as those of the papers.
const CPUS: usize = 384;
const LOCKS: usize = CPUS;
const SEED: u64 = 1;
/// Computing of a task between two locks, virtual nanoseconds, and up to 15 more.
const COMPUTE_NS: u64 = 100;
/// A sleeper sleeps after so many locks.
const LOCKS_AWAKE: u64 = 50;
/// Length of a sleep, virtual nanoseconds.
const SLEEP_NS: u64 = 100_000;

/// Work of the tasks of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Takes one of 384 spin locks at random, adds to what it protects, gives it back, computes for about 100 ns.
    Locks,
    /// The same, and sleeps after every 50 locks.
    Sleepers,
    /// Adds to one word that all share.
    Word,
    /// Two tasks count in a group of a memory, a third reads it with `Exact`, under one schedule after another.
    Explore,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub name: &'static str,
    pub work: Work,
    pub cpus: usize,
    pub tasks: usize,
    /// Lock events or additions of each task; schedules in all.
    pub each: u64,
}

impl Row {
    /// Unit of the count.
    pub fn unit(&self) -> &'static str {
        match self.work {
            Work::Locks | Work::Sleepers => "lock events",
            Work::Word => "additions",
            Work::Explore => "schedules",
        }
    }

    /// Whether there is a run-ahead to switch off: schedules are chosen step by step anyway.
    pub fn has_run_ahead(&self) -> bool {
        self.work != Work::Explore
    }

    /// A tenth of the work, to see whether everything works.
    pub fn quick(self) -> Self {
        // The first sleepers must not be done before the last have begun.
        let least = match self.work {
            Work::Sleepers => 2 * LOCKS_AWAKE + 1,
            _ => 1,
        };
        Self {
            each: (self.each / 10).max(least),
            ..self
        }
    }
}

/// The names of the rows that have targets.
pub const LOCKS_ROW: &str = "locks";
/// As above.
pub const SLEEPERS_ROW: &str = "sleepers";
/// The contended word, few CPUs first.
pub const WORD_ROWS: [&str; 3] = ["word-8", "word-72", "word-384"];

/// All rows, in the order of the table.
pub const ROWS: [Row; 6] = [
    Row {
        name: LOCKS_ROW,
        work: Work::Locks,
        cpus: CPUS,
        tasks: 384,
        each: 5_000,
    },
    Row {
        name: SLEEPERS_ROW,
        work: Work::Sleepers,
        cpus: CPUS,
        tasks: 16_000,
        each: 200,
    },
    word(WORD_ROWS[0], 8, 50_000),
    word(WORD_ROWS[1], 72, 6_000),
    word(WORD_ROWS[2], CPUS, 1_000),
    Row {
        name: "explore",
        work: Work::Explore,
        cpus: 2,
        tasks: 3,
        each: 3_000,
    },
];

const fn word(name: &'static str, cpus: usize, each: u64) -> Row {
    Row {
        name,
        work: Work::Word,
        cpus,
        tasks: cpus,
        each,
    }
}

/// Measurements of one turn of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Count of the row, in its unit.
    pub operations: u64,
    /// Time on the host, nanoseconds.
    pub ns: u64,
    /// Visible operations; steps of all schedules.
    pub events: u64,
    /// Time on the simulated machine; 0 where there is no time.
    pub virtual_ns: u64,
    /// Identifies all events and their order.
    pub hash: u64,
}

impl Turn {
    /// Operations a second of the host.
    pub fn per_second(&self) -> f64 {
        self.operations as f64 * 1e9 / self.ns.max(1) as f64
    }

    /// Visible operations a second of the host.
    pub fn events_per_second(&self) -> f64 {
        self.events as f64 * 1e9 / self.ns.max(1) as f64
    }
}

/// One turn of a row.
///
/// # Errors
/// If something was lost, or the tasks did not do what the row is about.
pub fn turn(row: &Row, run_ahead: bool) -> Result<Turn, String> {
    if row.work == Work::Explore {
        return explore(row);
    }
    let topology = Topology::new(row.cpus, row.cpus.div_ceil(192), 1000);
    let mut settings = Settings::new(topology, SEED);
    settings.run_ahead = run_ahead;
    let simulator = Simulator::new(settings);
    let machine = simulator.machine();
    let ns = match row.work {
        Work::Word => additions(&machine, row)?,
        _ => locks(&machine, row)?,
    };
    let counts = simulator.counts();
    let operations = row.tasks as u64 * row.each;
    if row.work != Work::Word && counts.acquisitions != operations {
        let taken = counts.acquisitions;
        return Err(format!("{taken} locks were taken, not {operations}"));
    }
    Ok(Turn {
        operations,
        ns,
        events: counts.events,
        virtual_ns: machine.now_ns(),
        hash: simulator.event_hash(),
    })
}

type Body<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Runs the bodies; the host's nanoseconds.
fn timed(machine: &Sim, bodies: Vec<Body<'_>>) -> u64 {
    let watch = Stopwatch::start();
    machine.run(bodies);
    watch.ns()
}

fn locks(machine: &Sim, row: &Row) -> Result<u64, String> {
    let locks: Vec<SimSpin<u64>> = (0..LOCKS).map(|_| Lock::new(0)).collect();
    let live = Live::default();
    let body = |number: usize| {
        let (locks, live) = (&locks, &live);
        move || {
            live.begin();
            let mut random = number as u64;
            for round in 1..=row.each {
                // Knuth's multiplier; the upper bits are the good ones.
                random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
                *locks[(random >> 33) as usize % LOCKS].lock() += 1;
                machine.compute(COMPUTE_NS + (random >> 60));
                let is_tired = row.work == Work::Sleepers && round % LOCKS_AWAKE == 0;
                if is_tired && round < row.each {
                    machine.sleep_until(machine.now_ns() + SLEEP_NS);
                }
            }
            live.end();
        }
    };
    let bodies = (0..row.tasks).map(|number| Box::new(body(number)) as Body<'_>);
    let ns = timed(machine, bodies.collect());
    let counted: u64 = locks.iter().map(|lock| *lock.lock()).sum();
    let (wanted, most) = (row.tasks as u64 * row.each, live.most());
    if counted != wanted {
        return Err(format!("{wanted} times 1 were counted as {counted}"));
    }
    if most != row.tasks {
        return Err(format!(
            "{most} of {} tasks were under way at once",
            row.tasks
        ));
    }
    Ok(ns)
}

fn additions(machine: &Sim, row: &Row) -> Result<u64, String> {
    let word = SimWord::new(0);
    let body = || {
        for _ in 0..row.each {
            word.fetch_add(1, MemoryOrder::Full);
        }
    };
    let bodies = (0..row.tasks).map(|_| Box::new(body) as Body<'_>);
    let ns = timed(machine, bodies.collect());
    let (counted, wanted) = (word.load(MemoryOrder::Relaxed), row.tasks as u64 * row.each);
    if counted != wanted {
        return Err(format!("{wanted} times 1 were counted as {counted}"));
    }
    Ok(ns)
}

/// Number of tasks that have begun, have a stack, and have not ended. Words of the host, which cost no virtual
/// time.
#[derive(Default)]
struct Live {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Live {
    fn begin(&self) {
        // Relaxed, here and below: one thread of the host runs all tasks.
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
    }

    fn end(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

fn explore(row: &Row) -> Result<Turn, String> {
    let explorer = Explorer {
        topology: Topology::new(row.cpus, 1, 1000),
        sections: SectionKind::Restartable,
        seed: SEED,
    };
    let watch = Stopwatch::start();
    let explored = explorer.explore(&two_count_one_reads, 0, row.each, |_| ());
    let ns = watch.ns();
    if let Some(found) = explored.found {
        return Err(format!("schedule {}: {:?}", found.schedule, found.failure));
    }
    Ok(Turn {
        operations: explored.schedules,
        ns,
        events: explored.steps,
        virtual_ns: 0,
        // There is none of all schedules; their steps differ if any of them does, as good as always.
        hash: explored.steps,
    })
}

fn two_count_one_reads(machine: &Sim, _variety: u64) {
    let builder = Memory::builder().statistics(STATISTICS);
    let memory = builder.build_on(machine.clone()).expect("a memory");
    let group = memory.root().child("group", Limits::none());
    let group = group.expect("a new group");
    let read = || group.read(Freshness::Exact).expect("it may flush");
    let add = || group.add(COUNTED, 1);
    let look = || assert!((0..=2).contains(&read().get(COUNTED).value));
    machine.run(vec![Box::new(add), Box::new(add), Box::new(look)]);
    assert_eq!(read().get(COUNTED).value, 2);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(row: Row) -> Row {
        match row.work {
            Work::Sleepers => Row {
                tasks: 1_000,
                each: 2 * LOCKS_AWAKE + 1,
                ..row
            },
            _ => Row { each: 20, ..row },
        }
    }

    #[test]
    fn every_row_does_what_it_is_about_with_and_without_run_ahead() {
        for row in ROWS.map(small) {
            let with = turn(&row, true).unwrap();
            assert_eq!(with.operations % row.each, 0);
            let without = turn(&row, false).unwrap();
            let same = Turn {
                ns: with.ns,
                ..without
            };
            assert_eq!(same, with, "{}", row.name);
        }
    }
}
