//! Search for CPUs that need upkeep, with one call at a time for each.
//!
//! Each CPU has one word ([`State`]): idle, queued, or running. The shepherd changes idle to queued. A call changes
//! queued to running, and at its end running to queued or idle. All changes are compare-and-exchange except the last,
//! which is a store because nothing else changes the word while upkeep runs. The shepherd skips a CPU whose upkeep is
//! queued or runs. The kernel checks only whether it is queued (Linux 6.12 does), so a call under way can be queued a
//! second time.
//!
//! # Invariants
//! * A CPU has at most one time to wait for, and has it while its upkeep is queued or runs early.
//! * An addition after a call has looked is found by the shepherd's next round: a call that ends looks at nothing
//!   again.
//!
//! # Accepted
//! The shepherd may find work that a call folds at that moment, and then queues a call that finds none. Each time costs
//! one call.

use std::fmt;

use bursar_machine::{AtomicWord, Machine, MemoryOrder, Shard};

use super::grid::{Grid, Place, Timetable};
use super::state::{Call, State};
use super::upkeep::{HousekeepingError, Options, Upkeep};
use crate::apart::Apart;

/// Upkeep of all CPUs of a machine. Nothing here runs by itself; see the module. A call that was under way when the process forked stays so
/// in the child: make a new one there. An [`super::Upkeeper`] notices a fork by itself.
pub struct Housekeeping<M: Machine, U: Upkeep, T: Timetable = Grid> {
    machine: M,
    upkeep: U,
    options: Options<T>,
    /// Upkeep by CPU.
    cpus: Box<[Cpu<M>]>,
    /// State for threads without a CPU; see [`Housekeeping::fire_extra`].
    extra: Apart<M::Word>,
    /// Last value of [`Machine::forks`].
    forks: M::Word,
}

struct Cpu<M: Machine> {
    /// Place of the CPU; `None` if it is left alone.
    place: Option<Place>,
    state: Apart<M::Word>,
}

impl<M: Machine, U: Upkeep, T: Timetable> fmt::Debug for Housekeeping<M, U, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Housekeeping")
            .field("machine", &self.machine)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

fn places(cpus: usize, isolated: &[u32]) -> impl Iterator<Item = Option<Place>> {
    let takes_part = |cpu: &u32| !isolated.contains(cpu);
    let of = (0..cpus as u32).filter(takes_part).count() as u32;
    (0..cpus as u32).scan(0, move |rank, cpu| {
        if !takes_part(&cpu) {
            return Some(None);
        }
        *rank += 1;
        let rank = *rank - 1;
        Some(Some(Place { cpu, rank, of }))
    })
}

impl<M: Machine, U: Upkeep, T: Timetable> Housekeeping<M, U, T> {
    /// Makes upkeep of the CPUs of `machine`.
    ///
    /// # Errors
    /// [`HousekeepingError`] says which option is invalid.
    pub fn new(machine: &M, upkeep: U, options: Options<T>) -> Result<Self, HousekeepingError> {
        let cpus = machine.cpus();
        if let Some(&cpu) = options.isolated.iter().find(|&&cpu| cpu as usize >= cpus) {
            return Err(HousekeepingError::NoSuchCpu { cpu, cpus });
        }
        let (slack_ns, interval_ns) = (options.slack_ns, options.timetable.interval_ns());
        if interval_ns == 0 {
            return Err(HousekeepingError::NoInterval);
        }
        if slack_ns >= interval_ns {
            return Err(HousekeepingError::SlackTooLong {
                slack_ns,
                interval_ns,
            });
        }
        let cpu = |place| Cpu {
            place,
            state: Apart(M::Word::new(State::Idle.bits())),
        };
        Ok(Self {
            machine: machine.clone(),
            upkeep,
            cpus: places(cpus, &options.isolated).map(cpu).collect(),
            extra: Apart(M::Word::new(State::Idle.bits())),
            forks: M::Word::new(machine.forks()),
            options,
        })
    }

    pub(super) fn machine(&self) -> &M {
        &self.machine
    }

    /// The work of upkeep.
    pub fn upkeep(&self) -> &U {
        &self.upkeep
    }

    /// The settings of upkeep.
    pub fn options(&self) -> &Options<T> {
        &self.options
    }

    /// Place and state of a CPU that takes part.
    fn cpu(&self, shard: Shard) -> Option<(Place, &M::Word)> {
        let cpu = self.cpus.get(shard.index())?;
        Some((cpu.place?, &cpu.state))
    }

    /// Time at which a CPU's upkeep is due, if it is queued.
    #[doc(alias = "delayed_work_pending")]
    pub fn due(&self, shard: Shard) -> Option<u64> {
        let (_, word) = self.cpu(shard)?;
        match State::look(word) {
            State::Queued { due_ns } => Some(due_ns),
            _ => None,
        }
    }

    /// Returns whether a CPU's upkeep runs at this moment; `None` for a CPU that is left alone.
    pub fn is_running(&self, shard: Shard) -> Option<bool> {
        let (_, word) = self.cpu(shard)?;
        Some(matches!(State::look(word), State::Running | State::Early))
    }

    /// Runs one round of the shepherd. Calls `queue(shard, due_ns)` for each CPU that has work, is not isolated, and
    /// whose upkeep is neither queued nor running.
    ///
    /// At that time, call [`Housekeeping::fire`], on that CPU if this matters.
    #[doc(alias = "vmstat_shepherd")]
    pub fn shepherd(&self, mut queue: impl FnMut(Shard, u64)) {
        for cpu in 0..self.cpus.len() as u32 {
            self.look_after(Shard(cpu), &mut queue);
        }
    }

    /// Runs the shepherd's check of one CPU.
    pub(super) fn look_after(&self, shard: Shard, queue: &mut impl FnMut(Shard, u64)) {
        let Some((place, word)) = self.cpu(shard) else {
            return;
        };
        if State::look(word) != State::Idle || !self.upkeep.needs(shard) {
            return;
        }
        let due_ns = self.options.timetable.first(place, self.machine.now_ns());
        if State::Idle.change(word, State::Queued { due_ns }) {
            queue(shard, due_ns);
        }
    }

    /// Time of the shepherd's next round.
    pub fn shepherd_due(&self, now_ns: u64) -> u64 {
        let cpu = self.machine.current_shard().0;
        self.options.timetable.shepherd(cpu, now_ns)
    }

    /// Runs one CPU's upkeep. Call it when the CPU's time has come and not otherwise, and queue the CPU for the time that
    /// it returns.
    #[doc(alias = "vmstat_update")]
    pub fn fire(&self, shard: Shard) -> Option<u64> {
        let (place, word) = self.cpu(shard)?;
        let seen = State::look(word);
        let now_ns = self.machine.now_ns();
        match seen {
            // Upkeep ran early, and comes again later.
            State::Queued { due_ns } if due_ns > now_ns => return Some(due_ns),
            // Another task runs it early at this moment, and relies on this call for the next time.
            State::Early => return Some(self.next(place, now_ns)),
            State::Idle | State::Running => return None,
            State::Queued { .. } => {}
        }
        if !seen.change(word, State::Running) {
            // Another task began to run it early.
            return Some(self.next(place, now_ns));
        }
        let call = Call::new(word, State::Idle);
        if !self.upkeep.run(shard) {
            call.end(State::Idle);
            return None;
        }
        let due_ns = self.next(place, self.machine.now_ns());
        call.end(State::Queued { due_ns });
        Some(due_ns)
    }

    fn next(&self, place: Place, now_ns: u64) -> u64 {
        self.options.timetable.next(place, now_ns)
    }

    /// Runs upkeep for threads without a CPU, for which no workqueue has a place. Does nothing without work, or if
    /// another task is at it.
    pub(super) fn fire_extra(&self) {
        let extra = Shard(self.cpus.len() as u32);
        if self.upkeep.needs(extra) && State::Idle.change(&*self.extra, State::Running) {
            let _call = Call::new(&*self.extra, State::Idle);
            self.upkeep.run(extra);
        }
    }

    /// In a forked child, before anything else: ends the calls that were under way in other threads.
    pub(super) fn notice_fork(&self) {
        // Relaxed, here and below: a child begins with one thread.
        let seen = self.forks.load(MemoryOrder::Relaxed);
        let now = self.machine.forks();
        if seen == now || self.forks.swap(now, MemoryOrder::Relaxed) == now {
            return;
        }
        let cpus = self.cpus.iter().map(|cpu| &cpu.state);
        for word in cpus.chain([&self.extra]) {
            let state = State::look(&**word);
            if matches!(state, State::Running | State::Early) {
                state.change(&**word, State::Idle);
            }
        }
    }

    /// Runs a CPU's upkeep now if it is due within `slack_ns`, because the CPU is awake for another timer. Returns
    /// whether it ran.
    ///
    /// The phase stays. The next time ([`Housekeeping::due`]) is the one after the time that this call has brought
    /// forward. The timer that is set expires at the old time and finds nothing due, unless the caller moves it.
    pub fn awake(&self, shard: Shard) -> bool {
        let Some((place, word)) = self.cpu(shard) else {
            return false;
        };
        let slack_ns = self.options.slack_ns;
        let seen = State::look(word);
        let State::Queued { due_ns } = seen else {
            return false;
        };
        if slack_ns == 0 || due_ns > self.machine.now_ns().saturating_add(slack_ns) {
            return false;
        }
        if !seen.change(word, State::Early) {
            return false;
        }
        // If the call unwinds, the state is as if it had not begun.
        let call = Call::new(word, seen);
        self.upkeep.run(shard);
        let due_ns = self.next(place, self.machine.now_ns().max(due_ns));
        // Queued even if no work is left, because the timer that is set belongs to it. Its call will find out.
        call.end(State::Queued { due_ns });
        true
    }
}

#[cfg(test)]
mod tests;
