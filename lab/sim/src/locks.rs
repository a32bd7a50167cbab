//! Locks: owners, waiters, and the order of the waiters.
//!
//! A release is an event like a lock: all that come before it find the lock taken, and wait as their kind of lock does.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use bursar_machine::{Event, Lock};

use crate::engine::{Engine, Schedule, with_engine};
use crate::explored::Point;
use crate::lines::Access;
use crate::lock_table::LockState;
use crate::operation::{SimOperation, operation};
use crate::settings::Settings;
use crate::task::{LockId, NOBODY, State, Step, TaskId};
use crate::timed::Timed;
use crate::topology::{LockKind, PreemptionKind};
use crate::tournament::NEVER;
use crate::world::World;

/// Way in which a lock's waiters wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Spin,
    Sleep,
}

fn make_lock(engine: &Engine) -> LockId {
    let World { lines, locks, .. } = &engine.world;
    let state = LockState {
        line: lines.allocate(),
        ..LockState::default()
    };
    let mut all = locks.locks.borrow_mut();
    if let Some(lock) = locks.free.borrow_mut().pop() {
        all[lock as usize] = state;
        return lock;
    }
    all.push(state);
    LockId::try_from(all.len() - 1).expect("fewer than 2^32 locks")
}

fn drop_lock(engine: &Engine, lock: LockId) {
    let World { lines, locks, .. } = &engine.world;
    lines.release(locks.with(lock, |state| state.line));
    locks.free.borrow_mut().push(lock);
}

/// Takes the lock for the current task; returns `true` if it had to wait.
#[inline]
fn lock(engine: &Engine, lock: LockId, waiting: Waiting) -> bool {
    let world = &engine.world;
    if !engine.is_scheduled() {
        let before = world.locks.with(lock, |state| state.owner.replace(NOBODY));
        assert!(before.is_none(), "nobody is there to give the lock back");
        return false;
    }
    world.count(|counts| counts.acquisitions += 1);
    if let Some(timed) = engine.timed()
        && waiting == Waiting::Spin
    {
        // Before it has the lock: a task that waits for one cannot be preempted either.
        change_spins(world, timed, 1);
    }
    engine.visible(Step::Lock, lock);
    match &engine.schedule {
        Schedule::Timed(timed) => timed_lock(world, timed, lock, waiting),
        Schedule::Explored(explored) => {
            let mut has_waited = false;
            while !world.locks.with(lock, |state| state.own(&world.tasks)) {
                has_waited = true;
                let current = world.tasks.current.get();
                world
                    .locks
                    .with(lock, |state| state.sleepers.push_back(current));
                explored.block(world);
            }
            has_waited
        }
    }
}

#[inline]
fn timed_lock(world: &World, timed: &Timed, lock: LockId, waiting: Waiting) -> bool {
    let began_ns = world.clock.now_ns();
    let has_waited = match waiting {
        Waiting::Spin => lock_spinning(world, timed, lock),
        Waiting::Sleep => lock_sleeping(world, timed, lock),
    };
    if has_waited {
        let waited_ns = world.clock.now_ns() - began_ns;
        world.tasks.with_current(|task| {
            let mut waits = task.lock_waits.get();
            match waiting {
                Waiting::Spin => waits.spin_ns += waited_ns,
                Waiting::Sleep => waits.sleep_ns += waited_ns,
            }
            task.lock_waits.set(waits);
        });
    }
    note_owned(world, timed, lock, waiting);
    has_waited
}

/// Notes that the current task has got a lock.
#[inline]
fn note_owned(world: &World, timed: &Timed, lock: LockId, waiting: Waiting) {
    if waiting == Waiting::Sleep {
        world
            .tasks
            .with_current(|task| task.mutexes.borrow_mut().push(lock));
    }
    let lock_ns = world.settings.costs.lock_ns + timed.faults.lock_stall_ns();
    world.clock.advance(lock_ns);
}

/// Changes the number of spin locks held, which may keep the task from being preempted.
#[inline]
fn change_spins(world: &World, timed: &Timed, by: i32) {
    if world.settings.topology.preemption != PreemptionKind::Kernel {
        return;
    }
    world
        .tasks
        .with_current(|task| task.spins.set(task.spins.get().wrapping_add_signed(by)));
    timed.update_horizon(world);
}

/// Takes the lock if it is free.
#[inline]
fn timed_own(world: &World, lock: LockId) -> bool {
    let is_ours = world.locks.with(lock, |state| state.own(&world.tasks));
    if is_ours {
        fetch(world, lock, Access::Write, world.settings.costs.atomic_ns);
    }
    is_ours
}

/// Fetches the line of a lock, and spends some time more.
#[inline]
fn fetch(world: &World, lock: LockId, access: Access, extra_ns: u64) {
    let line = world.locks.with(lock, |state| state.line);
    world.access(line, access, extra_ns);
}

/// Returns whether a waiter that goes on has been given the lock, whose line it then fetches.
#[inline]
fn is_given(world: &World, lock: LockId) -> bool {
    let owner = world.locks.with(lock, |state| state.owner);
    let is_ours = owner == Some(world.tasks.current.get());
    if is_ours {
        fetch(world, lock, Access::Write, 0);
    }
    is_ours
}

#[inline]
fn lock_spinning(world: &World, timed: &Timed, lock: LockId) -> bool {
    let current = world.tasks.current.get();
    let mut has_waited = false;
    while !timed_own(world, lock) {
        has_waited = true;
        world
            .locks
            .with(lock, |state| state.spinners.push_back(current));
        let is_granted = timed.spin(world, NEVER);
        debug_assert!(is_granted);
        if is_given(world, lock) {
            return true;
        }
    }
    has_waited
}

/// Spins while the owner runs, but only for a while, then sleeps. A sleeper that was woken in vain is served next.
fn lock_sleeping(world: &World, timed: &Timed, lock: LockId) -> bool {
    let World { locks, tasks, .. } = world;
    let current = tasks.current.get();
    let mut was_woken = false;
    while !timed_own(world, lock) {
        let owner = locks.with(lock, |state| state.owner);
        // `NOBODY` has it if it was taken outside of tasks.
        let owner = owner.filter(|owner| *owner != NOBODY);
        let owner_runs = owner
            .is_some_and(|owner| matches!(tasks.state_of(owner), State::Running | State::Spinning));
        if owner_runs && !was_woken {
            locks.with(lock, |state| state.spinners.push_back(current));
            let until_ns = world.clock.now_ns() + mutex_spin_ns(&world.settings);
            if timed.spin(world, until_ns) && is_given(world, lock) {
                return true;
            }
            locks.with(lock, |state| state.spinners.retain(|&task| task != current));
        }
        let syscall_ns = world.settings.costs.syscall_ns;
        if was_woken {
            locks.with(lock, |state| {
                state.sleepers.insert(state.promised, current);
                state.promised += 1;
            });
            world.clock.advance(syscall_ns);
        } else {
            world.clock.advance(syscall_ns);
            timed.sync(world);
            // The owner may have released it on our way into the kernel.
            if timed_own(world, lock) {
                return true;
            }
            locks.with(lock, |state| state.sleepers.push_back(current));
        }
        timed.block(world);
        if is_given(world, lock) {
            return true;
        }
        was_woken = true;
    }
    was_woken
}

/// Time that a waiter spins: in a process a fixed time, in the kernel until the slice ends.
fn mutex_spin_ns(settings: &Settings) -> u64 {
    match settings.topology.preemption {
        PreemptionKind::User => settings.costs.mutex_spin_ns,
        PreemptionKind::Kernel => settings.costs.slice_ns,
    }
}

#[inline]
fn try_lock(engine: &Engine, lock: LockId, waiting: Waiting) -> bool {
    let world = &engine.world;
    if !engine.is_scheduled() {
        return world.locks.with(lock, |state| {
            let is_free = state.owner.is_none();
            state.owner.get_or_insert(NOBODY);
            is_free
        });
    }
    engine.visible(Step::Lock, lock);
    let is_ours = match &engine.schedule {
        Schedule::Timed(timed) => timed_try_lock(world, timed, lock, waiting),
        Schedule::Explored(_) => world.locks.with(lock, |state| state.own(&world.tasks)),
    };
    if is_ours {
        world.count(|counts| counts.acquisitions += 1);
    }
    is_ours
}

fn timed_try_lock(world: &World, timed: &Timed, lock: LockId, waiting: Waiting) -> bool {
    if !timed_own(world, lock) {
        fetch(world, lock, Access::Read, 0);
        return false;
    }
    if waiting == Waiting::Spin {
        change_spins(world, timed, 1);
    }
    note_owned(world, timed, lock, waiting);
    true
}

#[inline]
fn unlock(engine: &Engine, lock: LockId, waiting: Waiting) {
    let world = &engine.world;
    if !engine.is_scheduled() {
        return world.locks.with(lock, |state| state.owner = None);
    }
    match &engine.schedule {
        Schedule::Timed(timed) => timed_unlock(world, timed, lock, waiting),
        Schedule::Explored(explored) => {
            let waiters = world.locks.with(lock, |state| {
                state.owner = None;
                std::mem::take(&mut state.sleepers)
            });
            for task in waiters {
                explored.wake(world, task);
            }
            explored.point(world, Point::Step);
        }
    }
}

#[inline]
fn timed_unlock(world: &World, timed: &Timed, lock: LockId, waiting: Waiting) {
    // Those that come before find it taken.
    timed.sync(world);
    world.note(Step::Unlock, lock);
    if waiting == Waiting::Sleep {
        world.tasks.with_current(|task| {
            task.mutexes.borrow_mut().retain(|&other| other != lock);
        });
    }
    let has_waiters = world.locks.with(lock, |state| {
        state.owner = None;
        // No task sleeps for a spin lock.
        !state.spinners.is_empty() || waiting == Waiting::Sleep && !state.sleepers.is_empty()
    });
    if has_waiters {
        let kind = match waiting {
            Waiting::Spin => world.settings.topology.lock,
            Waiting::Sleep => LockKind::Queued,
        };
        hand_over(world, timed, lock, kind);
    }
    if waiting == Waiting::Spin {
        change_spins(world, timed, -1);
    }
}

/// Gives a lock that is free to the next waiter, or wakes one.
fn hand_over(world: &World, timed: &Timed, lock: LockId, kind: LockKind) {
    let World { lines, locks, .. } = world;
    let now_ns = world.clock.now_ns();
    let is_promised = locks.with(lock, |state| state.promised > 0);
    let spinner = if is_promised {
        None
    } else {
        next_spinner(world, timed, lock, kind)
    };
    if let Some((task, rest)) = spinner {
        let way_ns = || {
            let to = world.tasks.with(task, |task| task.cpu.get());
            lines.way_ns(lines.distance(world.tasks.cpu.get(), to))
        };
        // The time until it can fetch the line to write, and the reads of the line until then.
        let (look_ns, reads) = match kind {
            LockKind::Queued => (0, 0),
            // All waiters read it again, one after the other; the next is served half-way on average.
            LockKind::Ticket => (rest * way_ns() / 2, rest),
            // It sees that the lock is free. Until it has it, another may take it.
            LockKind::Unfair => (way_ns(), 1),
        };
        lines.count_transfers(reads);
        if kind != LockKind::Unfair {
            locks.with(lock, |state| state.owner = Some(task));
        }
        return timed.grant(world, task, now_ns + look_ns);
    }
    if kind == LockKind::Unfair {
        // The waiters are off their CPUs; the first that runs gets it.
        let spinners = locks.with(lock, |state| std::mem::take(&mut state.spinners));
        for task in spinners {
            timed.grant(world, task, now_ns);
        }
    }
    let sleeper = locks.with(lock, |state| {
        let sleeper = state.sleepers.pop_front();
        if is_promised {
            state.promised -= 1;
            state.owner = sleeper;
        }
        sleeper
    });
    if is_promised {
        // The lock's next owner does not run yet.
        timed.stop_spinners(world, lock);
    }
    if let Some(task) = sleeper {
        let costs = &world.settings.costs;
        world.clock.advance(costs.syscall_ns + costs.wake_ns);
        timed.sync_undisturbed(world);
        timed.wake(world, task, world.clock.now_ns());
    }
}

/// Takes the next spinner out of the queue; returns it and, of a ticket lock, the number of others that spin.
fn next_spinner(
    world: &World,
    timed: &Timed,
    lock: LockId,
    kind: LockKind,
) -> Option<(TaskId, u64)> {
    let here = world.tasks.cpu.get();
    world.locks.with(lock, |state| {
        let at = if kind == LockKind::Unfair {
            // The nearest sees the line first; among equals, the seed decides.
            let spinners = state.spinners.iter().enumerate();
            let spinners = spinners.filter(|(_, task)| timed.is_spinning(world, **task));
            let by_distance = spinners.map(|(at, &task)| {
                let cpu = world.tasks.with(task, |task| task.cpu.get());
                let tie = timed.random.borrow_mut().number();
                (world.lines.distance(here, cpu), tie, at)
            });
            by_distance.min()?.2
        } else {
            0
        };
        let task = state.spinners.remove(at)?;
        let others = match kind {
            LockKind::Ticket => state.spinners.as_slices(),
            _ => Default::default(),
        };
        let others = others.0.iter().chain(others.1);
        let others = others.filter(|task| timed.is_spinning(world, **task));
        Some((task, others.count() as u64))
    })
}

/// Common part of the two kinds of locks.
struct Raw<T> {
    value: Mutex<T>,
    lock: LockId,
    /// Number of the engine that the lock belongs to.
    engine: Option<u32>,
    waits: AtomicU64,
    waiting: Waiting,
}

impl<T: Send> Raw<T> {
    fn new(value: T, waiting: Waiting) -> Self {
        Self {
            value: Mutex::new(value),
            lock: with_engine(make_lock).unwrap_or(LockId::MAX),
            engine: with_engine(|engine| engine.number),
            waits: AtomicU64::new(0),
            waiting,
        }
    }

    /// Returns an operation for a sleeping lock, as on the host: a fork leaves none taken.
    #[inline]
    fn operation(&self) -> Option<SimOperation> {
        (self.waiting == Waiting::Sleep).then(operation)
    }

    #[inline]
    fn lock(&self) -> SimGuard<'_, T> {
        let operation = self.operation();
        let has_waited = with_engine(|engine| lock(engine, self.lock, self.waiting));
        if has_waited == Some(true) {
            // Two steps, as for `SimWord`: one thread of the host runs all tasks.
            let waits = self.waits.load(Ordering::Relaxed);
            self.waits.store(waits + 1, Ordering::Relaxed);
        }
        self.guard(operation)
    }

    #[inline]
    fn try_lock(&self) -> Option<SimGuard<'_, T>> {
        let operation = self.operation();
        let is_ours =
            with_engine(|engine| try_lock(engine, self.lock, self.waiting)).unwrap_or(true);
        is_ours.then(|| self.guard(operation))
    }

    #[inline]
    fn guard(&self, operation: Option<SimOperation>) -> SimGuard<'_, T> {
        let value = match self.value.try_lock() {
            Ok(value) => value,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => unreachable!("a lock has one owner"),
        };
        SimGuard {
            value: Some(value),
            lock: self.lock,
            waiting: self.waiting,
            _operation: operation,
        }
    }
}

impl<T> Drop for Raw<T> {
    #[inline]
    fn drop(&mut self) {
        with_engine(|engine| {
            if self.engine == Some(engine.number) {
                drop_lock(engine, self.lock);
            }
        });
    }
}

/// Guard of a lock of a simulated machine.
pub struct SimGuard<'a, T> {
    // Released before the lock is.
    value: Option<MutexGuard<'a, T>>,
    lock: LockId,
    waiting: Waiting,
    /// Ends when the lock is free.
    _operation: Option<SimOperation>,
}

impl<T> Deref for SimGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.value.as_ref().expect("held until drop")
    }
}

impl<T> DerefMut for SimGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("held until drop")
    }
}

impl<T> Drop for SimGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.value = None;
        with_engine(|engine| unlock(engine, self.lock, self.waiting));
    }
}

/// Lock whose waiters spin: queued, ticket or unfair, as the topology sets it.
pub struct SimSpin<T>(Raw<T>);

/// Lock whose waiters spin for a while if the owner runs, then sleep.
pub struct SimMutex<T>(Raw<T>);

macro_rules! lock {
    ($name:ident, $waiting:expr) => {
        impl<T: Send + 'static> Lock<T> for $name<T> {
            type Guard<'a> = SimGuard<'a, T>;

            fn new(value: T) -> Self {
                Self(Raw::new(value, $waiting))
            }
            #[inline]
            fn lock(&self) -> SimGuard<'_, T> {
                self.0.lock()
            }
            #[inline]
            fn try_lock(&self) -> Option<SimGuard<'_, T>> {
                self.0.try_lock()
            }
            fn prefetch(&self) {
                with_engine(|engine| {
                    let line = engine.world.locks.with(self.0.lock, |state| state.line);
                    engine.prefetch(line, Access::Write);
                });
            }
            fn waits(&self) -> u64 {
                self.0.waits.load(Ordering::Relaxed)
            }
        }
    };
}

lock!(SimSpin, Waiting::Spin);
lock!(SimMutex, Waiting::Sleep);

/// Completion of a simulated machine.
pub struct SimEvent(Mutex<Completion>);

#[derive(Default)]
struct Completion {
    has_happened: bool,
    waiters: Vec<TaskId>,
}

impl SimEvent {
    fn state(&self) -> MutexGuard<'_, Completion> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Event for SimEvent {
    fn new() -> Self {
        Self(Mutex::default())
    }

    fn set(&self) {
        with_engine(|engine| {
            engine.visible(Step::Set, 0);
            let waiters = {
                let mut state = self.state();
                state.has_happened = true;
                std::mem::take(&mut state.waiters)
            };
            if !engine.is_scheduled() {
                return;
            }
            if !waiters.is_empty() {
                engine.spend(engine.costs().syscall_ns);
            }
            for task in waiters {
                engine.pass_undisturbed(engine.costs().wake_ns);
                engine.wake(task);
            }
            engine.end_step();
        });
    }

    fn wait(&self) {
        with_engine(|engine| {
            engine.visible(Step::Wait, 0);
            loop {
                {
                    let mut state = self.state();
                    if state.has_happened {
                        return;
                    }
                    assert!(engine.is_scheduled(), "nobody is there to wait for");
                    state.waiters.push(engine.world.tasks.current.get());
                }
                engine.spend(engine.costs().syscall_ns);
                engine.block();
            }
        });
    }
}
