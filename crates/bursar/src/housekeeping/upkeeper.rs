//! Who calls upkeep where no workqueue does: its user, or a few threads.
//!
//! There is no list of timers. Where each CPU's upkeep stands says when it is due, so whoever comes by does what is due, and several
//! may come at once: of those who find a CPU due, one has it. Upkeep is then done on whatever CPU the caller is on, which is
//! what [`Upkeep`] must bear; the times are those of the policy, without the wheel's rounding.
//!
//! Threads share the CPUs out among them, each its own shepherd, so none has to wake another.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bursar_machine::host::Ticker;
use bursar_machine::{AtomicWord, Host, Machine, Order, Shard};

use super::shepherd::Housekeeping;
use super::upkeep::{HousekeepingError, Options, Upkeep};

/// Housekeeping, and who calls it. Cloning gives another handle of the same.
///
/// In a forked child nobody calls it until the child does; let it [`Upkeeper::tick`] once before it starts threads.
pub struct Upkeeper<M: Machine = Host, U: Upkeep = Box<dyn Upkeep>> {
    shared: Arc<Shared<M, U>>,
}

struct Shared<M: Machine, U: Upkeep> {
    housekeeping: Housekeeping<M, U>,
    /// When the shepherd of [`Upkeeper::tick`] is due, nanoseconds.
    shepherd_ns: M::Word,
}

impl<M: Machine, U: Upkeep> Clone for Upkeeper<M, U> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<M: Machine, U: Upkeep> fmt::Debug for Upkeeper<M, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.housekeeping.fmt(f)
    }
}

impl<M: Machine, U: Upkeep> Upkeeper<M, U> {
    /// Upkeep of the CPUs of `machine`, which nobody does yet.
    ///
    /// # Errors
    /// [`HousekeepingError`], see there.
    pub fn new(machine: &M, upkeep: U, options: Options) -> Result<Self, HousekeepingError> {
        let shared = Shared {
            housekeeping: Housekeeping::new(machine, upkeep, options)?,
            shepherd_ns: M::Word::new(0),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Who is due when, and what else can be asked of housekeeping.
    pub fn housekeeping(&self) -> &Housekeeping<M, U> {
        &self.shared.housekeeping
    }

    /// What upkeep does.
    pub fn upkeep(&self) -> &U {
        self.housekeeping().upkeep()
    }

    /// Does whatever is due now, and says when it wants to be called next, nanoseconds of [`Machine::now_ns`]. Sooner does
    /// no harm and little work; later makes upkeep late, and shifts nothing if it is on a grid.
    pub fn tick(&self) -> u64 {
        let cpus = 0..self.cpus();
        self.tick_some(cpus, &self.shared.shepherd_ns)
    }

    fn cpus(&self) -> u32 {
        self.housekeeping().machine().cpus() as u32
    }

    /// [`Upkeeper::tick`] for some CPUs, which have a shepherd of their own that is due by `shepherd_ns`.
    fn tick_some(&self, cpus: Range<u32>, shepherd_ns: &M::Word) -> u64 {
        let housekeeping = self.housekeeping();
        housekeeping.notice_fork();
        let is_first = cpus.start == 0;
        let now_ns = housekeeping.machine().now_ns();
        // Relaxed: says when to look, and nothing of what is to be seen.
        let due_ns = shepherd_ns.load(Order::Relaxed);
        if due_ns <= now_ns {
            let next_ns = housekeeping.shepherd_timer(now_ns).deadline_ns;
            let is_ours = shepherd_ns.compare_exchange(due_ns, next_ns, Order::Relaxed);
            if is_ours.is_ok() {
                let each = cpus.clone().map(Shard);
                each.for_each(|shard| housekeeping.look_after(shard, &mut |_, _| {}));
                if is_first {
                    housekeeping.fire_extra();
                }
            }
        }
        let mut next_ns = shepherd_ns.load(Order::Relaxed);
        for shard in cpus.map(Shard) {
            let due_ns = || housekeeping.due(shard).map(|timer| timer.deadline_ns);
            // Those that the shepherd has just found are due by now.
            if due_ns().is_some_and(|due_ns| due_ns <= housekeeping.machine().now_ns()) {
                housekeeping.fire(shard);
            }
            next_ns = due_ns().unwrap_or(u64::MAX).min(next_ns);
        }
        next_ns
    }
}

impl<U: Upkeep + 'static> Upkeeper<Host, U> {
    /// Starts up to `threads` threads, each of which does the upkeep of some of the CPUs, sleeps until something is due, and ends
    /// when the returned value is dropped. None if `threads` is 0. A forked child has none and may start its own.
    ///
    /// # Errors
    /// What the system says if it cannot start a thread.
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

/// Threads that do upkeep until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the threads"]
pub struct UpkeepThreads {
    threads: Vec<Ticker>,
}

impl UpkeepThreads {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.threads.len()
    }
}

#[cfg(test)]
mod tests;
