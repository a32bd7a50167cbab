//! Calls of upkeep where no workqueue makes them: from a user's thread, or on a few threads.
//!
//! There is no list of timers. The state of each CPU's upkeep holds its due time, so any caller does the work that is
//! due. Several may call at once; of the callers that find a CPU due, one does its upkeep. Upkeep then runs on the
//! caller's CPU, which [`Upkeep`] must support.
//!
//! Threads divide the CPUs among themselves, and each has its own shepherd, so none has to wake another.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bursar_machine::host::Ticker;
use bursar_machine::{AtomicWord, Host, Machine, MemoryOrder, Shard};

use super::grid::{Grid, Timetable};
use super::shepherd::Housekeeping;
use super::upkeep::{HousekeepingError, Options, Upkeep};

/// Housekeeping with its callers. A clone is another handle of the same housekeeping.
///
/// In a forked child nothing calls it until the child does. Let the child call [`Upkeeper::tick`] once before it starts
/// threads.
pub struct Upkeeper<M: Machine = Host, U: Upkeep = Box<dyn Upkeep>, T: Timetable = Grid> {
    shared: Arc<Shared<M, U, T>>,
}

struct Shared<M: Machine, U: Upkeep, T: Timetable> {
    housekeeping: Housekeeping<M, U, T>,
    /// Time at which the shepherd of [`Upkeeper::tick`] is due, nanoseconds.
    shepherd_ns: M::Word,
}

impl<M: Machine, U: Upkeep, T: Timetable> Clone for Upkeeper<M, U, T> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<M: Machine, U: Upkeep, T: Timetable> fmt::Debug for Upkeeper<M, U, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.housekeeping.fmt(f)
    }
}

impl<M: Machine, U: Upkeep, T: Timetable> Upkeeper<M, U, T> {
    /// Makes upkeep of the CPUs of `machine`, which nothing calls yet.
    ///
    /// # Errors
    /// [`HousekeepingError`] says which option is invalid.
    pub fn new(machine: &M, upkeep: U, options: Options<T>) -> Result<Self, HousekeepingError> {
        let shared = Shared {
            housekeeping: Housekeeping::new(machine, upkeep, options)?,
            shepherd_ns: M::Word::new(0),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Housekeeping itself, with the due times of its CPUs.
    pub fn housekeeping(&self) -> &Housekeeping<M, U, T> {
        &self.shared.housekeeping
    }

    /// The work of upkeep.
    pub fn upkeep(&self) -> &U {
        self.housekeeping().upkeep()
    }

    /// Does the work that is due now, and returns the time of the next call, in nanoseconds of [`Machine::now_ns`].
    ///
    /// An earlier call does no harm and little work. A later call makes upkeep late; on a grid it does not shift the
    /// times that follow.
    pub fn tick(&self) -> u64 {
        let cpus = 0..self.cpus();
        self.tick_some(cpus, &self.shared.shepherd_ns)
    }

    fn cpus(&self) -> u32 {
        self.housekeeping().machine().cpus() as u32
    }

    /// Does [`Upkeeper::tick`] for some CPUs, whose own shepherd is due at `shepherd_ns`.
    fn tick_some(&self, cpus: Range<u32>, shepherd_ns: &M::Word) -> u64 {
        let housekeeping = self.housekeeping();
        housekeeping.notice_fork();
        let is_first = cpus.start == 0;
        let now_ns = housekeeping.machine().now_ns();
        // Relaxed: the word only says when to look; other data is not read through it.
        let due_ns = shepherd_ns.load(MemoryOrder::Relaxed);
        if due_ns <= now_ns {
            let next_ns = housekeeping.shepherd_due(now_ns);
            let is_ours = shepherd_ns.compare_exchange(due_ns, next_ns, MemoryOrder::Relaxed);
            if is_ours.is_ok() {
                let each = cpus.clone().map(Shard);
                each.for_each(|shard| housekeeping.look_after(shard, &mut |_, _| {}));
                if is_first {
                    housekeeping.fire_extra();
                }
            }
        }
        let mut next_ns = shepherd_ns.load(MemoryOrder::Relaxed);
        for shard in cpus.map(Shard) {
            let due_ns = || housekeeping.due(shard);
            // CPUs that the shepherd has just found are due by now.
            if due_ns().is_some_and(|due_ns| due_ns <= housekeeping.machine().now_ns()) {
                housekeeping.fire(shard);
            }
            next_ns = due_ns().unwrap_or(u64::MAX).min(next_ns);
        }
        next_ns
    }
}

impl<U: Upkeep + 'static, T: Timetable + 'static> Upkeeper<Host, U, T> {
    /// Starts up to `threads` threads, and none if `threads` is 0.
    ///
    /// Each thread does the upkeep of some of the CPUs, sleeps until something is due, and ends when the returned value
    /// is dropped. A forked child has no such threads and may start its own.
    ///
    /// # Errors
    /// The system's error, if it cannot start a thread.
    pub fn start(&self, threads: usize) -> std::io::Result<UpkeepThreads> {
        let cpus = u64::from(self.cpus());
        let threads = (threads as u64).min(cpus);
        let first_of = |thread: u64| (cpus * thread / threads) as u32;
        let each = (0..threads).map(|thread| {
            let upkeeper = self.clone();
            let cpus = first_of(thread)..first_of(thread + 1);
            let shepherd_ns = <Host as Machine>::Word::new(0);
            Ticker::start_varying("bursar-upkeep", Duration::ZERO, move || {
                let next_ns = upkeeper.tick_some(cpus.clone(), &shepherd_ns);
                let now_ns = upkeeper.housekeeping().machine().now_ns();
                Duration::from_nanos(next_ns.saturating_sub(now_ns))
            })
        });
        Ok(UpkeepThreads {
            threads: each.collect::<Result<_, _>>()?,
        })
    }
}

/// Threads that do upkeep until this value is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the threads"]
pub struct UpkeepThreads {
    threads: Vec<Ticker>,
}

impl UpkeepThreads {
    /// Number of threads.
    pub fn count(&self) -> usize {
        self.threads.len()
    }
}

#[cfg(test)]
mod tests;
