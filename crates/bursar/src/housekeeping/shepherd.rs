//! Search for CPUs that need upkeep, with one call at a time for each.
//!
//! Each CPU has one word ([`State`]): idle, queued, or running. The shepherd changes idle to queued. A call changes
//! queued to running, and at its end running to queued or idle. All changes are compare-and-exchange except the last,
//! which is a store because nothing else changes the word while upkeep runs. The shepherd skips a CPU whose upkeep is
//! queued or runs. The kernel checks only whether it is queued (Linux 6.12 does), so a call under way can be queued a
//! second time.
//!
//! # Invariants
//! * A CPU has at most one timer, and has it while its upkeep is queued or runs early.
//! * An addition after a call has looked is found by the shepherd's next round: a call that ends looks at nothing
//!   again.
//!
//! # Accepted
//! The shepherd may find work that a call folds at that moment, and then queues a call that finds none. Each time costs
//! one call.

use std::fmt;

use bursar_machine::timer::{Timer, TimerKind};
use bursar_machine::{AtomicWord, Machine, Order, Shard};

use super::Apart;
use super::firing::{Firing, KERNEL_SKEW, round_jiffies};
use super::period::Place;
use super::state::{Call, State};
use super::upkeep::{HousekeepingError, Options, Upkeep};

/// Upkeep of all CPUs of a machine. Nothing here runs by itself; see the module.
pub struct Housekeeping<M: Machine, U: Upkeep> {
    machine: M,
    upkeep: U,
    options: Options,
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

impl<M: Machine, U: Upkeep> fmt::Debug for Housekeeping<M, U> {
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

impl<M: Machine, U: Upkeep> Housekeeping<M, U> {
    /// Makes upkeep of the CPUs of `machine`.
    ///
    /// # Errors
    /// [`HousekeepingError`] says which option is invalid.
    pub fn new(machine: &M, upkeep: U, options: Options) -> Result<Self, HousekeepingError> {
        options.period.check()?;
        let cpus = machine.cpus();
        if let Some(&cpu) = options.isolated.iter().find(|&&cpu| cpu as usize >= cpus) {
            return Err(HousekeepingError::NoSuchCpu { cpu, cpus });
        }
        let (slack_ns, interval_ns) = (options.slack_ns, options.period.interval_ns);
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
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Place of a CPU; `None` for a CPU that is left alone, and for the shard of threads without a CPU.
    pub fn place(&self, shard: Shard) -> Option<Place> {
        self.cpus.get(shard.index()).and_then(|cpu| cpu.place)
    }

    /// Place and state of a CPU that takes part.
    fn cpu(&self, shard: Shard) -> Option<(Place, &M::Word)> {
        let cpu = self.cpus.get(shard.index())?;
        Some((cpu.place?, &cpu.state))
    }

    /// Timer of a CPU's upkeep, if it is queued.
    #[doc(alias = "delayed_work_pending")]
    pub fn due(&self, shard: Shard) -> Option<Timer> {
        let (_, word) = self.cpu(shard)?;
        match State::look(word) {
            State::Queued { due_ns } => Some(self.timer(due_ns)),
            _ => None,
        }
    }

    fn timer(&self, deadline_ns: u64) -> Timer {
        Timer {
            kind: self.options.firing.kind(),
            deadline_ns,
        }
    }

    /// Runs one round of the shepherd. Calls `queue(shard, timer)` for each CPU that has work, is not isolated, and
    /// whose upkeep is neither queued nor running.
    ///
    /// When the timer expires, call [`Housekeeping::fire`], on that CPU if this matters.
    #[doc(alias = "vmstat_shepherd")]
    pub fn shepherd(&self, mut queue: impl FnMut(Shard, Timer)) {
        for cpu in 0..self.cpus.len() as u32 {
            self.look_after(Shard(cpu), &mut queue);
        }
    }

    /// Runs the shepherd's check of one CPU.
    pub(super) fn look_after(&self, shard: Shard, queue: &mut impl FnMut(Shard, Timer)) {
        let Some((place, word)) = self.cpu(shard) else {
            return;
        };
        if State::look(word) != State::Idle || !self.upkeep.needs(shard) {
            return;
        }
        let Options { firing, period, .. } = self.options;
        let timer = firing.first(period, place, self.machine.now_ns());
        let queued = State::Queued {
            due_ns: timer.deadline_ns,
        };
        if State::Idle.change(word, queued) {
            queue(shard, timer);
        }
    }

    /// Timer of the shepherd's next round: once an interval, rounded as the kernel does, or at the grid's first point.
    pub fn shepherd_timer(&self, now_ns: u64) -> Timer {
        let Options { firing, period, .. } = self.options;
        let skew = match firing {
            Firing::RoundJiffies { skew } => skew,
            Firing::Stretched { .. } | Firing::Spread => KERNEL_SKEW,
            Firing::PhaseGrid { .. } => {
                let first = Place {
                    cpu: 0,
                    rank: 0,
                    of: 1,
                };
                return firing.next(period, first, now_ns);
            }
        };
        let now = period.jiffies(now_ns);
        let aim = now.saturating_add(period.interval_ticks());
        // The CPU of the caller, as in the kernel.
        let cpu = self.machine.current_shard().0;
        Timer {
            kind: TimerKind::Deferrable,
            deadline_ns: period.at(round_jiffies(aim, now, cpu, period.hz, skew)),
        }
    }

    /// Runs one CPU's upkeep. Call it when the CPU's timer has expired and not otherwise, and queue the CPU for the
    /// timer that it returns.
    #[doc(alias = "vmstat_update")]
    pub fn fire(&self, shard: Shard) -> Option<Timer> {
        let (place, word) = self.cpu(shard)?;
        let seen = State::look(word);
        let now_ns = self.machine.now_ns();
        match seen {
            // Upkeep ran early, and comes again later.
            State::Queued { due_ns } if due_ns > now_ns => return Some(self.timer(due_ns)),
            // Another task runs it early at this moment, and relies on this timer for the next time.
            State::Early => return Some(self.next(place, now_ns)),
            State::Idle | State::Running => return None,
            State::Queued { .. } => {}
        }
        if !seen.change(word, State::Running) {
            // Another task began to run it early.
            return Some(self.next(place, now_ns));
        }
        let call = Call::new(word, State::Idle);
        if !self.call(shard) {
            call.end(State::Idle);
            return None;
        }
        let timer = self.next(place, self.machine.now_ns());
        call.end(State::Queued {
            due_ns: timer.deadline_ns,
        });
        Some(timer)
    }

    fn next(&self, place: Place, now_ns: u64) -> Timer {
        let Options { firing, period, .. } = self.options;
        firing.next(period, place, now_ns)
    }

    /// Calls upkeep; returns whether there will be work the next time.
    fn call(&self, shard: Shard) -> bool {
        let folded = self.upkeep.fold(shard);
        let left = self.upkeep.pages(shard);
        folded || left
    }

    /// Runs upkeep for threads without a CPU, for which no workqueue has a place. Does nothing without work, or if
    /// another task is at it.
    pub(super) fn fire_extra(&self) {
        let extra = Shard(self.cpus.len() as u32);
        if self.upkeep.needs(extra) && State::Idle.change(&*self.extra, State::Running) {
            let _call = Call::new(&*self.extra, State::Idle);
            self.call(extra);
        }
    }

    /// In a forked child, before anything else: ends the calls that were under way in other threads.
    pub(super) fn notice_fork(&self) {
        // Relaxed, here and below: a child begins with one thread.
        let seen = self.forks.load(Order::Relaxed);
        let now = self.machine.forks();
        if seen == now || self.forks.swap(now, Order::Relaxed) == now {
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

    /// Folds a CPU's counters on its way into idleness, without page work. Returns whether anything changed. Queued
    /// upkeep stays queued.
    ///
    /// The kernel does so only while the CPU's upkeep is queued ([`Housekeeping::due`]), and otherwise leaves it to the
    /// shepherd.
    #[doc(alias = "quiet_vmstat")]
    pub fn quiet(&self, shard: Shard) -> bool {
        let Some((_, word)) = self.cpu(shard) else {
            return false;
        };
        let is_under_way = matches!(State::look(word), State::Running | State::Early);
        !is_under_way && self.upkeep.needs(shard) && self.upkeep.fold(shard)
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
        self.call(shard);
        let timer = self.next(place, self.machine.now_ns().max(due_ns));
        // Queued even if no work is left, because the timer that is set belongs to it. Its call will find out.
        call.end(State::Queued {
            due_ns: timer.deadline_ns,
        });
        true
    }
}

#[cfg(test)]
mod tests;
