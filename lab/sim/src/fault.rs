//! Faults that are injected on purpose.

use std::cell::{Cell, RefCell};

use bursar_rig::random::Random;

use crate::tournament::NEVER;

/// Stall of one CPU, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The CPU.
    pub cpu: u32,
    /// Start, virtual nanoseconds.
    pub at_ns: u64,
    /// Duration for which the CPU does nothing.
    pub for_ns: u64,
}

/// Fault that strikes at random.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chance {
    /// It strikes once in this many occasions; 0 for never.
    pub one_in: u64,
    /// Duration, virtual nanoseconds.
    pub for_ns: u64,
}

/// The end of a task. It strikes the task of that number in each run of the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Number of the task in the run.
    pub task: u32,
    /// Earliest time, virtual nanoseconds. The task ends when it next sleeps or wakes, and its values are dropped. A
    /// thread of a process cannot be ended in the middle of a library's call; it can only panic between two calls.
    pub at_ns: u64,
}

/// All faults of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// CPUs that stand still for a time.
    pub stalls: Vec<Stall>,
    /// Stall of a task right after it took a lock.
    pub lock_stall: Chance,
    /// Lateness of a timer.
    pub late_timer: Chance,
    /// Preemption of a task inside a section, for that long; the section begins anew.
    pub section_preemption: Chance,
    /// Tasks that end early.
    pub kills: Vec<Kill>,
}

/// Payload that unwinds a task that is killed.
pub(crate) struct Killed;

/// Decider of the moments at which faults strike.
pub(crate) struct Injector {
    faults: Faults,
    /// Stalls by CPU, the next one last.
    stalls: RefCell<Vec<(u32, Vec<Stall>)>>,
    random: RefCell<Random>,
    pub(crate) has_section_preemption: bool,
    has_stalls: bool,
    struck: Cell<u64>,
}

impl Injector {
    pub(crate) fn new(faults: &Faults, seed: u64) -> Self {
        let mut stalls: Vec<(u32, Vec<Stall>)> = Vec::new();
        for stall in &faults.stalls {
            match stalls.iter_mut().find(|(cpu, _)| *cpu == stall.cpu) {
                Some((_, stalls)) => stalls.push(*stall),
                None => stalls.push((stall.cpu, vec![*stall])),
            }
        }
        for (_, stalls) in &mut stalls {
            stalls.sort_by_key(|stall| std::cmp::Reverse(stall.at_ns));
        }
        Self {
            has_section_preemption: faults.section_preemption.one_in > 0,
            has_stalls: !stalls.is_empty(),
            faults: faults.clone(),
            stalls: RefCell::new(stalls),
            random: RefCell::new(Random::new(seed ^ 0xfa17)),
            struck: Cell::new(0),
        }
    }

    #[inline]
    pub(crate) fn next_stall_ns(&self, cpu: u32) -> u64 {
        match self.has_stalls {
            true => self.first_stall_ns(cpu),
            false => NEVER,
        }
    }

    fn first_stall_ns(&self, cpu: u32) -> u64 {
        let stalls = self.stalls.borrow();
        let own = stalls.iter().find(|(other, _)| *other == cpu);
        own.and_then(|(_, stalls)| stalls.last())
            .map_or(NEVER, |stall| stall.at_ns)
    }

    pub(crate) fn take_stall(&self, cpu: u32, now_ns: u64) -> Option<u64> {
        if self.next_stall_ns(cpu) > now_ns {
            return None;
        }
        let mut stalls = self.stalls.borrow_mut();
        let own = stalls.iter_mut().find(|(other, _)| *other == cpu);
        let stall = own.and_then(|(_, stalls)| stalls.pop())?;
        self.strike();
        Some(stall.for_ns)
    }

    /// Time at which a CPU that did nothing until `now_ns` can go on, because stalls that began before may still last.
    pub(crate) fn pass_stalls(&self, cpu: u32, now_ns: u64) -> u64 {
        let mut free_ns = now_ns;
        while self.next_stall_ns(cpu) < free_ns {
            let mut stalls = self.stalls.borrow_mut();
            let own = stalls.iter_mut().find(|(other, _)| *other == cpu);
            let stall = own.and_then(|(_, stalls)| stalls.pop());
            let end_ns = stall.map_or(0, |stall| stall.at_ns.saturating_add(stall.for_ns));
            if end_ns > free_ns {
                free_ns = end_ns;
                self.strike();
            }
        }
        free_ns
    }

    #[inline]
    fn chance(&self, chance: Chance) -> u64 {
        if chance.one_in > 0 && self.random.borrow_mut().happens(chance.one_in) {
            self.strike();
            return chance.for_ns;
        }
        0
    }

    #[inline]
    pub(crate) fn lock_stall_ns(&self) -> u64 {
        self.chance(self.faults.lock_stall)
    }

    pub(crate) fn late_timer_ns(&self) -> u64 {
        self.chance(self.faults.late_timer)
    }

    pub(crate) fn section_preemption_ns(&self) -> u64 {
        self.chance(self.faults.section_preemption)
    }

    pub(crate) fn takes_life(&self, task: u32, now_ns: u64) -> bool {
        let mut kills = self.faults.kills.iter();
        let dies = kills.any(|kill| kill.task == task && kill.at_ns <= now_ns);
        if dies {
            self.strike();
        }
        dies
    }

    fn strike(&self) {
        self.struck.set(self.struck.get() + 1);
    }

    /// Number of times that a fault struck.
    pub(crate) fn struck(&self) -> u64 {
        self.struck.get()
    }
}
