//! Upkeep on simulated machines: who keeps its phase, who is left alone, and what each policy costs in wake-ups.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bursar_kernel::upkeep::{
    Clocked, Firing, Housekeeping, KERNEL_SKEW, Options, Period, Upkeep, round_jiffies,
};
use bursar_machine::{Machine, Shard};
use bursar_rig::Tasks;
use bursar_rig::random::Random;
use bursar_rig::timer::{BoundTask, Timer, TimerKind, Timers, WorkQueue, tick_ns, wheel_expiry};
use bursar_sim::{Settings, Sim, Simulator, Topology};

use crate::common::{MS, US};

const SECOND_NS: u64 = 1_000_000_000;
const HZ: u32 = 1000;
const SHEPHERD: u64 = 0;
const UPKEEP: u64 = 1;

/// Work that never ends, takes a while, and not always as long. Notes when it began.
struct Endless {
    machine: Sim,
    longest_ns: u64,
    /// By CPU.
    begun_ns: Vec<Mutex<Vec<u64>>>,
    random: Mutex<Random>,
}

impl Endless {
    fn new(machine: &Sim, longest_ns: u64) -> Self {
        Self {
            machine: machine.clone(),
            longest_ns,
            begun_ns: (0..machine.cpus()).map(|_| Mutex::default()).collect(),
            random: Mutex::new(Random::new(5)),
        }
    }

    fn begun_ns(&self, cpu: usize) -> Vec<u64> {
        let begun_ns = &self.begun_ns[cpu];
        begun_ns
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Upkeep for Endless {
    fn needs(&self, _: Shard) -> bool {
        true
    }

    fn fold(&self, shard: Shard) -> bool {
        let now_ns = self.machine.now_ns();
        // No step while a lock of the host is held.
        let begun_ns = &self.begun_ns[shard.index()];
        begun_ns
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(now_ns);
        true
    }

    fn pages(&self, _: Shard) -> bool {
        if self.longest_ns > 0 {
            let random = || self.random.lock().unwrap_or_else(PoisonError::into_inner);
            let for_ns = random().below(self.longest_ns);
            self.machine.compute(for_ns);
        }
        true
    }
}

fn simulator(cpus: usize) -> Simulator {
    Simulator::new(Settings::new(Topology::new(cpus, 1, HZ), 11))
}

fn options(firing: Firing, isolated: &[u32]) -> Options<Clocked> {
    let period = Period::new(SECOND_NS, HZ).expect("a second");
    Options {
        isolated: isolated.to_vec(),
        ..Options::new(Clocked::new(firing, period))
    }
}

/// Upkeep on the machine's workqueue for so many seconds, each call of which takes up to `longest_ns`: when each CPU's calls
/// began.
fn calls(
    cpus: usize,
    firing: Firing,
    isolated: &[u32],
    seconds: u64,
    longest_ns: u64,
) -> Vec<Vec<u64>> {
    let simulator = simulator(cpus);
    let machine = simulator.machine();
    let endless = Endless::new(&machine, longest_ns);
    let housekeeping = Housekeeping::new(&machine, endless, options(firing, isolated));
    let housekeeping = housekeeping.expect("settings that make sense");
    let queue = machine.work_queue();
    let work = |shard: Shard, item: u64| {
        if machine.now_ns() >= seconds * SECOND_NS {
            queue.stop();
            return;
        }
        if item == SHEPHERD {
            housekeeping.shepherd(|shard, timer| queue.queue_on(shard, timer, UPKEEP));
            let timer = housekeeping.shepherd_timer(machine.now_ns());
            queue.queue_on(shard, timer, SHEPHERD);
        } else if let Some(timer) = housekeeping.fire(shard) {
            queue.queue_on(shard, timer, UPKEEP);
        }
    };
    let mut tasks = queue.workers(&work);
    let at_once = Timer {
        kind: TimerKind::Exact,
        deadline_ns: 0,
    };
    let begin: BoundTask<'_> = (
        None,
        Box::new(|| queue.queue_on(Shard(0), at_once, SHEPHERD)),
    );
    tasks.push(begin);
    if firing.kind() == TimerKind::Deferrable {
        // Something else must wake CPUs that are idle, also for the last time.
        let wake = || {
            while machine.now_ns() < (seconds + 3) * SECOND_NS {
                machine.sleep_until(machine.now_ns() + 5 * MS);
            }
        };
        let each = (0..cpus as u32).map(|cpu| -> BoundTask<'_> { (Some(cpu), Box::new(wake)) });
        tasks.extend(each);
    }
    machine.run_bound(tasks);
    (0..cpus)
        .map(|cpu| housekeeping.upkeep().begun_ns(cpu))
        .collect()
}

/// Time between the begin of calls and a CPU's phase, nanoseconds.
fn off_phase_ns(calls: &[u64], phase_ns: u64) -> impl Iterator<Item = u64> {
    calls
        .iter()
        .map(move |at_ns| (at_ns + SECOND_NS - phase_ns) % SECOND_NS)
}

#[test]
fn exact_phases_hold_for_a_day() {
    const CPUS: usize = 3;
    const DAY_S: u64 = 86_400;
    let calls = calls(CPUS, Firing::PhaseGrid { exact: true }, &[], DAY_S, 50 * MS);
    for (cpu, calls) in calls.iter().enumerate() {
        let phase_ns = cpu as u64 * SECOND_NS / CPUS as u64;
        let most_ns = off_phase_ns(calls, phase_ns)
            .max()
            .expect("there are calls");
        println!(
            "CPU {cpu}: {} calls, at most {most_ns} ns late",
            calls.len()
        );
        assert!(most_ns < 50 * US, "{most_ns}");
        assert!(
            (DAY_S as usize - 2..=DAY_S as usize).contains(&calls.len()),
            "one a period"
        );
    }
}

#[test]
fn a_plain_interval_drifts_by_what_calls_take() {
    const CPUS: usize = 3;
    const SECONDS: u64 = 600;
    let of = |firing| calls(CPUS, firing, &[], SECONDS, 50 * MS)[1].len() as u64;
    let grid = of(Firing::PhaseGrid { exact: false });
    let rounded = of(Firing::RoundJiffies { skew: KERNEL_SKEW });
    let spread = of(Firing::Spread);
    println!("calls in {SECONDS} s: grid {grid}, rounded {rounded}, spread {spread}");
    assert!(grid >= SECONDS - 2 && rounded >= SECONDS - 2);
    // 25 ms of work and 32 of the wheel in each second.
    assert!((SECONDS * 100 / 108..SECONDS * 100 / 103).contains(&spread));
}

#[test]
fn one_cpu_and_such_that_are_left_alone() {
    let alone = calls(1, Firing::default(), &[], 10, 0);
    assert!((9..=10).contains(&alone[0].len()));
    let isolated = [0, 2, 3, 6];
    let calls = calls(8, Firing::default(), &isolated, 10, MS);
    let mut rank = 0;
    for (cpu, calls) in calls.iter().enumerate() {
        if isolated.contains(&(cpu as u32)) {
            assert_eq!(calls.len(), 0, "CPU {cpu} is isolated");
            continue;
        }
        let late_ns = off_phase_ns(calls, rank * SECOND_NS / 4).max();
        assert!(late_ns.expect("there are calls") < 50 * US, "CPU {cpu}");
        assert!((8..=10).contains(&calls.len()));
        rank += 1;
    }
    assert_eq!(rank, 4);
}

/// Time at which a timer that is set now expires.
fn expiry_ns(timer: Timer, now_ns: u64) -> u64 {
    if timer.kind == TimerKind::Exact || timer.deadline_ns <= now_ns {
        return timer.deadline_ns;
    }
    let tick_ns = tick_ns(HZ);
    wheel_expiry(now_ns / tick_ns, timer.deadline_ns.div_ceil(tick_ns)) * tick_ns
}

/// A CPU that sleeps but for a timer of its own, once a second and rounded as most are, and for upkeep: how often it wakes.
fn wakeups(
    machine: &Sim,
    housekeeping: &Housekeeping<Sim, Endless>,
    cpu: u32,
    until_ns: u64,
) -> u64 {
    let shard = Shard(cpu);
    let rounded = |now_ns: u64| {
        let now = now_ns / tick_ns(HZ);
        let at = round_jiffies(now + u64::from(HZ), now, cpu, HZ, KERNEL_SKEW);
        let timer = Timer {
            kind: TimerKind::Wheel,
            deadline_ns: at * tick_ns(HZ),
        };
        expiry_ns(timer, now_ns)
    };
    let mut own_ns = rounded(machine.now_ns());
    // Which timer is set for upkeep, and when it expires.
    let mut set: Option<(Timer, u64)> = None;
    let mut wakeups = 0;
    loop {
        let now_ns = machine.now_ns();
        let due = housekeeping.due(shard);
        set = match (due, set) {
            (Some(due), Some((timer, _))) if due == timer => set,
            (due, _) => due.map(|due| (due, expiry_ns(due, now_ns))),
        };
        let wakes = set.filter(|(timer, _)| timer.kind != TimerKind::Deferrable);
        let next_ns = wakes.map_or(own_ns, |(_, at_ns)| at_ns.min(own_ns));
        if next_ns >= until_ns {
            return wakeups;
        }
        if next_ns > now_ns {
            machine.sleep_on_timer(Timer {
                kind: TimerKind::Exact,
                deadline_ns: next_ns,
            });
            wakeups += 1;
        }
        let now_ns = machine.now_ns();
        if set.is_some_and(|(_, at_ns)| at_ns <= now_ns) {
            housekeeping.fire(shard);
        }
        if own_ns <= now_ns {
            // A CPU that is awake looks.
            housekeeping.awake(shard);
            own_ns = rounded(now_ns);
        }
    }
}

/// Wake-ups a CPU and second, and calls of upkeep a CPU and second.
fn cost(firing: Firing, slack_ns: u64) -> (f64, f64) {
    const CPUS: usize = 64;
    const SECONDS: u64 = 30;
    let simulator = simulator(CPUS);
    let machine = simulator.machine();
    let options = Options {
        slack_ns,
        ..options(firing, &[])
    };
    let housekeeping = Housekeeping::new(&machine, Endless::new(&machine, 0), options);
    let housekeeping = housekeeping.expect("settings that make sense");
    housekeeping.shepherd(|_, _| ());
    let (all, wakes) = (&housekeeping, &AtomicU64::new(0));
    let machine = &machine;
    let task = |cpu: u32| -> BoundTask<'_> {
        let sleep = move || {
            let count = wakeups(machine, all, cpu, SECONDS * SECOND_NS);
            wakes.fetch_add(count, Ordering::Relaxed);
        };
        (Some(cpu), Box::new(sleep))
    };
    machine.run_bound((0..CPUS as u32).map(task).collect());
    let calls: usize = (0..CPUS)
        .map(|cpu| housekeeping.upkeep().begun_ns(cpu).len())
        .sum();
    let each = (CPUS as u64 * SECONDS) as f64;
    (
        wakes.load(Ordering::Relaxed) as f64 / each,
        calls as f64 / each,
    )
}

#[test]
fn what_each_policy_costs_in_wakeups() {
    let near = |value: f64, of: f64| (value - of).abs() < 0.07 * of;
    println!("wake-ups and calls a CPU and second; one wake-up is another timer's");
    let of = |firing: Firing, slack_ms: u64| {
        let (wakeups, calls) = cost(firing, slack_ms * MS);
        println!("{firing:?}, slack {slack_ms} ms: {wakeups:.3} {calls:.3}");
        (wakeups, calls)
    };
    // Deferrable work of an idle CPU waits for another timer: it costs no wake-up, and comes with that one.
    let (wakeups, calls) = of(Firing::RoundJiffies { skew: KERNEL_SKEW }, 0);
    assert!(near(wakeups, 1.0) && near(calls, 1.0));
    // If it is not rounded as that one is, it comes too late for the next.
    for firing in [
        Firing::RoundJiffies { skew: 13 },
        Firing::Spread,
        Firing::Stretched { rounded: false },
    ] {
        let (wakeups, calls) = of(firing, 0);
        assert!(near(wakeups, 1.0) && calls < 0.75, "{firing:?}");
    }
    for exact in [false, true] {
        let grid = Firing::PhaseGrid { exact };
        let (alone, calls) = of(grid, 0);
        assert!(near(calls, 1.0));
        // Whatever the other timer does, but for those that happen to meet.
        assert!((1.85..=2.05).contains(&alone), "{grid:?}: {alone}");
        let (some, calls) = of(grid, 250);
        assert!(
            near(calls, 1.0),
            "each period's call, early or not: {calls}"
        );
        assert!(near(some, alone - 0.25), "a quarter is shared: {some}");
        let (shared, calls) = of(grid, 990);
        assert!(near(calls, 1.0), "{calls}");
        assert!(shared < 1.08, "nearly all are shared: {shared}");
    }
}
