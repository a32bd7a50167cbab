//! What goes wrong on purpose.

use std::cell::{Cell, RefCell};

use crate::tournament::NEVER;
use bursar_machine::random::Random;

/// Something that happens to one CPU once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Which CPU.
    pub cpu: u32,
    /// When, virtual nanoseconds.
    pub at_ns: u64,
    /// For how long it does nothing.
    pub for_ns: u64,
}

/// Something that happens now and then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chance {
    /// Once in so many occasions; 0 for never.
    pub one_in: u64,
    /// For how long, virtual nanoseconds.
    pub for_ns: u64,
}

/// The end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Which task, by its number in the run.
    pub task: u32,
    /// Not before this, virtual nanoseconds. It ends when it next sleeps or wakes: a thread of a process cannot be ended
    /// in the middle of a library's call, only panic between two calls. What it holds is dropped.
    pub at_ns: u64,
}

/// All that goes wrong in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// CPUs that stand still.
    pub stalls: Vec<Stall>,
    /// A task stands still right after it took a lock.
    pub lock_stall: Chance,
    /// A timer is late.
    pub late_timer: Chance,
    /// A task is preempted inside a section, for that long; the section begins anew.
    pub section_preemption: Chance,
    /// Tasks that end early.
    pub kills: Vec<Kill>,
}

/// Unwinds a task that is killed.
pub(crate) struct Killed;

/// Decides when faults strike.
pub(crate) struct Injector {
    faults: Faults,
    /// By CPU: its stalls, the next one last.
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

    pub(crate) fn next_stall_ns(&self, cpu: u32) -> u64 {
        if !self.has_stalls {
            return NEVER;
        }
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

    /// A CPU that did nothing is to go on at `now_ns`: when it can, since stalls that began before may still last.
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

    fn chance(&self, chance: Chance) -> u64 {
        if chance.one_in > 0 && self.random.borrow_mut().happens(chance.one_in) {
            self.strike();
            return chance.for_ns;
        }
        0
    }

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

    /// How often something went wrong.
    pub(crate) fn struck(&self) -> u64 {
        self.struck.get()
    }
}
