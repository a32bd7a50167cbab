//! Locks: owners, waiters, and the order of the waiters.
//!
//! A release is no event of its own. It records when the lock is free, and a task that comes later works out its own
//! turn. Only if a task waits does anything happen, or if the order depends on the waiters (ticket and unfair locks).

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use bursar_machine::{Event, Lock};

use crate::engine::{Engine, with_engine};
use crate::explored::Point;
use crate::lines::Access;
use crate::lock_table::LockState;
use crate::operation::{SimOperation, operation};
use crate::task::{LockId, NOBODY, State, Step, TaskId};
use crate::topology::{LockKind, PreemptionKind};
use crate::tournament::NEVER;

/// Way in which a lock's waiters wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Spin,
    Sleep,
}

fn make_lock(engine: &Engine) -> LockId {
    let line = engine.lines.allocate();
    let state = LockState {
        line,
        ..LockState::default()
    };
    let mut locks = engine.locks.locks.borrow_mut();
    if let Some(lock) = engine.locks.free.borrow_mut().pop() {
        locks[lock as usize] = state;
        return lock;
    }
    locks.push(state);
    LockId::try_from(locks.len() - 1).expect("fewer than 2^32 locks")
}

fn drop_lock(engine: &Engine, lock: LockId) {
    engine
        .lines
        .release(engine.locks.with(lock, |state| state.line));
    engine.locks.free.borrow_mut().push(lock);
}

/// Takes the lock for the current task; returns `true` if it had to wait.
fn lock(engine: &Engine, lock: LockId, waiting: Waiting) -> bool {
    if !engine.is_scheduled() {
        let before = engine.locks.with(lock, |state| state.owner.replace(NOBODY));
        assert!(before.is_none(), "nobody is there to give the lock back");
        return false;
    }
    engine
        .locks
        .acquisitions
        .set(engine.locks.acquisitions.get() + 1);
    if waiting == Waiting::Spin && engine.explored.is_none() {
        // Before it has the lock: a task that waits for one cannot be preempted either.
        change_spins(engine, 1);
    }
    engine.visible(Step::Lock, lock);
    if let Some(explored) = &engine.explored {
        let mut has_waited = false;
        while try_own(engine, lock).is_none() {
            has_waited = true;
            let current = engine.current.get();
            engine
                .locks
                .with(lock, |state| state.sleepers.push_back(current));
            engine.explored_block(explored);
        }
        return has_waited;
    }
    let began_ns = engine.now_ns.get();
    let has_waited = match waiting {
        Waiting::Spin => lock_spinning(engine, lock),
        Waiting::Sleep => lock_sleeping(engine, lock),
    };
    if has_waited {
        note_wait(engine, waiting, engine.now_ns.get() - began_ns);
    }
    note_owned(engine, lock, waiting);
    has_waited
}

fn note_wait(engine: &Engine, waiting: Waiting, waited_ns: u64) {
    engine.with_task(engine.current.get(), |task| {
        let mut waits = task.lock_waits.get();
        match waiting {
            Waiting::Spin => waits.spin_ns += waited_ns,
            Waiting::Sleep => waits.sleep_ns += waited_ns,
        }
        task.lock_waits.set(waits);
    });
}

/// Notes that the current task has got a lock.
fn note_owned(engine: &Engine, lock: LockId, waiting: Waiting) {
    if waiting == Waiting::Sleep {
        let current = engine.current.get();
        engine.with_task(current, |task| task.mutexes.borrow_mut().push(lock));
    }
    engine.spend(engine.settings.costs.lock_ns + engine.faults.lock_stall_ns());
}

/// Changes the number of spin locks held, which may keep the task from being preempted.
fn change_spins(engine: &Engine, by: i32) {
    if engine.settings.topology.preemption != PreemptionKind::Kernel {
        return;
    }
    engine.with_task(engine.current.get(), |task| {
        task.spins.set(task.spins.get().wrapping_add_signed(by));
    });
    engine.update_horizon();
}

/// Takes the lock if it is free, and spends the time until then; returns whether that was later than now.
fn try_own(engine: &Engine, lock: LockId) -> Option<bool> {
    let (current, cpu) = (engine.current.get(), engine.cpu.get());
    let taken = engine.locks.with(lock, |state| {
        if state.owner.is_some() {
            return None;
        }
        state.owner = Some(current);
        Some((
            state.line,
            state.free_ns,
            std::mem::replace(&mut state.owner_cpu, cpu),
        ))
    });
    let (line, free_ns, last_cpu) = taken?;
    if engine.explored.is_some() {
        return Some(false);
    }
    // The lock was taken when we came: the last owner ran ahead on the host, not in time.
    let has_waited = engine.now_ns.get() < free_ns;
    engine.access(line, Access::Write, engine.settings.costs.atomic_ns);
    if engine.now_ns.get() < free_ns {
        let way_ns = engine.lines.way_ns(engine.lines.distance(last_cpu, cpu));
        engine.now_ns.set(free_ns + way_ns);
    }
    Some(has_waited)
}

fn lock_spinning(engine: &Engine, lock: LockId) -> bool {
    let mut has_spun = false;
    loop {
        if let Some(has_waited) = try_own(engine, lock) {
            return has_spun || has_waited;
        }
        has_spun = true;
        let current = engine.current.get();
        engine
            .locks
            .with(lock, |state| state.spinners.push_back(current));
        let is_granted = engine.spin(NEVER);
        debug_assert!(is_granted);
        if engine.locks.with(lock, |state| state.owner) == Some(current) {
            return true;
        }
    }
}

/// Spins while the owner runs, but only for a while, then sleeps. A sleeper that was woken in vain is served next.
fn lock_sleeping(engine: &Engine, lock: LockId) -> bool {
    let current = engine.current.get();
    let mut times = 0;
    loop {
        if let Some(has_waited) = try_own(engine, lock) {
            return has_waited || times > 0;
        }
        times += 1;
        let owner = engine.locks.with(lock, |state| state.owner);
        let owner_runs = owner.is_some_and(|owner| {
            let state = engine.with_task(owner, |task| task.state.get());
            matches!(state, State::Running | State::Spinning)
        });
        if owner_runs && times == 1 {
            engine
                .locks
                .with(lock, |state| state.spinners.push_back(current));
            if engine.spin(engine.now_ns.get() + mutex_spin_ns(engine)) {
                return true;
            }
            engine
                .locks
                .with(lock, |state| state.spinners.retain(|&task| task != current));
        }
        engine.spend(engine.settings.costs.syscall_ns);
        engine.sync();
        // The owner may have released it on our way into the kernel.
        if try_own(engine, lock).is_some() {
            return true;
        }
        engine.locks.with(lock, |state| {
            if times > 2 {
                state.sleepers.push_front(current);
                state.is_promised = true;
            } else {
                state.sleepers.push_back(current);
            }
        });
        engine.block();
        if engine.locks.with(lock, |state| state.owner) == Some(current) {
            return true;
        }
        times += 1;
    }
}

/// Time that a waiter spins: in a process a fixed time, in the kernel until the slice ends.
fn mutex_spin_ns(engine: &Engine) -> u64 {
    match engine.settings.topology.preemption {
        PreemptionKind::User => engine.settings.costs.mutex_spin_ns,
        PreemptionKind::Kernel => engine.settings.costs.slice_ns,
    }
}

fn try_lock(engine: &Engine, lock: LockId, waiting: Waiting) -> bool {
    if !engine.is_scheduled() {
        let mut locks = engine.locks.locks.borrow_mut();
        let is_free = locks[lock as usize].owner.is_none();
        if is_free {
            locks[lock as usize].owner = Some(NOBODY);
        }
        return is_free;
    }
    engine.visible(Step::Lock, lock);
    let (line, free_ns) = engine.locks.with(lock, |state| (state.line, state.free_ns));
    // A lock that is released later than now counts as taken.
    let is_ours = (engine.explored.is_some() || free_ns <= engine.now_ns.get())
        && try_own(engine, lock).is_some();
    if is_ours {
        engine
            .locks
            .acquisitions
            .set(engine.locks.acquisitions.get() + 1);
        if engine.explored.is_none() {
            if waiting == Waiting::Spin {
                change_spins(engine, 1);
            }
            note_owned(engine, lock, waiting);
        }
    } else {
        engine.access(line, Access::Read, 0);
    }
    is_ours
}

fn unlock(engine: &Engine, lock: LockId, waiting: Waiting) {
    let has_waiters = engine.locks.with(lock, |state| {
        !state.spinners.is_empty() || !state.sleepers.is_empty()
    });
    if !engine.is_scheduled() {
        return engine.locks.with(lock, |state| state.owner = None);
    }
    if let Some(explored) = &engine.explored {
        let waiters = engine.locks.with(lock, |state| {
            state.owner = None;
            std::mem::take(&mut state.sleepers)
        });
        waiters
            .into_iter()
            .for_each(|task| engine.explored_wake(task));
        return engine.explored_point(explored, Point::Step);
    }
    let kind = match waiting {
        Waiting::Spin => engine.settings.topology.lock,
        Waiting::Sleep => LockKind::Queued,
    };
    if has_waiters || kind != LockKind::Queued {
        engine.visible(Step::Unlock, lock);
        hand_over(engine, lock, kind);
    } else {
        // No task can come in between.
        let now_ns = engine.now_ns.get();
        engine.locks.with(lock, |state| {
            state.owner = None;
            state.is_promised = false;
            state.free_ns = now_ns;
        });
    }
    match waiting {
        Waiting::Spin => change_spins(engine, -1),
        Waiting::Sleep => engine.with_task(engine.current.get(), |task| {
            task.mutexes.borrow_mut().retain(|&other| other != lock);
        }),
    }
}

/// Gives the lock to the next waiter, or releases it.
fn hand_over(engine: &Engine, lock: LockId, kind: LockKind) {
    let now_ns = engine.now_ns.get();
    let is_promised = engine.locks.with(lock, |state| state.is_promised);
    let spinner = if is_promised {
        None
    } else {
        next_spinner(engine, lock, kind)
    };
    if let Some((task, rest)) = spinner {
        let (from, to) = (
            engine.cpu.get(),
            engine.with_task(task, |task| task.cpu.get()),
        );
        let way_ns = engine.lines.way_ns(engine.lines.distance(from, to));
        let handover_ns = match kind {
            LockKind::Queued | LockKind::Unfair => way_ns,
            // All waiters read the line again, one after the other; the next is served half-way on average.
            LockKind::Ticket => way_ns + rest * way_ns / 2,
        };
        engine.locks.with(lock, |state| {
            state.owner = (kind != LockKind::Unfair).then_some(task);
            state.owner_cpu = to;
            state.free_ns = now_ns;
        });
        return engine.grant(task, now_ns + handover_ns);
    }
    if kind == LockKind::Unfair {
        // The waiters are off their CPUs; the first that runs gets it.
        let spinners = engine
            .locks
            .with(lock, |state| std::mem::take(&mut state.spinners));
        spinners
            .into_iter()
            .for_each(|task| engine.grant(task, now_ns));
    }
    let sleeper = engine.locks.with(lock, |state| state.sleepers.pop_front());
    engine.locks.with(lock, |state| {
        state.is_promised = false;
        state.free_ns = now_ns;
        state.owner = if is_promised { sleeper } else { None };
    });
    if is_promised {
        // The lock's next owner does not run yet.
        engine.stop_spinners(lock);
    }
    if let Some(task) = sleeper {
        engine.spend(engine.settings.costs.syscall_ns + engine.settings.costs.wake_ns);
        engine.wake(task, engine.now_ns.get());
    }
}

/// Takes the next spinner out of the queue; returns it and the number that stay in the queue.
fn next_spinner(engine: &Engine, lock: LockId, kind: LockKind) -> Option<(TaskId, u64)> {
    let here = engine.cpu.get();
    engine.locks.with(lock, |state| {
        let at = if kind == LockKind::Unfair {
            // The nearest sees the line first; among equals, the seed decides.
            let spinners = state.spinners.iter().enumerate();
            let spinners = spinners.filter(|(_, task)| engine.is_spinning(**task));
            let by_distance = spinners.map(|(at, &task)| {
                let cpu = engine.with_task(task, |task| task.cpu.get());
                let tie = engine.random.borrow_mut().number();
                (engine.lines.distance(here, cpu), tie, at)
            });
            by_distance.min()?.2
        } else {
            0
        };
        let task = state.spinners.remove(at)?;
        Some((task, state.spinners.len() as u64))
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
    fn operation(&self) -> Option<SimOperation> {
        (self.waiting == Waiting::Sleep).then(operation)
    }

    fn lock(&self) -> SimGuard<'_, T> {
        let operation = self.operation();
        let has_waited = with_engine(|engine| lock(engine, self.lock, self.waiting));
        if has_waited == Some(true) {
            self.waits.fetch_add(1, Ordering::Relaxed);
        }
        self.guard(operation)
    }

    fn try_lock(&self) -> Option<SimGuard<'_, T>> {
        let operation = self.operation();
        let is_ours =
            with_engine(|engine| try_lock(engine, self.lock, self.waiting)).unwrap_or(true);
        is_ours.then(|| self.guard(operation))
    }

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
    fn deref(&self) -> &T {
        self.value.as_ref().expect("held until drop")
    }
}

impl<T> DerefMut for SimGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("held until drop")
    }
}

impl<T> Drop for SimGuard<'_, T> {
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
            fn lock(&self) -> SimGuard<'_, T> {
                self.0.lock()
            }
            fn try_lock(&self) -> Option<SimGuard<'_, T>> {
                self.0.try_lock()
            }
            fn prefetch(&self) {
                with_engine(|engine| {
                    let line = engine.locks.with(self.0.lock, |state| state.line);
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
            if let Some(explored) = &engine.explored {
                waiters
                    .into_iter()
                    .for_each(|task| engine.explored_wake(task));
                return engine.explored_point(explored, Point::Step);
            }
            if waiters.is_empty() {
                return;
            }
            engine.spend(engine.settings.costs.syscall_ns);
            for task in waiters {
                engine.spend(engine.settings.costs.wake_ns);
                engine.wake(task, engine.now_ns.get());
            }
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
                    state.waiters.push(engine.current.get());
                }
                match &engine.explored {
                    Some(explored) => engine.explored_block(explored),
                    None => {
                        engine.spend(engine.settings.costs.syscall_ns);
                        engine.block();
                    }
                }
            }
        });
    }
}
