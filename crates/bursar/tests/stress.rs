//! Stress: everything that threads can do to groups, for as long as `BURSAR_STRESS_SECONDS` says, with every reading compared
//! with the truth.
//!
//! The kinds run one after the other and share the time equally. A failure prints its seed; the order in which threads run is
//! the machine's, so a replay may need several runs.
#![cfg(target_os = "linux")]

mod common;

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Scope;

use bursar::machine::host::{Backend, allowed_cpus, pin_to, report};
use bursar::{
    Charge, ChargeError, CreateError, Freshness, Group, Host, Limits, Machine, NowaitError,
};
use common::child::live_in_child;
use common::fork::in_child;
use common::site::{DEPARTMENT_MAX, Held, Site, TENANT_MAX};
use common::truth::Before;
use common::world::{Stop, World};
use common::{BATCHED, ROWS, Random, cpus, memory, seed, signals};

/// Seconds for the whole file unless `BURSAR_STRESS_SECONDS` is set.
const SECONDS: u64 = 16;
/// Kinds of stress, which share the time.
const KINDS: u64 = 7;
/// The stated bound on the stock of one group on one CPU (`Builder::stock_max`), bytes.
const STOCK_MAX: u64 = 256 << 10;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The time of one kind, which has the machine for itself.
struct Stage {
    _turn: MutexGuard<'static, ()>,
    host: Host,
    end_ns: u64,
    seed: u64,
}

impl Stage {
    fn begin() -> Self {
        let turn = ONE_AT_A_TIME.lock();
        let turn = turn.unwrap_or_else(PoisonError::into_inner);
        let seconds = std::env::var("BURSAR_STRESS_SECONDS").ok();
        let seconds = seconds.map_or(SECONDS, |seconds| {
            seconds
                .parse()
                .expect("BURSAR_STRESS_SECONDS must be a whole number of seconds")
        });
        let host = Host::start().expect("the host starts");
        Self {
            end_ns: host.now_ns() + seconds * 1_000_000_000 / KINDS,
            host,
            seed: seed(),
            _turn: turn,
        }
    }

    /// Whether the time is up. Each kind does its least number of rounds first.
    fn is_over(&self) -> bool {
        self.host.now_ns() >= self.end_ns
    }

    /// Random numbers of one thread.
    fn random(&self, stream: u64) -> Random {
        Random(Random(self.seed ^ stream << 32).next())
    }
}

fn fault(seed: u64, what: std::fmt::Arguments) -> ! {
    panic!("{what}; BURSAR_SEED={seed}")
}

/// An assertion that names the seed.
macro_rules! check {
    ($seed:expr, $holds:expr, $($what:tt)+) => {
        if !$holds {
            fault($seed, format_args!($($what)+));
        }
    };
}

/// One seat of a thread that ends and is replaced by another.
struct Seat<'a> {
    site: &'a Site,
    /// The thread that has the seat; 0 for none.
    thread: &'a AtomicUsize,
    seated: &'a AtomicUsize,
}

impl<'a> Seat<'a> {
    fn take<'scope>(self, scope: &'scope Scope<'scope, 'a>, mut random: Random, heirs: usize) {
        scope.spawn(move || {
            // Also after a panic: others must end.
            let leaves = Leaves(self.seated);
            let thread = cpus::this_thread() as usize;
            self.thread.store(thread, Ordering::SeqCst);
            let mut held = Held::new();
            let steps = 1 + random.below(1_500);
            (0..steps).for_each(|_| self.site.step(&mut random, &mut held));
            self.thread.store(0, Ordering::SeqCst);
            self.site.leave(held);
            if heirs > 0 {
                std::mem::forget(leaves);
                self.take(scope, random, heirs - 1);
            }
        });
    }
}

struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Threads hop between CPUs, are moved by others, end, and leave their charges for other threads to return.
#[test]
fn threads_that_hop_and_end() {
    const SEATS: usize = 4;
    const HEIRS: usize = 12;
    let stage = Stage::begin();
    let site = Site::new(stage.seed);
    let cpus = allowed_cpus();
    let mut epochs = 0;
    while epochs < 2 || !stage.is_over() {
        let seated = AtomicUsize::new(SEATS);
        let threads: [AtomicUsize; SEATS] = Default::default();
        std::thread::scope(|scope| {
            for (seat, thread) in threads.iter().enumerate() {
                let (site, seated) = (&site, &seated);
                let random = stage.random(epochs << 8 | seat as u64);
                let seat = Seat {
                    site,
                    thread,
                    seated,
                };
                seat.take(scope, random, HEIRS);
            }
            scope.spawn(|| {
                let mut random = stage.random(epochs << 8 | 100);
                while seated.load(Ordering::SeqCst) > 0 {
                    site.watch(&mut random);
                }
            });
            let mut random = stage.random(epochs << 8 | 101);
            while seated.load(Ordering::SeqCst) > 0 {
                let thread = threads[random.below(SEATS)].load(Ordering::SeqCst);
                if thread != 0 {
                    // It may have ended meanwhile.
                    cpus::move_to(thread as i32, cpus[random.below(cpus.len())]);
                }
                std::thread::yield_now();
            }
        });
        site.check();
        epochs += 1;
    }
    site.end();
}

thread_local! {
    /// Whether the thread is inside a return, or a charge that follows one.
    static RETURNING: AtomicBool = const { AtomicBool::new(false) };
    /// Whether a signal met the thread there in this round.
    static WAS_MET: AtomicBool = const { AtomicBool::new(false) };
}
/// Raised to let threads go on that stand still.
static GATE: AtomicUsize = AtomicUsize::new(0);
static STANDING: AtomicUsize = AtomicUsize::new(0);

/// Stands still wherever the signal met a return, until all other returns are over or stand still as well.
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

/// How many tasks there are, and what they do in a round.
struct Returns {
    tasks: usize,
    groups: Vec<Group>,
    /// The CPU of this round; `usize::MAX` for any.
    cpu: AtomicUsize,
    is_over: AtomicBool,
    start: Barrier,
    charged: Barrier,
    /// Raised when all may return.
    go: AtomicUsize,
    /// The task that began a return last, and how many it has left.
    latest: AtomicUsize,
    /// How often tasks charge and return again in this round.
    again: AtomicUsize,
    /// Charges for the main task to return, past the stock.
    left: Mutex<Vec<Charge>>,
    end: Barrier,
    returned: AtomicUsize,
}

impl Returns {
    fn task(&self, task: usize, mut random: Random) {
        let cpus = allowed_cpus();
        loop {
            self.start.wait();
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            match self.cpu.load(Ordering::SeqCst) {
                usize::MAX => drop(pin_to(cpus[random.below(cpus.len())])),
                cpu => pin_to(cpu).expect("this thread could be pinned there before"),
            }
            let group = &self.groups[random.below(self.groups.len())];
            let most = STOCK_MAX as usize;
            let range = [1_000, most / 4, most][random.below(3)];
            let mut charge = || {
                let bytes = most - random.below(range);
                group.try_charge(bytes).expect("there is no limit")
            };
            let mut held = charge();
            let mut again = self.again.load(Ordering::SeqCst);
            let go = self.go.load(Ordering::SeqCst);
            self.charged.wait();
            // Runs up to the return as soon as it can, unlike a task that has to be woken.
            while self.go.load(Ordering::SeqCst) == go {
                std::thread::yield_now();
            }
            let set = |is| RETURNING.with(|returning| returning.store(is, Ordering::SeqCst));
            let was_met = || WAS_MET.with(|was_met| was_met.swap(false, Ordering::SeqCst));
            loop {
                set(true);
                self.latest.store(again << 8 | task, Ordering::SeqCst);
                drop(held);
                set(false);
                // What a signal met is the last of this round: a later return would put right what it did.
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
            self.end.wait();
        }
    }
}

/// Tasks on one CPU hold a charge each, return it at once, and may be preempted anywhere in the return. Then nothing is
/// charged: every range must contain 0, and what is reserved is stock, which has a bound.
#[test]
fn tasks_that_return_at_once() {
    const TASKS: usize = 8;
    let stage = Stage::begin();
    let seed = stage.seed;
    let memory = memory();
    let tenant = memory.root().child("tenant", Limits::none()).unwrap();
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
        let parent = (0..depth).fold(tenant.clone(), |parent, _| {
            parent.child("d", Limits::none()).unwrap()
        });
        let returns = Returns {
            tasks: TASKS,
            groups: (0..groups)
                .map(|index| parent.child(&name(index), Limits::none()).unwrap())
                .collect(),
            cpu: AtomicUsize::new(usize::MAX),
            is_over: AtomicBool::new(false),
            start: Barrier::new(TASKS + 1),
            charged: Barrier::new(TASKS + 1),
            go: AtomicUsize::new(0),
            latest: AtomicUsize::new(usize::MAX),
            again: AtomicUsize::new(0),
            left: Mutex::default(),
            end: Barrier::new(TASKS + 1),
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
            let mut targets: Vec<_> = targets.iter().take(TASKS).collect();
            targets.sort_by_key(|&(task, _)| task);
            let mut random = stage.random(groups << 8 | 100);
            while rounds < least || stage.host.now_ns() < part_end_ns {
                rounds += 1;
                // No stock is left from the round before.
                tenant.set_max(0);
                tenant.set_max(u64::MAX);
                check!(seed, memory.reserved() == 0, "a drain leaves stock");
                let cpu = cpus[random.below(cpus.len())];
                let is_pinned = random.below(4) > 0 && can_pin(cpu);
                let cpu = if is_pinned { cpu } else { usize::MAX };
                returns.cpu.store(cpu, Ordering::SeqCst);
                let again = [0, 0, 30, 300][random.below(4)];
                returns.again.store(again, Ordering::SeqCst);
                returns.start.wait();
                returns.charged.wait();
                if random.below(4) > 0 {
                    // Takes the stock that came with the charges, so that each task finds room for its own.
                    tenant.set_max(u64::MAX - 1);
                }
                let exact = memory.root().read(Freshness::Exact).unwrap().usage();
                let reserved = memory.reserved();
                returns.returned.store(0, Ordering::SeqCst);
                returns.latest.store(usize::MAX, Ordering::SeqCst);
                STANDING.store(0, Ordering::SeqCst);
                GATE.fetch_add(
                    usize::from(GATE.load(Ordering::SeqCst) % 2),
                    Ordering::SeqCst,
                );
                // Without signals in some rounds: the scheduler alone preempts.
                let signals = random.below(8) > 0;
                if let Some(&other) = cpus.iter().find(|&&other| other != cpu) {
                    let _ = pin_to(other);
                }
                returns.go.fetch_add(1, Ordering::SeqCst);
                let stopped =
                    || returns.returned.load(Ordering::SeqCst) + STANDING.load(Ordering::SeqCst);
                let mut seen = usize::MAX;
                while stopped() < returns.tasks {
                    let latest = returns.latest.load(Ordering::SeqCst);
                    if signals && latest != seen {
                        (0..random.below(100)).for_each(|_| std::hint::spin_loop());
                        signals::send(&targets[latest & 0xff].1, libc::SIGUSR1);
                        seen = latest;
                    } else if random.below(64) == 0 {
                        std::thread::yield_now();
                    }
                }
                GATE.fetch_add(1, Ordering::SeqCst);
                returns.end.wait();
                for mut charge in std::mem::take(&mut *returns.left.lock().unwrap()) {
                    // As much as no CPU holds as stock goes to the counters.
                    let more = returns
                        .groups
                        .iter()
                        .find(|&group| *group == charge.group());
                    let more = more.unwrap().charge(2 * STOCK_MAX as usize);
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
                let bound = STOCK_MAX * shards;
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
                        faults.push(format!("{group:?}: {cached:?} excludes 0"));
                    }
                    let error = match random.below(2) {
                        0 => cached.error(),
                        _ => random.below(1 << 20) as u64,
                    };
                    let value = group.read(Freshness::Within(error)).unwrap().usage().value;
                    if value.unsigned_abs() > error {
                        excluded += 1;
                        faults.push(format!("{group:?}: within {error} of 0 is {value}"));
                    }
                }
                let exact = memory.root().read(Freshness::Exact).unwrap().usage().value;
                if exact != 0 {
                    faults.push(format!("{exact} bytes charged by nobody"));
                }
            }
            returns.is_over.store(true, Ordering::SeqCst);
            returns.start.wait();
        });
    }
    tenant.set_max(0);
    check!(seed, memory.reserved() == 0, "lost stock");
    check!(
        seed,
        faults.is_empty(),
        "in {rounds} rounds {beyond} times too much stock, {excluded} times a wrong range; the first: {:#?}",
        &faults[..faults.len().min(5)]
    );
}

impl Stage {
    fn left_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.host.now_ns())
    }
}

/// Whether threads may be pinned to `cpu`.
fn can_pin(cpu: usize) -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let pins = move || pin_to(cpu).is_ok();
        std::thread::spawn(pins).join().unwrap()
    })
}

/// Bytes that may be charged to a group: a token is taken before each charge, and returned after each return.
struct Budget(AtomicI64);

impl Budget {
    fn new(bytes: u64) -> Self {
        Self(AtomicI64::new(bytes as i64))
    }

    fn take(&self, bytes: usize) -> bool {
        let bytes = bytes as i64;
        let rest = |left: i64| (left >= bytes).then_some(left - bytes);
        let taken = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, rest);
        taken.is_ok()
    }

    fn put(&self, bytes: usize) {
        self.0.fetch_add(bytes as i64, Ordering::SeqCst);
    }
}

/// A tenant and queries whose limits are their budgets.
struct Budgets {
    tenant: (Group, Budget),
    queries: Vec<(Group, Budget)>,
    refused: AtomicU64,
    seed: u64,
}

impl Budgets {
    const TENANT: u64 = 2 << 20;
    const QUERY: u64 = 900 << 10;

    /// A charge to a query, if the budgets allow it; then no limit may refuse it.
    fn charge(&self, query: usize, bytes: usize) -> Option<Charge> {
        let (group, budget) = &self.queries[query];
        if !budget.take(bytes) {
            return None;
        }
        if !self.tenant.1.take(bytes) {
            budget.put(bytes);
            return None;
        }
        let charged = group.try_charge(bytes);
        Some(charged.unwrap_or_else(|error| {
            fault(
                self.seed,
                format_args!("refused within the budget: {error}"),
            )
        }))
    }

    fn give_back(&self, query: usize, charge: Charge) {
        let bytes = charge.bytes();
        drop(charge);
        self.tenant.1.put(bytes);
        self.queries[query].1.put(bytes);
    }

    fn step(&self, random: &mut Random, held: &mut Held) {
        let query = random.below(self.queries.len());
        let most = [5_000, 100_000, 700_000][random.below(3)];
        let bytes = 1 + random.below(most);
        match random.below(8) {
            0 if !held.is_empty() => {
                let one = random.below(held.len());
                let (from, charge) = &mut held[one];
                let (target, budget) = &self.queries[query];
                if *from != query && budget.take(charge.bytes()) {
                    if let Err(error) = charge.move_to(target) {
                        fault(
                            self.seed,
                            format_args!("not moved within the budget: {error}"),
                        );
                    }
                    self.queries[*from].1.put(charge.bytes());
                    *from = query;
                }
            }
            1 => {
                let cpus = allowed_cpus();
                let _ = pin_to(cpus[random.below(cpus.len())]);
            }
            _ => match self.charge(query, bytes) {
                Some(charge) => held.push((query, charge)),
                None if held.is_empty() => std::thread::yield_now(),
                None => {
                    let (query, charge) = held.swap_remove(random.below(held.len()));
                    self.give_back(query, charge);
                }
            },
        }
        if held.len() > 20 {
            let (query, charge) = held.swap_remove(random.below(held.len()));
            self.give_back(query, charge);
        }
    }

    /// Asks for what never fits: somewhere it is reserved for a moment, and given up.
    fn ask_too_much(&self, greedy: &Group, random: &mut Random) {
        let refused = match random.below(3) {
            0 => self.queries[0].0.try_charge(Self::QUERY as usize + 1),
            1 => self.tenant.0.try_charge(Self::TENANT as usize + 1),
            _ => greedy.try_charge(Self::TENANT as usize + 1),
        };
        match refused {
            Err(ChargeError::LimitReached(_)) => self.refused.fetch_add(1, Ordering::SeqCst),
            other => fault(self.seed, format_args!("above the limit: {other:?}")),
        };
    }

    /// Lowers a limit by what nobody else may charge then, and raises it again.
    fn change(&self, random: &mut Random) {
        let at = random.below(1 + self.queries.len());
        let ((group, budget), max) = match at {
            0 => (&self.tenant, Self::TENANT),
            _ => (&self.queries[at - 1], Self::QUERY),
        };
        let bytes = random.below(max as usize);
        if !budget.take(bytes) {
            return;
        }
        let lowered = max - bytes as u64;
        group.set_max(lowered);
        for _ in 0..random.below(50) {
            let reserved = group.reserved();
            check!(
                self.seed,
                reserved <= lowered,
                "{group:?}: {reserved} reserved, limit {lowered}"
            );
            std::thread::yield_now();
        }
        group.set_max(max);
        budget.put(bytes);
    }
}

/// Threads share budgets that are equal to the limits, so every refusal would be false.
#[test]
fn budgets_that_fit_limits_exactly() {
    let stage = Stage::begin();
    let seed = stage.seed;
    let memory = memory();
    let tenant = memory.root().child("tenant", Limits::max(Budgets::TENANT));
    let tenant = tenant.unwrap();
    let query = |index| {
        let group = tenant.child(&format!("q{index}"), Limits::max(Budgets::QUERY));
        (group.unwrap(), Budget::new(Budgets::QUERY))
    };
    // Reserves more than the tenant has, and gives it up.
    let greedy = tenant.child("greedy", Limits::none()).unwrap();
    let budgets = Budgets {
        queries: (0..3).map(query).collect(),
        tenant: (tenant, Budget::new(Budgets::TENANT)),
        refused: AtomicU64::new(0),
        seed,
    };
    let mut epochs = 0;
    while epochs < 2 || !stage.is_over() {
        let running = AtomicUsize::new(4);
        let is_running = || running.load(Ordering::SeqCst) > 0;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let mut random = stage.random(epochs << 8 | thread);
                let (budgets, running) = (&budgets, &running);
                scope.spawn(move || {
                    let _leaves = Leaves(running);
                    let mut held = Held::new();
                    (0..6_000).for_each(|_| budgets.step(&mut random, &mut held));
                    held.into_iter()
                        .for_each(|(query, charge)| budgets.give_back(query, charge));
                });
            }
            scope.spawn(|| {
                let mut random = stage.random(epochs << 8 | 100);
                while is_running() {
                    budgets.ask_too_much(&greedy, &mut random);
                    (0..random.below(8)).for_each(|_| std::thread::yield_now());
                }
            });
            let mut random = stage.random(epochs << 8 | 101);
            while is_running() {
                budgets.change(&mut random);
                for ((group, _), max) in budgets
                    .queries
                    .iter()
                    .map(|query| (query, Budgets::QUERY))
                    .chain([(&budgets.tenant, Budgets::TENANT)])
                {
                    let reserved = group.reserved();
                    check!(seed, reserved <= max, "{group:?}: {reserved} of {max}");
                }
                std::thread::yield_now();
            }
        });
        let usage = memory.root().read(Freshness::Exact).unwrap().usage().value;
        check!(
            seed,
            usage == 0,
            "{usage} bytes are charged after all returns"
        );
        epochs += 1;
    }
    let refused = budgets.tenant.0.events().refused;
    check!(
        seed,
        refused == budgets.refused.load(Ordering::SeqCst),
        "{refused} refusals were counted, {:?} were seen",
        budgets.refused
    );
    budgets.tenant.0.set_max(0);
    check!(seed, memory.reserved() == 0, "lost stock");
}

/// A limit that was set holds: what is reserved falls until it is within the limit, and stays there.
fn change_limit(stage: &Stage, site: &Site, at: usize, most: u64, random: &mut Random) {
    let (group, truths) = site.part(at);
    let max = random.below(most as usize) as u64;
    group.set_max(max);
    let mut highest = group.reserved();
    for _ in 0..random.below(60) {
        let before = Before::of(truths.clone());
        let reserved = group.reserved();
        let (charged, _) = before.bounds(truths.clone());
        let bound = highest.max(max);
        check!(
            stage.seed,
            reserved <= bound && charged <= bound as i64,
            "{group:?}: {reserved} reserved, {charged} charged, limit {max}, {highest} before"
        );
        highest = reserved;
        std::thread::yield_now();
    }
    if random.below(2) == 0 {
        group.set_max(most);
    }
}

/// Limits of two levels change while threads charge.
#[test]
fn limits_that_change() {
    let stage = Stage::begin();
    let site = Site::new(stage.seed);
    let mut epochs = 0;
    while epochs < 2 || !stage.is_over() {
        let running = AtomicUsize::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let mut random = stage.random(epochs << 8 | thread);
                let (site, running) = (&site, &running);
                scope.spawn(move || {
                    let _leaves = Leaves(running);
                    let mut held = Held::new();
                    (0..12_000).for_each(|_| site.step(&mut random, &mut held));
                    site.leave(held);
                });
            }
            // One task for each limit: what one has set, no other changes.
            for at in 0..1 + site.departments.len() {
                let most = [TENANT_MAX, DEPARTMENT_MAX][at.min(1)];
                let mut random = stage.random(epochs << 8 | 100 | at as u64);
                let (stage, site, running) = (&stage, &site, &running);
                scope.spawn(move || {
                    while running.load(Ordering::SeqCst) > 0 {
                        change_limit(stage, site, at, most, &mut random);
                    }
                    site.part(at).0.set_max(most);
                });
            }
        });
        site.check();
        epochs += 1;
    }
    site.end();
}

/// The number of a group's record, which is the last that its hash takes in.
fn record(group: &Group) -> u32 {
    #[derive(Default)]
    struct Last(u32);
    impl Hasher for Last {
        fn finish(&self) -> u64 {
            self.0.into()
        }
        fn write(&mut self, _: &[u8]) {}
        fn write_u32(&mut self, number: u32) {
            self.0 = number;
        }
    }
    let mut last = Last::default();
    group.hash(&mut last);
    last.0
}

/// A thread that makes groups and lets them go.
struct Births<'a> {
    parent: &'a Group,
    thread: u64,
    rows: &'a AtomicU64,
    /// Names that were taken though no handle was left.
    stuck_names: &'a AtomicU64,
    /// The highest number of a record.
    record: &'a AtomicU64,
    seed: u64,
    random: Random,
    /// Charges of groups that are gone.
    late: Vec<Charge>,
    /// Handles of groups that were removed.
    removed: Vec<Group>,
}

impl Births<'_> {
    const LATE_MAX: usize = 20;
    const REMOVED_MAX: usize = 4;

    fn add(&self, group: &Group) {
        group.add(ROWS, 1);
        self.rows.fetch_add(1, Ordering::SeqCst);
    }

    /// A child of the parent, by one of a few names.
    fn query(&mut self) -> Group {
        loop {
            let name = format!("t{}-{}", self.thread, self.random.below(64));
            match self.parent.child(&name, Limits::none()) {
                Ok(query) => return query,
                // No thread but this has such names, and this one has no handle left.
                Err(CreateError::Exists { .. }) => {
                    self.stuck_names.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => fault(self.seed, format_args!("{error}")),
            };
        }
    }

    fn step(&mut self) {
        let query = self.query();
        let operator = query.child("scan", Limits::max(1 << 20)).unwrap();
        let record = record(&query).max(record(&operator));
        self.record.fetch_max(record.into(), Ordering::SeqCst);
        self.add(&query);
        self.add(&operator);
        for group in [&query, &operator] {
            if self.random.below(2) == 0 {
                let charged = group.try_charge(1 + self.random.below(40_000));
                self.late.push(charged.expect("a new group has room"));
            }
        }
        match self.random.below(4) {
            0 => {
                operator.remove().unwrap();
                query.remove().unwrap();
                self.add(&operator);
                match operator.try_charge(1) {
                    Err(ChargeError::Removed { .. }) => {}
                    other => fault(self.seed, format_args!("charged when removed: {other:?}")),
                }
                // This charges a removed group as well.
                self.late.push(operator.charge_nowait(100));
                self.removed.extend([query, operator]);
            }
            1 => {
                operator.remove().unwrap();
                drop(operator);
                drop(query);
            }
            2 => drop((operator, query)),
            _ => drop((query, operator)),
        }
        while self.removed.len() > Self::REMOVED_MAX {
            let at = self.random.below(self.removed.len());
            self.add(&self.removed[at]);
            drop(self.removed.swap_remove(at));
        }
        while self.late.len() > Self::LATE_MAX {
            drop(self.late.swap_remove(self.random.below(self.late.len())));
        }
    }
}

/// Groups come and go with charges that are returned later, by names that are used again. Records are used again, too.
#[test]
fn groups_that_come_and_go() {
    const THREADS: u64 = 4;
    const STEPS: usize = 1_000;
    // Each charge or handle keeps a query's record and its operator's. As many records again may wait to be looked at.
    const RECORDS: u64 = 4 * THREADS * (Births::LATE_MAX + Births::REMOVED_MAX) as u64;
    let stage = Stage::begin();
    let seed = stage.seed;
    let memory = memory();
    let tenant = memory.root().child("tenant", Limits::none()).unwrap();
    let [rows, stuck_names, record] = [const { AtomicU64::new(0) }; 3];
    let mut most_removed = 0;
    let mut epochs = 0;
    while epochs < 2 || !stage.is_over() {
        let running = AtomicUsize::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let mut births = Births {
                    parent: &tenant,
                    thread,
                    rows: &rows,
                    stuck_names: &stuck_names,
                    record: &record,
                    seed,
                    random: stage.random(epochs << 8 | thread),
                    late: Vec::new(),
                    removed: Vec::new(),
                };
                let running = &running;
                scope.spawn(move || {
                    let _leaves = Leaves(running);
                    (0..STEPS).for_each(|_| births.step());
                });
            }
            while running.load(Ordering::SeqCst) > 0 {
                let done = rows.load(Ordering::SeqCst) as i64;
                let read = tenant.read(Freshness::Exact).unwrap().get(ROWS).value;
                check!(seed, read >= done, "{done} rows were counted, {read} read");
                memory.tick();
                most_removed = most_removed.max(memory.removed_groups());
            }
        });
        // A record needs one tick for its own end, and one more for its parent's.
        (0..4).for_each(|_| memory.tick());
        let left = memory.removed_groups();
        check!(seed, left == 0, "{left} records wait for nothing");
        check!(seed, tenant.children().is_empty(), "a group has no handle");
        let reading = tenant.read(Freshness::Exact).unwrap();
        let done = rows.load(Ordering::SeqCst) as i64;
        check!(
            seed,
            (reading.get(ROWS).value, reading.own(ROWS)) == (done, done),
            "{done} rows were counted, {:?} read",
            reading.get(ROWS)
        );
        check!(
            seed,
            reading.usage().value == 0,
            "{:?} is charged",
            reading.usage()
        );
        epochs += 1;
    }
    check!(
        seed,
        most_removed as u64 <= RECORDS && record.load(Ordering::SeqCst) <= RECORDS,
        "more than {RECORDS} records: {record:?} were in use, {most_removed} of removed groups"
    );
    tenant.set_max(0);
    check!(seed, memory.reserved() == 0, "lost stock");
    check!(
        seed,
        stuck_names.load(Ordering::SeqCst) == 0,
        "{stuck_names:?} times a name was taken though the last handle was gone"
    );
}

/// What signal handlers work with.
static INTERRUPTED: OnceLock<Site> = OnceLock::new();
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// Bytes that handlers charged to the first query, for threads to return.
static OWED: AtomicUsize = AtomicUsize::new(0);

fn charge_in_handler() {
    let Some(site) = INTERRUPTED.get() else {
        return;
    };
    let handled = HANDLED.fetch_add(1, Ordering::SeqCst);
    let at = handled as usize % site.queries.len();
    let query = &site.queries[at];
    site.add(&query.group);
    query.group.add(BATCHED, 3);
    let bytes = 1 + (handled as usize * 977) % 30_000;
    if at == 0 {
        let charge = |bytes| Ok::<_, NowaitError>(query.group.charge_nowait(bytes));
        if let Ok(charge) = query.truth.charge(bytes, charge) {
            OWED.fetch_add(charge.forget(), Ordering::SeqCst);
        }
    } else if let Ok(charge) = query
        .truth
        .charge(bytes, |bytes| query.group.try_charge_nowait(bytes))
    {
        query.truth.give_back(bytes, || charge.release_nowait());
    }
}

/// Returns what handlers charged.
fn settle_owed(site: &Site) {
    let bytes = OWED.swap(0, Ordering::SeqCst);
    let query = &site.queries[0];
    query.truth.give_back(bytes, || query.group.uncharge(bytes));
}

/// Signals meet threads anywhere, and their handlers charge and count, while limits change and groups come and go.
#[test]
fn signals_beside_all_of_it() {
    const WORKERS: u64 = 3;
    const STEPS: usize = 8_000;
    let stage = Stage::begin();
    let seed = stage.seed;
    let site = INTERRUPTED.get_or_init(|| Site::new(seed));
    signals::on(libc::SIGUSR2, charge_in_handler);
    let [stuck_names, record] = [const { AtomicU64::new(0) }; 2];
    let births = site.memory.root().child("births", Limits::none()).unwrap();
    let mut epochs = 0;
    while epochs < 2 || !stage.is_over() {
        let working = AtomicUsize::new(WORKERS as usize);
        let stop = AtomicBool::new(false);
        let (sender, targets) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let _stop = Stop(&stop);
            for thread in 0..WORKERS {
                let (births, stop, working) = (&births, &stop, &working);
                let mut random = stage.random(epochs << 8 | thread);
                let mut births = Births {
                    parent: births,
                    thread,
                    rows: &site.rows_elsewhere,
                    stuck_names: &stuck_names,
                    record: &record,
                    seed,
                    random: stage.random(epochs << 8 | 50 | thread),
                    late: Vec::new(),
                    removed: Vec::new(),
                };
                let sender = sender.clone();
                scope.spawn(move || {
                    sender.send(signals::this_thread()).unwrap();
                    // A signal needs a thread to go to, also one that found fault.
                    let _stays = Stays(stop);
                    let _leaves = Leaves(working);
                    let mut held = Held::new();
                    for step in 0..STEPS {
                        site.step(&mut random, &mut held);
                        match step % 64 {
                            0 => births.step(),
                            32 => settle_owed(site),
                            _ => {}
                        }
                    }
                    site.leave(held);
                    drop(births);
                });
            }
            let targets: Vec<_> = targets.iter().take(WORKERS as usize).collect();
            scope.spawn(|| {
                let mut random = stage.random(epochs << 8 | 100);
                while working.load(Ordering::SeqCst) > 0 {
                    let at = random.below(3);
                    let most = [TENANT_MAX, DEPARTMENT_MAX][at.min(1)];
                    let group = site.part(at).0;
                    group.set_max(random.below(most as usize) as u64);
                    std::thread::yield_now();
                    group.set_max(most);
                }
            });
            let mut random = stage.random(epochs << 8 | 101);
            while working.load(Ordering::SeqCst) > 0 {
                signals::send(&targets[random.below(targets.len())], libc::SIGUSR2);
                let handled = HANDLED.load(Ordering::SeqCst);
                site.watch(&mut random);
                // One at a time: threads must get on beside their handlers.
                while HANDLED.load(Ordering::SeqCst) == handled
                    && working.load(Ordering::SeqCst) > 0
                {
                    std::thread::yield_now();
                }
            }
        });
        settle_owed(site);
        let tenant = site.tenant.read(Freshness::Exact).unwrap();
        let batched = tenant.get(BATCHED).value;
        let handled = HANDLED.load(Ordering::SeqCst) as i64;
        check!(
            seed,
            batched == 3 * handled,
            "{handled} signals, {batched} counted"
        );
        site.check();
        epochs += 1;
    }
    drop(births);
    site.end();
}

/// Keeps a thread until others have stopped, also after a panic.
struct Stays<'a>(&'a AtomicBool);

impl Drop for Stays<'_> {
    fn drop(&mut self) {
        while !self.0.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
}

/// A process forks beside threads that charge and allocate. The child finds its books whole, and nothing happens to the
/// parent's.
#[test]
fn forks_beside_threads_that_allocate() {
    const THREADS: u64 = 4;
    let stage = Stage::begin();
    let seed = stage.seed;
    let world = World::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (world, stop) = (&world, &stop);
            let mut random = stage.random(thread);
            scope.spawn(move || {
                let mut held: Held = Vec::new();
                let mut blocks: Vec<Vec<u8>> = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    world.step(&mut random, &mut held);
                    blocks.push(vec![1; 1 + random.below(8_000)]);
                    if blocks.len() > 50 {
                        blocks.swap_remove(random.below(50));
                    }
                }
                held.into_iter()
                    .for_each(|(at, charge)| world.notes[at].uncharge(charge));
            });
        }
        let _stop = Stop(&stop);
        let mut random = stage.random(100);
        let mut held: Held = Vec::new();
        let mut forks = 0;
        while forks < 20 || !stage.is_over() {
            forks += 1;
            (0..random.below(60)).for_each(|_| world.step(&mut random, &mut held));
            let mut child = Random(random.next());
            if random.below(8) == 0 {
                let held = &mut held;
                in_child(|| live_in_child(&world, std::mem::take(held), &mut child));
                continue;
            }
            in_child(|| {
                world.memory.tick();
                world.check();
                for (group, _) in &world.groups {
                    let usage = group.read(Freshness::Exact).unwrap().usage().value;
                    let reserved = group.reserved() as i64;
                    check!(
                        seed,
                        reserved == usage,
                        "{group:?}: {reserved} reserved, {usage} charged in the child"
                    );
                }
                (0..child.below(100)).for_each(|_| world.step(&mut child, &mut held));
                world.check();
            });
        }
        held.into_iter()
            .for_each(|(at, charge)| world.notes[at].uncharge(charge));
    });
    world.check();
    let usage = world.memory.root().read(Freshness::Exact).unwrap().usage();
    check!(
        seed,
        usage.value == 0,
        "{usage:?} is charged after all returns"
    );
    for (group, _) in &world.groups {
        group.set_max(0);
    }
    let reserved = world.memory.reserved();
    check!(seed, reserved == 0, "{reserved} bytes of lost stock");
}
