//! Virtual time: CPUs with clocks, run queues, slices, wake-ups. The earliest CPU goes on.

use std::cell::{Cell, RefCell};
use std::cmp::{Ordering, Reverse};
use std::collections::VecDeque;
use std::ops::Range;

use crate::coroutine::suspend;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::task::{LockId, NOBODY, State, TaskId};
use crate::topology::PreemptionKind;
use crate::tournament::NEVER;

/// A CPU.
pub(crate) struct Cpu {
    /// Breaks ties between CPUs, together with the time.
    rank: u16,
    /// Time of the CPU, while its task is not running on the host.
    pub(crate) clock_ns: Cell<u64>,
    pub(crate) current: Cell<TaskId>,
    queue: RefCell<VecDeque<TaskId>>,
    slice_end_ns: Cell<u64>,
    /// Tasks whose deferrable timers have expired while it was idle.
    deferred: RefCell<Vec<Alarm>>,
}

impl Cpu {
    pub(crate) fn new(rank: u16) -> Self {
        Self {
            rank,
            clock_ns: Cell::new(0),
            current: Cell::new(NOBODY),
            queue: RefCell::default(),
            slice_end_ns: Cell::new(0),
            deferred: RefCell::default(),
        }
    }
}

/// Wake-up of a task by a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alarm {
    pub(crate) task: TaskId,
    /// Number of the sleep that the alarm ends; it does not end another one.
    pub(crate) number: u64,
    /// Waits until the CPU has something to do.
    pub(crate) is_deferrable: bool,
}

/// Timer that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timer {
    expires_ns: u64,
    /// Order of timers that expire at once, by the seed.
    tie: u64,
    alarm: Alarm,
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest first.
        Reverse((self.expires_ns, self.tie)).cmp(&Reverse((other.expires_ns, other.tie)))
    }
}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

const TIE_BITS: u32 = 16;
/// Bit that is set in the keys of CPUs, whose rank is below.
const RANKED: u64 = 1 << (TIE_BITS - 1);
/// End of virtual time, after 78 hours.
const END_NS: u64 = 1 << (u64::BITS - TIE_BITS);

/// Key of a moment, before all CPUs at the same time.
fn key_of_timer(expires_ns: u64) -> u64 {
    expires_ns << TIE_BITS
}

impl Engine {
    /// Key that orders CPUs by their clocks, and among equal clocks by a permutation that changes each nanosecond.
    #[inline]
    fn key(&self, cpu: u32, now_ns: u64) -> u64 {
        assert!(now_ns < END_NS, "virtual time ends after 78 hours");
        let rank = u64::from(self.cpus[cpu as usize].rank) ^ self.shuffle(now_ns);
        // Never 0, which is the rank of timers.
        now_ns << TIE_BITS | RANKED | rank
    }

    /// Permutation of ranks at a moment.
    #[inline]
    fn shuffle(&self, now_ns: u64) -> u64 {
        let mixed = (now_ns ^ self.settings.seed).wrapping_mul(0xd134_2543_de82_ef95);
        mixed >> 48 & self.rank_mask
    }

    /// Leaf that a key belongs to. Going down the tree instead is a chain of loads, each of which waits for the one
    /// before.
    #[inline]
    fn leaf_of(&self, key: u64) -> usize {
        if key & RANKED == 0 {
            return self.leaf_of_timers();
        }
        let rank = (key & (RANKED - 1)) ^ self.shuffle(key >> TIE_BITS);
        usize::from(self.cpu_of_rank[rank as usize])
    }

    fn leaf_of_timers(&self) -> usize {
        self.cpus.len()
    }

    /// Puts all tasks on their CPUs, or near. Bound tasks come first, because the others can go elsewhere.
    fn place_tasks(&self) {
        for cpu in 0..self.cpus.len() {
            self.idle.borrow_mut()[cpu / 64] |= 1 << (cpu % 64);
        }
        let now_ns = self.now_ns.get();
        let tasks = self.tasks.borrow().len() as TaskId;
        for places_bound in [true, false] {
            for task in 0..tasks {
                let (cpu, is_bound) = self.with_task(task, |task| (task.cpu.get(), task.is_bound));
                if is_bound != places_bound {
                    continue;
                }
                match self.idle_near(cpu, is_bound) {
                    Some(cpu) => self.run_on_idle(cpu, task, now_ns),
                    None => self.enqueue(cpu, task, now_ns),
                }
            }
        }
    }

    /// Runs events until no task is left.
    pub(crate) fn timed_loop(&self) {
        self.place_tasks();
        while self.has_live_tasks() && !self.has_failed() {
            let key = self.tree.earliest();
            if key == NEVER {
                let waiting = self.waiting();
                self.fail(Failure::Deadlock { waiting }, None);
                break;
            }
            let leaf = self.leaf_of(key);
            debug_assert_eq!(self.tree.winner(), Some(leaf));
            let next_ns = key >> TIE_BITS;
            debug_assert!(next_ns >= self.event_ns.get(), "an event in the past");
            self.event_ns.set(next_ns);
            if leaf == self.leaf_of_timers() {
                self.fire_timer();
            } else {
                self.run_cpu(leaf as u32);
            }
            self.current.set(NOBODY);
        }
        if !self.has_failed() {
            let clocks = self.cpus.iter().map(|cpu| cpu.clock_ns.get());
            self.now_ns.set(clocks.fold(self.now_ns.get(), u64::max));
        }
        self.fences.take();
        self.timers.borrow_mut().clear();
        self.tree.set(self.leaf_of_timers(), NEVER);
        for (leaf, cpu) in self.cpus.iter().enumerate() {
            cpu.current.set(NOBODY);
            cpu.queue.borrow_mut().clear();
            cpu.deferred.borrow_mut().clear();
            cpu.clock_ns.set(self.now_ns.get());
            self.tree.set(leaf, NEVER);
        }
        self.idle.borrow_mut().fill(0);
        self.queued.set(0);
    }

    fn run_cpu(&self, cpu: u32) {
        let here = &self.cpus[cpu as usize];
        let task = here.current.get();
        let now_ns = self.tree.get(cpu as usize) >> TIE_BITS;
        self.cpu.set(cpu);
        self.current.set(task);
        self.now_ns.set(now_ns);
        if self.with_task(task, |task| {
            task.state.get() == State::Spinning && task.spin_until_ns.get() == NEVER
        }) {
            // Its slice is over, and it would only wait there. (A task that may sleep goes to sleep.)
            here.clock_ns.set(now_ns.max(here.clock_ns.get()));
            self.with_task(task, |task| task.state.set(State::SpinQueued));
            self.count(|tally| tally.preemptions += 1);
            self.switch_out(cpu, task);
            return;
        }
        self.with_task(task, |task| task.state.set(State::Running));
        self.next_other.set(self.tree.earliest_but(cpu as usize));
        self.update_horizon();
        if self.resume_current() {
            here.clock_ns.set(self.now_ns.get());
            self.run_check();
            self.switch_to_next(cpu);
        }
    }

    /// Computes how far the current task may go on: until another is earlier, or its CPU wants it to stop.
    pub(crate) fn update_horizon(&self) {
        if self.explored.is_some() || !self.settings.run_ahead || self.is_checked.get() {
            return self.horizon_ns.set(0);
        }
        let others_ns = self.next_other.get() >> TIE_BITS;
        self.horizon_ns
            .set(others_ns.min(self.interrupt_ns(self.cpu.get())));
    }

    /// Time at which a CPU's task is interrupted.
    fn interrupt_ns(&self, cpu: u32) -> u64 {
        let stall_ns = self.faults.next_stall_ns(cpu);
        stall_ns.min(self.preemption_ns(cpu))
    }

    /// Time at which a CPU's task must make room for another.
    fn preemption_ns(&self, cpu: u32) -> u64 {
        let here = &self.cpus[cpu as usize];
        if here.queue.borrow().is_empty() {
            return NEVER;
        }
        let end_ns = here.slice_end_ns.get();
        let task = here.current.get();
        self.with_task(task, |task| {
            if self.settings.topology.preemption == PreemptionKind::Kernel && task.spins.get() > 0 {
                NEVER
            } else if task.state.get() == State::Spinning {
                // A spinning thread yields after a while.
                end_ns.min(task.spin_began_ns.get() + self.settings.costs.spin_yield_ns)
            } else {
                end_ns
            }
        })
    }

    /// Returns when the current task is the earliest of all, and after a preemption that was due.
    pub(crate) fn timed_sync(&self) {
        let mut must_park = !self.settings.run_ahead;
        loop {
            let cpu = self.cpu.get();
            let key = self.key(cpu, self.now_ns.get());
            if must_park || key > self.next_other.get() {
                must_park = false;
                self.park(cpu, key);
                continue;
            }
            if let Some(stall_ns) = self.faults.take_stall(cpu, self.now_ns.get()) {
                self.now_ns.set(self.now_ns.get() + stall_ns);
                continue;
            }
            if self.interrupt_ns(cpu) <= self.now_ns.get() {
                self.preempt();
                continue;
            }
            return self.update_horizon();
        }
    }

    fn park(&self, cpu: u32, key: u64) {
        self.cpus[cpu as usize].clock_ns.set(self.now_ns.get());
        self.tree.set(cpu as usize, key);
        suspend();
    }

    fn preempt(&self) {
        let (cpu, current) = (self.cpu.get(), self.current.get());
        self.count(|tally| tally.preemptions += 1);
        self.with_task(current, |task| {
            task.state.set(State::Queued);
            task.breaks.set(task.breaks.get() + 1);
        });
        self.stop_spinners_of(current);
        self.cpus[cpu as usize].clock_ns.set(self.now_ns.get());
        self.switch_out(cpu, current);
        suspend();
    }

    /// Gives the current task's CPU to the next in the queue, if there is one.
    pub(crate) fn yield_now(&self) {
        self.sync();
        if !self.cpus[self.cpu.get() as usize].queue.borrow().is_empty() {
            self.preempt();
        }
    }

    /// Moves the CPU's task to an idle CPU, or else to the end of the queue.
    fn switch_out(&self, cpu: u32, task: TaskId) {
        let here = &self.cpus[cpu as usize];
        let now_ns = here.clock_ns.get();
        let is_bound = self.with_task(task, |task| {
            task.ready_ns.set(now_ns);
            task.is_bound
        });
        match self.idle_near(cpu, is_bound) {
            Some(idle) => self.run_on_idle(idle, task, now_ns + self.settings.costs.idle_exit_ns),
            None => {
                here.queue.borrow_mut().push_back(task);
                self.queued.set(self.queued.get() + 1);
            }
        }
        self.switch_to_next(cpu);
    }

    /// Sends the spinners of the sleeping locks that `task` holds to sleep, because `task` does not run any more.
    fn stop_spinners_of(&self, task: TaskId) {
        // Almost always none.
        let locks = self.with_task(task, |task| task.mutexes.borrow().clone());
        locks.into_iter().for_each(|lock| self.stop_spinners(lock));
    }

    pub(crate) fn stop_spinners(&self, lock: LockId) {
        let spinners = self.locks.with(lock, |state| state.spinners.clone());
        spinners
            .into_iter()
            .for_each(|task| self.stop_spinning(task));
    }

    /// Blocks the current task until [`Engine::wake`].
    pub(crate) fn block(&self) {
        let (cpu, current) = (self.cpu.get(), self.current.get());
        self.with_task(current, |task| task.state.set(State::Blocked));
        self.stop_spinners_of(current);
        self.cpus[cpu as usize].clock_ns.set(self.now_ns.get());
        self.switch_to_next(cpu);
        suspend();
        self.with_task(current, |task| task.sleeps.set(task.sleeps.get() + 1));
    }

    /// Lets the current task spin until it is granted something, or until `until_ns`; returns whether it was granted.
    pub(crate) fn spin(&self, until_ns: u64) -> bool {
        let (cpu, current) = (self.cpu.get(), self.current.get());
        self.with_task(current, |task| {
            task.state.set(State::Spinning);
            task.is_granted.set(false);
            task.spin_began_ns.set(self.now_ns.get());
            task.spin_until_ns.set(until_ns);
        });
        self.cpus[cpu as usize].clock_ns.set(self.now_ns.get());
        self.refresh_leaf(cpu);
        suspend();
        // A stall of its CPU until now does no harm.
        let passed_ns = self.faults.pass_stalls(self.cpu.get(), self.now_ns.get());
        self.now_ns.set(passed_ns);
        self.with_task(current, |task| {
            task.spin_until_ns.set(NEVER);
            task.is_granted.replace(false)
        })
    }

    /// Grants a spinning task what it spins for, at `at_ns`.
    pub(crate) fn grant(&self, task: TaskId, at_ns: u64) {
        let (state, cpu) = self.with_task(task, |task| {
            task.is_granted.set(true);
            task.ready_ns.set(task.ready_ns.get().max(at_ns));
            (task.state.get(), task.cpu.get())
        });
        if state == State::Spinning {
            self.with_task(task, |task| task.state.set(State::Running));
            let clock = &self.cpus[cpu as usize].clock_ns;
            clock.set(clock.get().max(at_ns));
            self.refresh_leaf(cpu);
        }
    }

    /// Tells a spinning task to stop spinning.
    pub(crate) fn stop_spinning(&self, task: TaskId) {
        if self.is_spinning(task) {
            let cpu = self.with_task(task, |task| {
                task.spin_until_ns.set(self.now_ns.get());
                task.cpu.get()
            });
            self.refresh_leaf(cpu);
        }
    }

    /// Brings the CPU's leaf up to date, while its task does not run on the host.
    fn refresh_leaf(&self, cpu: u32) {
        let here = &self.cpus[cpu as usize];
        let task = here.current.get();
        let key = if task == NOBODY {
            NEVER
        } else {
            let (state, until_ns) =
                self.with_task(task, |task| (task.state.get(), task.spin_until_ns.get()));
            let at_ns = if state == State::Spinning {
                // It may have been due before, had there been a reason.
                until_ns.min(self.preemption_ns(cpu)).max(self.now_ns.get())
            } else {
                0
            };
            if at_ns == NEVER {
                NEVER
            } else {
                self.key(cpu, at_ns.max(here.clock_ns.get()))
            }
        };
        self.set_leaf(cpu as usize, key);
    }

    fn set_leaf(&self, leaf: usize, key: u64) {
        self.tree.set(leaf, key);
        if self.is_scheduled() && leaf != self.cpu.get() as usize && key < self.next_other.get() {
            self.next_other.set(key);
            self.update_horizon();
        }
    }

    /// Lets the next task in a CPU's queue, or in another's, run after the CPU's task has left.
    fn switch_to_next(&self, cpu: u32) {
        let here = &self.cpus[cpu as usize];
        here.current.set(NOBODY);
        let next = here.queue.borrow_mut().pop_front();
        let next = next.or_else(|| self.steal());
        let Some(task) = next else {
            self.idle.borrow_mut()[cpu as usize / 64] |= 1 << (cpu % 64);
            return self.tree.set(cpu as usize, NEVER);
        };
        self.queued.set(self.queued.get() - 1);
        let start_ns = self.with_task(task, |task| {
            let ready_ns = task.ready_ns.get();
            let start_ns = here.clock_ns.get().max(ready_ns) + self.settings.costs.switch_ns;
            task.queued_ns
                .set(task.queued_ns.get() + (start_ns - ready_ns));
            start_ns
        });
        self.count(|tally| tally.switches += 1);
        self.put_on(cpu, task, start_ns);
    }

    fn put_on(&self, cpu: u32, task: TaskId, start_ns: u64) {
        let here = &self.cpus[cpu as usize];
        here.current.set(task);
        here.clock_ns.set(start_ns);
        here.slice_end_ns
            .set(start_ns + self.settings.costs.slice_ns);
        self.with_task(task, |task| {
            if task.cpu.replace(cpu) != cpu {
                self.count(|tally| tally.migrations += 1);
            }
            let still_spins = task.state.get() == State::SpinQueued && !task.is_granted.get();
            task.spin_began_ns.set(start_ns);
            task.state.set(if still_spins {
                State::Spinning
            } else {
                State::Running
            });
        });
        self.refresh_leaf(cpu);
    }

    fn run_on_idle(&self, cpu: u32, task: TaskId, at_ns: u64) {
        self.idle.borrow_mut()[cpu as usize / 64] &= !(1 << (cpu % 64));
        let clock_ns = self.cpus[cpu as usize].clock_ns.get();
        let start_ns = self.faults.pass_stalls(cpu, clock_ns.max(at_ns));
        self.put_on(cpu, task, start_ns);
        let deferred = self.cpus[cpu as usize].deferred.take();
        for alarm in deferred {
            if self.is_asleep(alarm) {
                self.enqueue(cpu, alarm.task, start_ns);
            }
        }
    }

    fn enqueue(&self, cpu: u32, task: TaskId, at_ns: u64) {
        let state = &self.cpus[cpu as usize];
        self.with_task(task, |task| {
            if task.cpu.replace(cpu) != cpu {
                self.count(|tally| tally.migrations += 1);
            }
            task.ready_ns.set(at_ns);
            task.state.set(State::Queued);
        });
        state.queue.borrow_mut().push_back(task);
        self.queued.set(self.queued.get() + 1);
        if self.is_scheduled() && cpu == self.cpu.get() {
            return self.update_horizon();
        }
        let current = state.current.get();
        if self.is_spinning(current) {
            self.refresh_leaf(cpu);
        }
    }

    pub(crate) fn is_spinning(&self, task: TaskId) -> bool {
        task != NOBODY && self.with_task(task, |task| task.state.get() == State::Spinning)
    }

    /// Takes a task from the queue of a CPU that has more than it can run.
    fn steal(&self) -> Option<TaskId> {
        if self.queued.get() == 0 {
            return None;
        }
        let cpus = self.cpus.len();
        let first = self.random.borrow_mut().below(cpus as u64) as usize;
        for at in (first..cpus).chain(0..first) {
            let mut queue = self.cpus[at].queue.borrow_mut();
            let movable = queue
                .iter()
                .position(|&task| self.with_task(task, |task| !task.is_bound));
            if let Some(position) = movable {
                let task = queue.remove(position);
                drop(queue);
                // Its old CPU may have no reason left for an interrupt.
                if self.is_spinning(self.cpus[at].current.get()) {
                    self.refresh_leaf(at as u32);
                }
                return task;
            }
        }
        None
    }

    /// Wakes a blocked task at `at_ns`: on its last CPU if that is idle, else on one that is, else in a queue.
    pub(crate) fn wake(&self, task: TaskId, at_ns: u64) {
        let (last, is_bound) = self.with_task(task, |task| {
            debug_assert_eq!(task.state.get(), State::Blocked);
            (task.cpu.get(), task.is_bound)
        });
        self.count(|tally| tally.wakes += 1);
        let idle_exit_ns = self.settings.costs.idle_exit_ns;
        match self.idle_near(last, is_bound) {
            Some(cpu) => self.run_on_idle(cpu, task, at_ns + idle_exit_ns),
            None => {
                let cpu = if is_bound { last } else { self.less_busy(last) };
                self.enqueue(cpu, task, at_ns);
            }
        }
    }

    /// Idle CPU: `last`, else the next of its cluster, else of its node, else any.
    fn idle_near(&self, last: u32, is_bound: bool) -> Option<u32> {
        let idle = self.idle.borrow();
        let last = last as usize;
        if idle[last / 64] >> (last % 64) & 1 == 1 {
            return Some(last as u32);
        }
        if is_bound || idle.iter().all(|&word| word == 0) {
            return None;
        }
        let topology = &self.settings.topology;
        let node = topology.cpus_of(topology.node_of(last));
        let cluster = last - (last - node.start) % topology.cluster;
        let cluster = cluster..node.end.min(cluster + topology.cluster);
        [cluster, node, 0..self.cpus.len()]
            .into_iter()
            .find_map(|near| {
                let after = first_of(&idle, last..near.end);
                after.or_else(|| first_of(&idle, near.start..last))
            })
            .map(|cpu| cpu as u32)
    }

    fn less_busy(&self, last: u32) -> u32 {
        let other = self.random.borrow_mut().below(self.cpus.len() as u64) as u32;
        let length = |cpu: u32| self.cpus[cpu as usize].queue.borrow().len();
        if length(other) < length(last) {
            other
        } else {
            last
        }
    }

    /// Takes time for an interrupt from the current work of a CPU.
    pub(crate) fn interrupt(&self, cpu: u32, duration_ns: u64) {
        let here = &self.cpus[cpu as usize];
        let task = here.current.get();
        if task == NOBODY {
            return;
        }
        here.clock_ns
            .set(here.clock_ns.get().max(self.now_ns.get()) + duration_ns);
        self.refresh_leaf(cpu);
    }

    /// Lets a timer wake a task when it expires.
    pub(crate) fn arm(&self, expires_ns: u64, alarm: Alarm) {
        let expires_ns = expires_ns.saturating_add(self.faults.late_timer_ns());
        if expires_ns >= END_NS {
            // The timer never expires.
            return;
        }
        let number = self.timer_number.get();
        self.timer_number.set(number + 1);
        let shuffled = (number ^ self.settings.seed).wrapping_mul(0xd134_2543_de82_ef95);
        self.timers.borrow_mut().push(Timer {
            expires_ns: expires_ns.max(self.now_ns.get()),
            // A bijection of the number, so that no two are equal.
            tie: shuffled ^ shuffled >> 32,
            alarm,
        });
        self.refresh_timers();
    }

    fn refresh_timers(&self) {
        let first = self.timers.borrow().peek().map(|timer| timer.expires_ns);
        let leaf = self.leaf_of_timers();
        self.set_leaf(leaf, first.map_or(NEVER, key_of_timer));
    }

    fn fire_timer(&self) {
        let timer = self.timers.borrow_mut().pop();
        let timer = timer.expect("the leaf says there is one");
        let alarm = timer.alarm;
        self.now_ns.set(timer.expires_ns);
        let cpu = self.with_task(alarm.task, |task| task.cpu.get()) as usize;
        let is_asleep = self.is_asleep(alarm);
        if is_asleep && alarm.is_deferrable && self.cpus[cpu].current.get() == NOBODY {
            self.cpus[cpu].deferred.borrow_mut().push(alarm);
        } else if is_asleep {
            let interrupt_ns = self.settings.costs.timer_interrupt_ns;
            let begin_ns = timer.expires_ns + interrupt_ns;
            self.interrupt(cpu as u32, interrupt_ns);
            self.wake(alarm.task, begin_ns);
        }
        self.refresh_timers();
    }

    /// Returns whether the sleep that the alarm is for goes on.
    pub(crate) fn is_asleep(&self, alarm: Alarm) -> bool {
        self.with_task(alarm.task, |task| {
            task.state.get() == State::Blocked && task.sleeps.get() == alarm.number
        })
    }
}

/// First member of a set of numbers within a range.
fn first_of(set: &[u64], range: Range<usize>) -> Option<usize> {
    let mut at = range.start;
    while at < range.end {
        let rest = set[at / 64] >> (at % 64);
        if rest != 0 {
            let found = at + rest.trailing_zeros() as usize;
            return (found < range.end).then_some(found);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}
