//! Returns that are preempted anywhere, with many at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

use bursar::{Charge, Freshness, Group, Machine};
use bursar_machine::host::{Backend, allowed_cpus, pin_to, report};

use crate::Stage;
use crate::common::{LEAST_STOCK, Random, Short, memory_with_least_stock, signals};

thread_local! {
    /// Whether the thread is inside a return, or a charge that follows one.
    static RETURNING: AtomicBool = const { AtomicBool::new(false) };
    /// Whether a signal met the thread there in this round.
    static WAS_MET: AtomicBool = const { AtomicBool::new(false) };
}
/// Raised to let threads go on that stand still.
static GATE: AtomicUsize = AtomicUsize::new(0);
static STANDING: AtomicUsize = AtomicUsize::new(0);

/// Stands still at the point where the signal interrupted a return, until all other returns are over or stand still.
fn stand_in_return() {
    if !RETURNING.with(|returning| returning.load(Ordering::SeqCst)) {
        return;
    }
    let gate = GATE.load(Ordering::SeqCst);
    if gate % 2 == 1 {
        return;
    }
    WAS_MET.with(|was_met| was_met.store(true, Ordering::SeqCst));
    STANDING.fetch_add(1, Ordering::SeqCst);
    while GATE.load(Ordering::SeqCst) == gate {
        std::thread::yield_now();
    }
}

/// Place where threads wait for one another. A thread that panics lets all others go, by a panic of their own.
struct Meeting {
    awaited: usize,
    /// Number of threads that joined; `None` after a panic.
    joined: Mutex<Option<usize>>,
    changed: Condvar,
}

impl Meeting {
    fn of(awaited: usize) -> Self {
        Self {
            awaited,
            joined: Mutex::new(Some(0)),
            changed: Condvar::new(),
        }
    }

    fn check(&self) {
        let joined = *self.joined.lock().unwrap();
        assert!(joined.is_some(), "another thread found fault");
    }

    fn join(&self) {
        const FAILED: &str = "another thread found fault";
        let mut joined = self.joined.lock().unwrap();
        let now = joined.expect(FAILED) + 1;
        *joined = Some(now);
        let awaited = now.next_multiple_of(self.awaited);
        if now == awaited {
            return self.changed.notify_all();
        }
        while joined.is_none_or(|joined| joined < awaited) {
            assert!(joined.is_some(), "{FAILED}");
            joined = self.changed.wait(joined).unwrap();
        }
    }
}

struct Fails<'a>(&'a Meeting);

impl Drop for Fails<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let joined = self.0.joined.lock();
            *joined.unwrap_or_else(PoisonError::into_inner) = None;
            self.0.changed.notify_all();
            // Threads that stand still go on.
            GATE.fetch_add(2, Ordering::SeqCst);
        }
    }
}

/// Work of the tasks in a round.
struct Returns {
    groups: Vec<Group>,
    /// The CPU of this round; `usize::MAX` for any.
    cpu: AtomicUsize,
    is_over: AtomicBool,
    meeting: Meeting,
    /// The task that began a return last, and how many it has left.
    latest: AtomicUsize,
    /// Number of times that tasks charge and return again in this round.
    again: AtomicUsize,
    /// Charges for the main task to return, past the stock.
    left: Mutex<Vec<Charge>>,
    returned: AtomicUsize,
}

impl Returns {
    fn task(&self, task: usize, mut random: Random) {
        let _fails = Fails(&self.meeting);
        let cpus = allowed_cpus();
        loop {
            self.meeting.join();
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            match self.cpu.load(Ordering::SeqCst) {
                usize::MAX => drop(pin_to(cpus[random.below(cpus.len())])),
                cpu => pin_to(cpu).expect("this thread could be pinned there before"),
            }
            let group = &self.groups[random.below(self.groups.len())];
            let most = LEAST_STOCK as usize;
            let range = [1_000, most / 4, most][random.below(3)];
            let mut charge = || group.charge((most - random.below(range)) as u64);
            let mut held = charge();
            let mut again = self.again.load(Ordering::SeqCst);
            self.meeting.join();
            self.meeting.join();
            let set = |is| RETURNING.with(|returning| returning.store(is, Ordering::SeqCst));
            let was_met = || WAS_MET.with(|was_met| was_met.swap(false, Ordering::SeqCst));
            loop {
                set(true);
                self.latest.store(again << 8 | task, Ordering::SeqCst);
                drop(held);
                set(false);
                // The return that a signal met must be the last of this round: a later one would repair its
                // effects.
                if was_met() || again == 0 {
                    break;
                }
                again -= 1;
                set(true);
                held = charge();
                set(false);
                if was_met() {
                    self.left.lock().unwrap().push(held);
                    break;
                }
            }
            self.returned.fetch_add(1, Ordering::SeqCst);
            self.meeting.join();
        }
    }
}

/// Tasks on one CPU hold a charge each, return it at once, and may be preempted anywhere in the return. Then nothing is
/// charged: every range must contain 0, and what is reserved is stock, which has a bound.
#[test]
fn tasks_that_return_at_once() {
    const TASKS: usize = 8;
    let stage = Stage::begin();
    let memory = memory_with_least_stock();
    let tenant = memory.make("tenant");
    let is_sharded = report().backend == Backend::Sharded;
    signals::on(libc::SIGUSR1, stand_in_return);
    let cpus = allowed_cpus();
    // Faults are counted rather than raised: the tasks wait for one another, and how often matters.
    let mut faults: Vec<String> = Vec::new();
    let (mut excluded, mut beyond) = (0, 0);
    let mut rounds = 0;
    for groups in [1, 3] {
        let name = |index| format!("q{groups}-{index}");
        // Deep down the way up is long, and so is the time in which another task may change what was read.
        let depth = if groups == 1 { 24 } else { 0 };
        let parent = (0..depth).fold(tenant.clone(), |parent, _| parent.make("d"));
        let returns = Returns {
            groups: (0..groups).map(|index| parent.make(name(index))).collect(),
            cpu: AtomicUsize::new(usize::MAX),
            is_over: AtomicBool::new(false),
            meeting: Meeting::of(TASKS + 1),
            latest: AtomicUsize::new(usize::MAX),
            again: AtomicUsize::new(0),
            left: Mutex::default(),
            returned: AtomicUsize::new(0),
        };
        let returns = &returns;
        let part_end_ns = stage.end_ns - if groups == 1 { stage.left_ns() / 2 } else { 0 };
        let least = rounds + 200;
        let (sender, targets) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            for task in 0..TASKS {
                let random = stage.random(groups << 8 | task as u64);
                let sender = sender.clone();
                scope.spawn(move || {
                    sender.send((task, signals::this_thread())).unwrap();
                    returns.task(task, random);
                });
            }
            let _fails = Fails(&returns.meeting);
            let mut targets: Vec<_> = targets.iter().take(TASKS).collect();
            targets.sort_by_key(|&(task, _)| task);
            let mut random = stage.random(groups << 8 | 100);
            while rounds < least || stage.host.now_ns() < part_end_ns {
                rounds += 1;
                stage.note_resident();
                // No stock is left from the round before.
                tenant.set_max(0);
                tenant.set_max(u64::MAX);
                assert!(memory.reserved() == 0, "a drain leaves stock");
                let cpu = cpus[random.below(cpus.len())];
                let is_pinned = random.below(4) > 0 && can_pin(cpu);
                let cpu = if is_pinned { cpu } else { usize::MAX };
                returns.cpu.store(cpu, Ordering::SeqCst);
                let again = [0, 0, 30, 300][random.below(4)];
                returns.again.store(again, Ordering::SeqCst);
                returns.meeting.join();
                returns.meeting.join();
                if random.below(4) > 0 {
                    // Takes the stock that came with the charges, so that each task finds room for its own.
                    tenant.set_max(u64::MAX - 1);
                }
                let exact = memory.exact().usage();
                let reserved = memory.reserved();
                returns.returned.store(0, Ordering::SeqCst);
                returns.latest.store(usize::MAX, Ordering::SeqCst);
                STANDING.store(0, Ordering::SeqCst);
                // Even: closed.
                GATE.fetch_add(GATE.load(Ordering::SeqCst) % 2, Ordering::SeqCst);
                // Without signals in some rounds: the scheduler alone preempts.
                let signals = random.below(8) > 0;
                if let Some(&other) = cpus.iter().find(|&&other| other != cpu) {
                    let _ = pin_to(other);
                }
                returns.meeting.join();
                let stopped =
                    || returns.returned.load(Ordering::SeqCst) + STANDING.load(Ordering::SeqCst);
                let mut seen = usize::MAX;
                while stopped() < TASKS {
                    let latest = returns.latest.load(Ordering::SeqCst);
                    if signals && latest != seen {
                        (0..random.below(100)).for_each(|_| std::hint::spin_loop());
                        signals::send(&targets[latest & 0xff].1, libc::SIGUSR1);
                        seen = latest;
                    } else if random.below(64) == 0 {
                        returns.meeting.check();
                        std::thread::yield_now();
                    }
                }
                GATE.fetch_add(1, Ordering::SeqCst);
                returns.meeting.join();
                for mut charge in std::mem::take(&mut *returns.left.lock().unwrap()) {
                    // As much as no CPU holds as stock goes to the counters.
                    let more = returns
                        .groups
                        .iter()
                        .find(|&group| *group == charge.group());
                    let more = more.unwrap().charge(2 * LEAST_STOCK);
                    charge.merge(more).expect("the same group");
                }
                if exact.value as u64 > reserved {
                    faults.push(format!("{exact:?} charged, {reserved} reserved"));
                }
                // With a CPU's own shard the stock is there. Threads that are hashed to shards may use all.
                let shards = match is_pinned && !is_sharded {
                    true => 1,
                    false => memory.machine().cpus() as u64,
                };
                let bound = LEAST_STOCK * shards;
                for group in &returns.groups {
                    let reserved = group.reserved();
                    if reserved > bound {
                        beyond += 1;
                        let stated = format!("where {bound} are stated");
                        faults.push(format!("{group:?}: {reserved} bytes of stock, {stated}"));
                    }
                }
                for group in [&memory.root(), &tenant] {
                    let cached = group.read(Freshness::Cached).unwrap().usage();
                    if cached.lo > 0 || cached.hi < 0 {
                        excluded += 1;
                        faults.insert(0, format!("{group:?}: {cached:?} excludes 0"));
                    }
                    let error = match random.below(2) {
                        0 => cached.error(),
                        _ => random.below(1 << 20) as u64,
                    };
                    let value = group
                        .read(Freshness::UsageWithin(error))
                        .unwrap()
                        .usage()
                        .value;
                    if value.unsigned_abs() > error {
                        excluded += 1;
                        faults.insert(0, format!("{group:?}: within {error} of 0 is {value}"));
                    }
                }
                let exact = memory.used();
                if exact != 0 {
                    faults.push(format!("{exact} bytes charged by nobody"));
                }
            }
            returns.is_over.store(true, Ordering::SeqCst);
            returns.meeting.join();
        });
    }
    tenant.set_max(0);
    assert!(memory.reserved() == 0, "lost stock");
    assert!(
        faults.is_empty(),
        "in {rounds} rounds {beyond} times too much stock, {excluded} times a wrong range; among them: {:#?}",
        &faults[..faults.len().min(5)]
    );
}

/// Whether threads may be pinned to `cpu`.
fn can_pin(cpu: usize) -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let pins = move || pin_to(cpu).is_ok();
        std::thread::spawn(pins).join().unwrap()
    })
}
