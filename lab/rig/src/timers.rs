//! Ticks, timers and work that is bound to CPUs, on real threads.
//!
//! A process cannot see the kernel's ticks. These ticks come from a clock: tick `j` begins when [`Machine::now_ns`] is
//! `j` ticks.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_machine::host::{lock_waits, pin_to};
use bursar_machine::{Host, LockWaits, Machine, Shard};

use crate::Tasks;
use crate::timer::{BoundTask, Timer, TimerKind, Timers, WorkQueue, tick_ns, wheel_expiry};

/// Ticks a second: those of the machines in the threads that the experiments follow.
const HZ: u32 = 1000;

/// Expiry of a timer that is set at `now_ns`. A process does not see idle CPUs, so a deferrable timer is like any other
/// of the wheel.
fn expiry_ns(timer: Timer, now_ns: u64) -> u64 {
    let Timer { kind, deadline_ns } = timer;
    if kind == TimerKind::Exact || deadline_ns <= now_ns {
        return deadline_ns;
    }
    let tick_ns = tick_ns(HZ);
    wheel_expiry(now_ns / tick_ns, deadline_ns.div_ceil(tick_ns)).saturating_mul(tick_ns)
}

impl Timers for Host {
    type Queue = HostQueue;

    fn hz(&self) -> u32 {
        HZ
    }

    fn sleep_on_timer(&self, timer: Timer) {
        self.sleep_until(expiry_ns(timer, self.now_ns()));
    }

    /// Runs a bound task anywhere if the system does not allow the binding.
    ///
    /// # Panics
    /// If there is no such CPU.
    fn run_bound<'scope>(&self, tasks: Vec<BoundTask<'scope>>) {
        let cpus = self.cpus() as u32;
        let bound = |(cpu, task): BoundTask<'scope>| -> Box<dyn FnOnce() + Send + 'scope> {
            assert!(cpu.is_none_or(|cpu| cpu < cpus), "no CPU {cpu:?}");
            Box::new(move || {
                // If binding is not allowed, as in a container, the work is done all the same.
                let _ = cpu.map(|cpu| pin_to(cpu as usize));
                task();
            })
        };
        self.run(tasks.into_iter().map(bound).collect());
    }

    fn defers(&self) -> bool {
        false
    }

    fn work_queue(&self) -> HostQueue {
        let queue = |_| Cpu {
            queue: Mutex::default(),
            changed: Condvar::new(),
        };
        HostQueue {
            machine: *self,
            cpus: (0..self.cpus()).map(queue).collect(),
        }
    }

    /// Read from `/proc`, where the kernel accounts for it (`CONFIG_SCHED_INFO`).
    fn run_queue_ns(&self) -> u64 {
        let figures = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let waited_ns = figures.split_ascii_whitespace().nth(1);
        waited_ns
            .and_then(|waited_ns| waited_ns.parse().ok())
            .unwrap_or(0)
    }

    fn lock_waits(&self) -> LockWaits {
        lock_waits()
    }
}

#[derive(Default)]
struct Queue {
    /// Items by due time and number.
    work: BTreeMap<(u64, u64), u64>,
    number: u64,
    has_stopped: bool,
}

struct Cpu {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Cpu {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Queue that real threads work on.
pub struct HostQueue {
    machine: Host,
    cpus: Vec<Cpu>,
}

impl fmt::Debug for HostQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostQueue").finish_non_exhaustive()
    }
}

impl WorkQueue for HostQueue {
    fn queue_on(&self, shard: Shard, timer: Timer, item: u64) {
        let due_ns = expiry_ns(timer, self.machine.now_ns());
        let cpu = &self.cpus[shard.index()];
        let mut queue = cpu.lock();
        queue.number += 1;
        let number = queue.number;
        queue.work.insert((due_ns, number), item);
        drop(queue);
        cpu.changed.notify_one();
    }

    fn stop(&self) {
        for cpu in &self.cpus {
            cpu.lock().has_stopped = true;
            cpu.changed.notify_one();
        }
    }

    fn workers<'scope>(
        &'scope self,
        work: &'scope (dyn Fn(Shard, u64) + Sync),
    ) -> Vec<BoundTask<'scope>> {
        let worker = |cpu: u32| -> BoundTask<'scope> {
            (Some(cpu), Box::new(move || self.serve(Shard(cpu), work)))
        };
        (0..self.cpus.len() as u32).map(worker).collect()
    }
}

impl HostQueue {
    fn serve(&self, shard: Shard, work: &(dyn Fn(Shard, u64) + Sync)) {
        let cpu = &self.cpus[shard.index()];
        let mut queue = cpu.lock();
        loop {
            let now_ns = self.machine.now_ns();
            let due_ns = queue.work.first_key_value().map(|(&(due_ns, _), _)| due_ns);
            queue = match due_ns {
                Some(due_ns) if due_ns <= now_ns => {
                    let (_, item) = queue.work.pop_first().expect("there is a first");
                    drop(queue);
                    work(shard, item);
                    cpu.lock()
                }
                _ if queue.has_stopped => return,
                Some(due_ns) => {
                    let wait = Duration::from_nanos(due_ns - now_ns);
                    let woken = cpu.changed.wait_timeout(queue, wait);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let woken = cpu.changed.wait(queue);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use bursar_machine::Lock;

    use super::*;

    fn timer(kind: TimerKind, deadline_ns: u64) -> Timer {
        Timer { kind, deadline_ns }
    }

    #[test]
    fn wheel_timers_end_at_ticks_and_exact_ones_anywhere() {
        let second_ns = 1_000_000_000;
        assert_eq!(expiry_ns(timer(TimerKind::Exact, 1_234_567), 5), 1_234_567);
        let wheel = timer(TimerKind::Wheel, second_ns);
        assert_eq!(expiry_ns(wheel, 0), 1_024_000_000);
        assert_eq!(expiry_ns(timer(TimerKind::Wheel, 7), 7), 7, "now");
    }

    #[test]
    fn items_are_worked_on_in_order_and_may_queue_others() {
        let machine = Host::start().expect("a host");
        let (order, done) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        let queue = machine.work_queue();
        let now_ns = machine.now_ns();
        let later = timer(TimerKind::Exact, now_ns + 3_000_000);
        queue.queue_on(Shard(0), later, 2);
        queue.queue_on(Shard(0), timer(TimerKind::Exact, now_ns), 1);
        let work = |shard: Shard, item: u64| {
            order.lock().expect("no panic").push(item);
            if item == 2 {
                queue.queue_on(shard, timer(TimerKind::Wheel, 0), 3);
            }
            done.store(item == 3, Ordering::Release);
        };
        let mut tasks = queue.workers(&work);
        let stop = || {
            while !done.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            queue.stop();
        };
        tasks.push((None, Box::new(stop)));
        machine.run_bound(tasks);
        assert_eq!(*order.lock().expect("no panic"), [1, 2, 3]);
    }

    #[test]
    fn a_thread_that_waits_for_a_lock_knows_for_how_long() {
        type Spin = <Host as Machine>::Spin<()>;
        type Sleeping = <Host as Machine>::Mutex<()>;
        let machine = Host::start().expect("a host");
        let (spin, sleeping) = (Spin::new(()), Sleeping::new(()));
        let (held, other) = ((spin.lock(), sleeping.lock()), AtomicBool::new(false));
        assert_eq!(machine.lock_waits(), LockWaits::default());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                other.store(true, Ordering::Release);
                drop((spin.lock(), sleeping.lock()));
                machine.lock_waits()
            });
            while !other.load(Ordering::Acquire) || spin.waits() == 0 {
                std::thread::yield_now();
            }
            let (spinning, asleep) = held;
            drop(spinning);
            while sleeping.waits() == 0 {
                std::thread::yield_now();
            }
            drop(asleep);
            let waits = waits.join().expect("no panic");
            assert!(waits.spin_ns > 0 && waits.sleep_ns > 0, "{waits:?}");
        });
    }
}
