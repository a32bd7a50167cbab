//! Virtual time: CPUs with clocks, run queues, slices, wake-ups. The earliest CPU goes on.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use bursar_rig::random::Random;
use bursar_rig::timer::TimerKind;

use crate::coroutine::{give_up, suspend};
use crate::cpu_set::CpuSet;
use crate::failure::Failure;
use crate::fault::Injector;
use crate::ranks::{END_NS, Ranks, key_of_timer, time_ns};
use crate::settings::Settings;
use crate::task::{LockId, NOBODY, State, TaskId};
use crate::topology::PreemptionKind;
use crate::tournament::{NEVER, Tournament};
use crate::world::World;

/// A CPU. A switch to its task needs the first cache line of the host.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Cpu {
    /// Time of the CPU, while its task is not running on the host.
    clock_ns: Cell<u64>,
    pub(crate) current: Cell<TaskId>,
    queue: RefCell<VecDeque<TaskId>>,
    slice_end_ns: Cell<u64>,
    /// Tasks whose deferrable timers have expired while it was idle.
    deferred: RefCell<Vec<Alarm>>,
}

/// Wake-up of a task by a timer. Timers that expire at once come in an order that the seed gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Alarm {
    expires_ns: u64,
    /// No two are equal.
    tie: u64,
    task: TaskId,
    /// Number of the sleep that the alarm ends; it does not end another one.
    sleep: u64,
    /// Waits until the CPU has something to do.
    is_deferrable: bool,
}

/// Fences of a machine: one runs, and other tasks wait for the next.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    pub(crate) is_running: bool,
    /// Tasks that wait for the same next fence, which the first of them passes for all.
    pub(crate) waiting: Vec<TaskId>,
    /// Leader of those tasks, once its turn has come.
    pub(crate) led_by: Option<TaskId>,
}

/// Whether a task makes room for another that its CPU should run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Made,
    Refused,
}

/// Schedule in virtual time; see the module.
pub(crate) struct Timed {
    pub(crate) cpus: Vec<Cpu>,
    ranks: Ranks,
    /// Keys of CPUs and, as the last leaf, of the first timer.
    tree: Tournament,
    /// Earliest key of all leaves but the current task's CPU.
    next_other: Cell<u64>,
    /// Time of the last event that left its stack; no event is before it.
    event_ns: Cell<u64>,
    /// CPUs without a task.
    idle: CpuSet,
    /// Number of tasks in the queues of all CPUs.
    queued: Cell<usize>,
    timers: RefCell<BinaryHeap<Reverse<Alarm>>>,
    /// Number of timers so far.
    timer_number: Cell<u64>,
    pub(crate) fences: RefCell<Fences>,
    pub(crate) random: RefCell<Random>,
    pub(crate) faults: Injector,
}

impl Timed {
    pub(crate) fn new(settings: &Settings) -> Self {
        let cpus = settings.topology.cpus;
        let mut random = Random::new(settings.seed);
        let idle_cpu = |_| Cpu {
            current: Cell::new(NOBODY),
            ..Cpu::default()
        };
        Self {
            cpus: (0..cpus).map(idle_cpu).collect(),
            ranks: Ranks::new(cpus, settings.seed, &mut random),
            tree: Tournament::new(cpus + 1),
            next_other: Cell::new(NEVER),
            event_ns: Cell::new(0),
            idle: CpuSet::new(cpus),
            queued: Cell::new(0),
            timers: RefCell::default(),
            timer_number: Cell::new(0),
            fences: RefCell::default(),
            random: RefCell::new(random),
            faults: Injector::new(&settings.faults, settings.seed),
        }
    }

    /// Puts all tasks on their CPUs, or near. Bound tasks come first, because the others can go elsewhere.
    fn place_tasks(&self, world: &World) {
        (0..self.cpus.len()).for_each(|cpu| self.idle.add(cpu));
        let now_ns = world.clock.now_ns();
        let tasks = world.tasks.list.borrow().len() as TaskId;
        for places_bound in [true, false] {
            for task in 0..tasks {
                let (cpu, is_bound) = place_of(world, task);
                if is_bound != places_bound {
                    continue;
                }
                match self.idle_near(world, cpu, is_bound) {
                    Some(cpu) => self.run_on_idle(world, cpu, task, now_ns),
                    None => self.enqueue(world, cpu, task, now_ns),
                }
            }
        }
    }

    /// Runs events until no task is left.
    pub(crate) fn run(&self, world: &World) {
        self.place_tasks(world);
        while world.goes_on() {
            let key = self.tree.earliest();
            if key == NEVER {
                let waiting = world.tasks.waiting();
                world.run.fail(Failure::Deadlock { waiting }, None);
                break;
            }
            let leaf = self.ranks.cpu_of(key);
            debug_assert_eq!(self.tree.winner(), Some(leaf));
            let next_ns = time_ns(key);
            debug_assert!(next_ns >= self.event_ns.get(), "an event in the past");
            self.event_ns.set(next_ns);
            if leaf == self.cpus.len() {
                self.fire_timer(world);
            } else {
                self.run_cpu(world, leaf as u32);
            }
            world.tasks.current.set(NOBODY);
        }
        if !world.run.has_failed() {
            let clocks = self.cpus.iter().map(|cpu| cpu.clock_ns.get());
            world.clock.set(clocks.fold(world.clock.now_ns(), u64::max));
        }
        self.fences.take();
        self.timers.borrow_mut().clear();
        self.tree.set(self.cpus.len(), NEVER);
        for (leaf, cpu) in self.cpus.iter().enumerate() {
            cpu.current.set(NOBODY);
            cpu.queue.borrow_mut().clear();
            cpu.deferred.borrow_mut().clear();
            cpu.clock_ns.set(world.clock.now_ns());
            self.tree.set(leaf, NEVER);
        }
        self.idle.clear();
        self.queued.set(0);
    }

    fn run_cpu(&self, world: &World, cpu: u32) {
        let here = &self.cpus[cpu as usize];
        let task = here.current.get();
        let now_ns = time_ns(self.tree.get(cpu as usize));
        world.tasks.cpu.set(cpu);
        world.tasks.current.set(task);
        world.clock.set(now_ns);
        if world.tasks.with(task, |task| {
            task.state.get() == State::Spinning && task.spin_until_ns.get() == NEVER
        }) {
            // Its slice is over, and it would only wait there. (A task that may sleep goes to sleep.)
            here.clock_ns.set(now_ns.max(here.clock_ns.get()));
            world.tasks.set_state(task, State::SpinQueued);
            world.count(|counts| counts.preemptions += 1);
            self.switch_out(world, cpu, task);
            return;
        }
        world.tasks.set_state(task, State::Running);
        self.next_other.set(self.tree.earliest_but(cpu as usize));
        self.let_go_on(world, self.interrupt_ns(world, cpu));
        if world.tasks.resume_current() {
            here.clock_ns.set(world.clock.now_ns());
            if !world.run.is_unwinding() {
                world.run_check();
            }
            self.switch_to_next(world, cpu);
        }
    }

    /// CPU of the current task.
    fn here(&self, world: &World) -> &Cpu {
        &self.cpus[world.tasks.cpu.get() as usize]
    }

    /// Keeps the time of the current task's CPU while the task does not run on the host.
    fn stop_clock(&self, world: &World) {
        self.here(world).clock_ns.set(world.clock.now_ns());
    }

    /// Computes how far the current task may go on: until another is earlier, or its CPU wants it to stop.
    pub(crate) fn update_horizon(&self, world: &World) {
        let interrupt_ns = self.interrupt_ns(world, world.tasks.cpu.get());
        self.set_horizon(world, time_ns(self.next_other.get()).min(interrupt_ns));
    }

    /// The same for a task that is the earliest of all: it goes on at least as long as no time passes.
    #[inline]
    fn let_go_on(&self, world: &World, interrupt_ns: u64) {
        let next_ns = time_ns(self.next_other.get()).max(world.clock.now_ns() + 1);
        self.set_horizon(world, next_ns.min(interrupt_ns));
    }

    #[inline]
    fn set_horizon(&self, world: &World, until_ns: u64) {
        let runs_ahead = world.settings.run_ahead && !world.run.is_checked.get();
        let horizon_ns = if runs_ahead { until_ns } else { 0 };
        world.clock.horizon_ns.set(horizon_ns);
    }

    /// Time at which a CPU's task is interrupted.
    #[inline]
    fn interrupt_ns(&self, world: &World, cpu: u32) -> u64 {
        let stall_ns = self.faults.next_stall_ns(cpu);
        stall_ns.min(self.preemption_ns(world, cpu))
    }

    /// Time at which a CPU's task must make room for another.
    #[inline]
    fn preemption_ns(&self, world: &World, cpu: u32) -> u64 {
        let here = &self.cpus[cpu as usize];
        match here.queue.borrow().is_empty() {
            true => NEVER,
            false => self.slice_end_ns(world, here),
        }
    }

    /// Time at which the task of a CPU that others wait for must make room.
    #[inline(never)]
    fn slice_end_ns(&self, world: &World, here: &Cpu) -> u64 {
        let Settings {
            topology, costs, ..
        } = &world.settings;
        let end_ns = here.slice_end_ns.get();
        world.tasks.with(here.current.get(), |task| {
            if topology.preemption == PreemptionKind::Kernel && task.spins.get() > 0 {
                NEVER
            } else if task.state.get() == State::Spinning {
                // A spinning thread yields after a while.
                end_ns.min(task.spin_began_ns.get() + costs.spin_yield_ns)
            } else {
                end_ns
            }
        })
    }

    /// Lets all tasks go first that are earlier.
    #[inline]
    pub(crate) fn sync(&self, world: &World) {
        if world.clock.is_at_horizon() {
            self.sync_slowly(world, Room::Made);
        }
    }

    /// The same in the midst of something that the task does not leave: a preemption that is due waits for the next sync.
    pub(crate) fn sync_undisturbed(&self, world: &World) {
        if world.clock.is_at_horizon() {
            self.sync_slowly(world, Room::Refused);
        }
    }

    /// Returns when the current task is the earliest of all, and after a preemption that was due.
    #[cold]
    pub(crate) fn sync_slowly(&self, world: &World, room: Room) {
        let mut must_park = !world.settings.run_ahead;
        loop {
            let cpu = world.tasks.cpu.get();
            let key = self.ranks.key(cpu, world.clock.now_ns());
            if must_park || key > self.next_other.get() {
                must_park = false;
                self.stop_clock(world);
                self.tree.set(cpu as usize, key);
                suspend();
                if !world.clock.is_at_horizon() {
                    return;
                }
                continue;
            }
            if let Some(stall_ns) = self.faults.take_stall(cpu, world.clock.now_ns()) {
                world.clock.advance(stall_ns);
                continue;
            }
            let interrupt_ns = self.interrupt_ns(world, cpu);
            if interrupt_ns > world.clock.now_ns() || room == Room::Refused {
                self.let_go_on(world, interrupt_ns);
                break;
            }
            self.preempt(world);
        }
        // A task that unwinds has left things half undone.
        if world.run.is_checked.get() && !world.run.is_unwinding() {
            world.run_check();
            if world.run.has_failed() {
                give_up();
            }
        }
    }

    fn preempt(&self, world: &World) {
        let (cpu, current) = (world.tasks.cpu.get(), world.tasks.current.get());
        world.count(|counts| counts.preemptions += 1);
        world.tasks.with_current(|task| {
            task.state.set(State::Queued);
            task.break_section();
        });
        self.stop_spinners_of(world, current);
        self.stop_clock(world);
        self.switch_out(world, cpu, current);
        suspend();
    }

    /// Gives the current task's CPU to the next in the queue, if there is one.
    pub(crate) fn yield_now(&self, world: &World) {
        self.sync(world);
        if !self.here(world).queue.borrow().is_empty() {
            self.preempt(world);
        }
    }

    /// Moves the CPU's task to an idle CPU, or else to the end of the queue.
    fn switch_out(&self, world: &World, cpu: u32, task: TaskId) {
        let here = &self.cpus[cpu as usize];
        let now_ns = here.clock_ns.get();
        let idle_exit_ns = world.settings.costs.idle_exit_ns;
        let is_bound = world.tasks.with(task, |task| {
            task.ready_ns.set(now_ns);
            task.is_bound
        });
        match self.idle_near(world, cpu, is_bound) {
            Some(idle) => self.run_on_idle(world, idle, task, now_ns + idle_exit_ns),
            None => {
                here.queue.borrow_mut().push_back(task);
                self.queued.set(self.queued.get() + 1);
            }
        }
        self.switch_to_next(world, cpu);
    }

    /// Sends the spinners of the sleeping locks that `task` holds to sleep, because `task` does not run any more.
    fn stop_spinners_of(&self, world: &World, task: TaskId) {
        // Almost always none.
        for lock in world.tasks.with(task, |task| task.mutexes.borrow().clone()) {
            self.stop_spinners(world, lock);
        }
    }

    /// Sends the spinners of a sleeping lock to sleep.
    pub(crate) fn stop_spinners(&self, world: &World, lock: LockId) {
        for task in world.locks.with(lock, |state| state.spinners.clone()) {
            if self.is_spinning(world, task) {
                let cpu = world.tasks.with(task, |task| {
                    task.spin_until_ns.set(world.clock.now_ns());
                    task.cpu.get()
                });
                self.refresh_leaf(world, cpu);
            }
        }
    }

    /// Blocks the current task until [`Timed::wake`].
    pub(crate) fn block(&self, world: &World) {
        let (cpu, current) = (world.tasks.cpu.get(), world.tasks.current.get());
        world.tasks.set_state(current, State::Blocked);
        self.stop_spinners_of(world, current);
        self.stop_clock(world);
        self.switch_to_next(world, cpu);
        suspend();
        world
            .tasks
            .with_current(|task| task.sleeps.set(task.sleeps.get() + 1));
    }

    /// Lets the current task spin until it is granted something, or until `until_ns`; returns whether it was granted.
    pub(crate) fn spin(&self, world: &World, until_ns: u64) -> bool {
        world.tasks.with_current(|task| {
            task.state.set(State::Spinning);
            task.is_granted.set(false);
            task.spin_began_ns.set(world.clock.now_ns());
            task.spin_until_ns.set(until_ns);
        });
        self.stop_clock(world);
        self.refresh_leaf(world, world.tasks.cpu.get());
        suspend();
        // A stall of its CPU until now does no harm.
        let (cpu, now_ns) = (world.tasks.cpu.get(), world.clock.now_ns());
        world.clock.set(self.faults.pass_stalls(cpu, now_ns));
        world.tasks.with_current(|task| {
            task.spin_until_ns.set(NEVER);
            task.is_granted.replace(false)
        })
    }

    /// Grants a spinning task what it spins for, at `at_ns`.
    pub(crate) fn grant(&self, world: &World, task: TaskId, at_ns: u64) {
        let (state, cpu) = world.tasks.with(task, |task| {
            task.is_granted.set(true);
            task.ready_ns.set(task.ready_ns.get().max(at_ns));
            (task.state.get(), task.cpu.get())
        });
        if state == State::Spinning {
            world.tasks.set_state(task, State::Running);
            let clock = &self.cpus[cpu as usize].clock_ns;
            clock.set(clock.get().max(at_ns));
            self.refresh_leaf(world, cpu);
        }
    }

    /// Brings the CPU's leaf up to date, while its task does not run on the host.
    fn refresh_leaf(&self, world: &World, cpu: u32) {
        let here = &self.cpus[cpu as usize];
        let due_ns = match here.current.get() {
            NOBODY => NEVER,
            task => world.tasks.with(task, |task| match task.state.get() {
                State::Spinning => {
                    let due_ns = task.spin_until_ns.get().min(self.preemption_ns(world, cpu));
                    // It may have been due before, had there been a reason.
                    due_ns.max(world.clock.now_ns())
                }
                _ => 0,
            }),
        };
        let key = match due_ns {
            NEVER => NEVER,
            due_ns => self.ranks.key(cpu, due_ns.max(here.clock_ns.get())),
        };
        self.set_leaf(world, cpu as usize, key);
    }

    fn set_leaf(&self, world: &World, leaf: usize, key: u64) {
        self.tree.set(leaf, key);
        let is_other = leaf != world.tasks.cpu.get() as usize;
        if world.tasks.is_scheduled() && is_other && key < self.next_other.get() {
            self.next_other.set(key);
            self.update_horizon(world);
        }
    }

    /// Lets the next task in a CPU's queue, or in another's, run after the CPU's task has left.
    fn switch_to_next(&self, world: &World, cpu: u32) {
        let here = &self.cpus[cpu as usize];
        here.current.set(NOBODY);
        let next = here.queue.borrow_mut().pop_front();
        let next = next.or_else(|| self.steal(world));
        let Some(task) = next else {
            self.idle.add(cpu as usize);
            return self.tree.set(cpu as usize, NEVER);
        };
        self.queued.set(self.queued.get() - 1);
        let start_ns = world.tasks.with(task, |task| {
            let ready_ns = task.ready_ns.get();
            let start_ns = here.clock_ns.get().max(ready_ns) + world.settings.costs.switch_ns;
            task.queued_ns
                .set(task.queued_ns.get() + (start_ns - ready_ns));
            start_ns
        });
        world.count(|counts| counts.switches += 1);
        self.put_on(world, cpu, task, start_ns);
    }

    fn put_on(&self, world: &World, cpu: u32, task: TaskId, start_ns: u64) {
        let here = &self.cpus[cpu as usize];
        here.current.set(task);
        here.clock_ns.set(start_ns);
        here.slice_end_ns
            .set(start_ns + world.settings.costs.slice_ns);
        world.tasks.with(task, |task| {
            if task.cpu.replace(cpu) != cpu {
                world.count(|counts| counts.migrations += 1);
            }
            let still_spins = task.state.get() == State::SpinQueued && !task.is_granted.get();
            task.spin_began_ns.set(start_ns);
            task.state.set(if still_spins {
                State::Spinning
            } else {
                State::Running
            });
        });
        self.refresh_leaf(world, cpu);
    }

    fn run_on_idle(&self, world: &World, cpu: u32, task: TaskId, at_ns: u64) {
        self.idle.remove(cpu as usize);
        let clock_ns = self.cpus[cpu as usize].clock_ns.get();
        let start_ns = self.faults.pass_stalls(cpu, clock_ns.max(at_ns));
        self.put_on(world, cpu, task, start_ns);
        let deferred = self.cpus[cpu as usize].deferred.take();
        for alarm in deferred {
            if self.is_asleep(world, alarm) {
                self.interrupt(world, cpu, world.settings.costs.timer_interrupt_ns);
                self.enqueue(world, cpu, alarm.task, start_ns);
            }
        }
    }

    fn enqueue(&self, world: &World, cpu: u32, task: TaskId, at_ns: u64) {
        let state = &self.cpus[cpu as usize];
        world.tasks.with(task, |task| {
            if task.cpu.replace(cpu) != cpu {
                world.count(|counts| counts.migrations += 1);
            }
            task.ready_ns.set(at_ns);
            task.state.set(State::Queued);
        });
        state.queue.borrow_mut().push_back(task);
        self.queued.set(self.queued.get() + 1);
        if world.tasks.is_scheduled() && cpu == world.tasks.cpu.get() {
            return self.update_horizon(world);
        }
        let current = state.current.get();
        if self.is_spinning(world, current) {
            self.refresh_leaf(world, cpu);
        }
    }

    pub(crate) fn is_spinning(&self, world: &World, task: TaskId) -> bool {
        task != NOBODY && world.tasks.state_of(task) == State::Spinning
    }

    /// Takes a task from the queue of a CPU that has more than it can run.
    fn steal(&self, world: &World) -> Option<TaskId> {
        if self.queued.get() == 0 {
            return None;
        }
        let cpus = self.cpus.len();
        let first = self.random.borrow_mut().below(cpus as u64) as usize;
        for at in (first..cpus).chain(0..first) {
            let mut queue = self.cpus[at].queue.borrow_mut();
            let movable = queue
                .iter()
                .position(|&task| world.tasks.with(task, |task| !task.is_bound));
            if let Some(position) = movable {
                let task = queue.remove(position);
                drop(queue);
                // Its old CPU may have no reason left for an interrupt.
                if self.is_spinning(world, self.cpus[at].current.get()) {
                    self.refresh_leaf(world, at as u32);
                }
                return task;
            }
        }
        None
    }

    /// Wakes a blocked task at `at_ns`: on its last CPU if that is idle, else on one that is, else in a queue.
    pub(crate) fn wake(&self, world: &World, task: TaskId, at_ns: u64) {
        debug_assert_eq!(world.tasks.state_of(task), State::Blocked);
        let (last, is_bound) = place_of(world, task);
        world.count(|counts| counts.wakes += 1);
        let idle_exit_ns = world.settings.costs.idle_exit_ns;
        match self.idle_near(world, last, is_bound) {
            Some(cpu) => self.run_on_idle(world, cpu, task, at_ns + idle_exit_ns),
            None => {
                let cpu = if is_bound { last } else { self.less_busy(last) };
                self.enqueue(world, cpu, task, at_ns);
            }
        }
    }

    /// Idle CPU: `last`, else the next of its cluster, else of its node, else any.
    fn idle_near(&self, world: &World, last: u32, is_bound: bool) -> Option<u32> {
        let last = last as usize;
        if self.idle.contains(last) {
            return Some(last as u32);
        }
        if is_bound || self.idle.is_empty() {
            return None;
        }
        let topology = &world.settings.topology;
        let node = topology.cpus_of(topology.node_of(last));
        let cluster = last - (last - node.start) % topology.cluster;
        let cluster = cluster..node.end.min(cluster + topology.cluster);
        [cluster, node, 0..self.cpus.len()]
            .into_iter()
            .find_map(|near| {
                let after = self.idle.first_of(last..near.end);
                after.or_else(|| self.idle.first_of(near.start..last))
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
    pub(crate) fn interrupt(&self, world: &World, cpu: u32, duration_ns: u64) {
        let here = &self.cpus[cpu as usize];
        let task = here.current.get();
        if task == NOBODY {
            return;
        }
        here.clock_ns
            .set(here.clock_ns.get().max(world.clock.now_ns()) + duration_ns);
        self.refresh_leaf(world, cpu);
    }

    /// Lets a timer of a kind wake a task when it expires.
    pub(crate) fn arm(&self, world: &World, expires_ns: u64, kind: TimerKind, task: TaskId) {
        let expires_ns = expires_ns.saturating_add(self.faults.late_timer_ns());
        if expires_ns >= END_NS {
            // The timer never expires.
            return;
        }
        let number = self.timer_number.get();
        self.timer_number.set(number + 1);
        let shuffled = (number ^ world.settings.seed).wrapping_mul(0xd134_2543_de82_ef95);
        self.timers.borrow_mut().push(Reverse(Alarm {
            expires_ns: expires_ns.max(world.clock.now_ns()),
            // A bijection of the number.
            tie: shuffled ^ shuffled >> 32,
            task,
            sleep: world.tasks.with(task, |task| task.sleeps.get()),
            is_deferrable: kind == TimerKind::Deferrable,
        }));
        self.refresh_timers(world);
    }

    fn refresh_timers(&self, world: &World) {
        let timers = self.timers.borrow();
        let expires_ns = timers.peek().map(|Reverse(first)| first.expires_ns);
        self.set_leaf(
            world,
            self.cpus.len(),
            expires_ns.map_or(NEVER, key_of_timer),
        );
    }

    fn fire_timer(&self, world: &World) {
        let alarm = self.timers.borrow_mut().pop();
        let Reverse(alarm) = alarm.expect("the leaf says there is one");
        world.clock.set(alarm.expires_ns);
        if self.is_asleep(world, alarm) {
            let cpu = world.tasks.with(alarm.task, |task| task.cpu.get());
            let here = &self.cpus[cpu as usize];
            if alarm.is_deferrable && here.current.get() == NOBODY {
                here.deferred.borrow_mut().push(alarm);
            } else {
                let interrupt_ns = world.settings.costs.timer_interrupt_ns;
                self.interrupt(world, cpu, interrupt_ns);
                self.wake(world, alarm.task, alarm.expires_ns + interrupt_ns);
            }
        }
        self.refresh_timers(world);
    }

    /// Returns whether the sleep that the alarm is for goes on.
    fn is_asleep(&self, world: &World, alarm: Alarm) -> bool {
        world.tasks.with(alarm.task, |task| {
            task.state.get() == State::Blocked && task.sleeps.get() == alarm.sleep
        })
    }
}

/// CPU of a task, and whether it may only run there.
fn place_of(world: &World, task: TaskId) -> (u32, bool) {
    world
        .tasks
        .with(task, |task| (task.cpu.get(), task.is_bound))
}
