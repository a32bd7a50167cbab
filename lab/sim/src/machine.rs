//! Simulated machine as a [`Machine`].

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bursar_machine::pages::{ReserveError, ReserveOptions, Span};
use bursar_machine::{Machine, OutOfMemory, SPINS, Shard};
use bursar_rig::timer::{Timer, TimerKind};
use bursar_rig::{Forks, Tasks, Watch, Watched};

use crate::coroutine::{Installed, Routine};
use crate::current::{current_shard, relax, sleep};
use crate::engine::{ENGINE, Engine, with_engine};
use crate::explored::Explored;
use crate::failure::{Failure, message_of};
use crate::fence::fence;
use crate::frames::{SimFrames, reserve};
use crate::locks::{SimEvent, SimMutex, SimSpin};
use crate::operation::fork;
use crate::operation::{SimOperation, operation};
use crate::settings::{SectionKind, Settings};
use crate::slot::SimSlot;
use crate::stacks::SimStacks;
use crate::strategy::Decision;
use crate::task::number_of;
use crate::word::SimWord;
use crate::world::Counts;

/// Simulated machine that is running: one on each thread of the host at a time.
///
/// ```
/// use bursar_machine::{AtomicWord, Machine, MemoryOrder};
/// use bursar_rig::Tasks;
/// use bursar_sim::{Settings, Simulator, Topology};
///
/// let simulator = Simulator::new(Settings::new(Topology::new(384, 2, 1000), 1));
/// let machine = simulator.machine();
/// let word = <bursar_sim::Sim as Machine>::Word::new(0);
/// let add = || { word.fetch_add(1, MemoryOrder::Full); };
/// machine.run((0..384).map(|_| Box::new(add) as Box<dyn FnOnce() + Send>).collect());
/// assert_eq!(word.load(MemoryOrder::Relaxed), 384);
/// // They all came at once, so the last waited for 383 others.
/// assert!(machine.now_ns() > 384 * 10);
/// ```
pub struct Simulator {
    /// `Some` until dropped.
    engine: Option<Installed<Engine>>,
}

impl Drop for Simulator {
    /// # Panics
    /// If a run is under way: the check of a watched run may own the simulator, and must not take it away.
    fn drop(&mut self) {
        let is_running = self.engine().world.run.is_running.get();
        let engine = self.engine.take();
        if is_running {
            std::mem::forget(engine);
            panic!("a simulator was dropped while it ran");
        }
    }
}

impl fmt::Debug for Simulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.engine().world.settings;
        f.debug_tuple("Simulator").field(settings).finish()
    }
}

impl Simulator {
    /// Starts a machine on this thread.
    ///
    /// # Panics
    /// If one runs on this thread already, or if there can be no such topology.
    pub fn new(settings: Settings) -> Self {
        Self {
            engine: Some(Installed::new(&ENGINE, Engine::new(settings))),
        }
    }

    fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("there until dropped").get()
    }

    /// Machine for the code that runs on it.
    pub fn machine(&self) -> Sim {
        let settings = &self.engine().world.settings;
        Sim(Arc::new(Shape {
            cpus: settings.topology.cpus,
            nodes: settings.topology.nodes,
            node_of: (0..settings.topology.cpus)
                .map(|cpu| settings.topology.node_of(cpu))
                .collect(),
            sections: settings.sections,
        }))
    }

    /// Hash of all events so far and their order.
    pub fn event_hash(&self) -> u64 {
        self.engine().world.hash.get()
    }

    /// Counts of the machine so far.
    pub fn counts(&self) -> Counts {
        let engine = self.engine();
        Counts {
            transfers: engine.world.lines.transfers(),
            faults: engine.timed().map_or(0, |timed| timed.faults.struck()),
            ..engine.world.counts.get()
        }
    }

    /// Runs `scenario`, which may start tasks, to its end.
    ///
    /// # Errors
    /// The first failure, of the scenario or of a task. Values that they held then are given up, not dropped.
    pub fn try_run(&self, scenario: impl FnOnce(&Sim)) -> Result<(), Failure> {
        let machine = self.machine();
        let mut result = Ok(());
        let body = || {
            result = catch_unwind(AssertUnwindSafe(|| scenario(&machine))).map_err(|payload| {
                match payload.downcast::<Failure>() {
                    Ok(failure) => *failure,
                    Err(payload) => Failure::Panic(message_of(&*payload)),
                }
            });
        };
        // SAFETY: dropped at the end of this function, before the values that `body` borrows.
        let mut routine = unsafe { Routine::new(Box::new(body)) }
            .unwrap_or_else(|error| panic!("no stack for a scenario: {error}"));
        let has_ended = routine.resume();
        drop(routine);
        if has_ended {
            return result;
        }
        let failure = self.engine().world.run.failure.take();
        Err(failure.expect("a run that is given up has failed").0)
    }

    /// Choices of an exploration so far.
    pub fn take_decisions(&self) -> Vec<Decision> {
        let explored = self.engine().explored();
        explored.map_or_else(Vec::new, Explored::take_decisions)
    }
}

#[derive(Debug)]
struct Shape {
    cpus: usize,
    nodes: usize,
    node_of: Vec<usize>,
    sections: SectionKind,
}

/// Machine in virtual time; see the crate. All values that one [`Simulator`] gave are the same machine. They work on
/// its thread only.
#[derive(Clone, Debug)]
pub struct Sim(Arc<Shape>);

impl Machine for Sim {
    type Word = SimWord;
    type Mutex<T: Send + 'static> = SimMutex<T>;
    type Spin<T: Send + 'static> = SimSpin<T>;
    type Event = SimEvent;
    type Slot = SimSlot;
    type Shared<T: Send + Sync + 'static> = Arc<T>;
    type Operation = SimOperation;
    type Frames = SimFrames;
    type Stacks = SimStacks;

    fn share<T: Send + Sync + 'static>(value: T) -> Arc<T> {
        Arc::new(value)
    }

    fn cpus(&self) -> usize {
        self.0.cpus
    }

    fn nodes(&self) -> usize {
        self.0.nodes
    }

    fn node_of(&self, shard: Shard) -> Option<usize> {
        self.0.node_of.get(shard.index()).copied()
    }

    #[inline]
    fn current_shard(&self) -> Shard {
        current_shard()
    }

    fn slots(&self, words: usize) -> Result<Vec<SimSlot>, OutOfMemory> {
        Ok(vec![SimSlot::new(self.0.cpus, words, self.0.sections)])
    }

    fn reserve(&self, options: &ReserveOptions) -> Result<(SimFrames, Span), ReserveError> {
        reserve(options, self.0.nodes)
    }

    /// Fixed, because simulated pages have no memory behind them. Loads that need more reserve it themselves.
    fn memory_bytes(&self) -> u64 {
        1 << 30
    }

    fn touch_frames(&self, count: u64) {
        with_engine(|engine| engine.spend(count * engine.costs().frame_record_ns));
    }

    fn stacks(&self, capacities: &[u16]) -> Result<SimStacks, OutOfMemory> {
        Ok(SimStacks::new(self.0.cpus, capacities, self.0.sections))
    }

    #[inline]
    fn fence(&self) {
        if self.0.sections == SectionKind::Restartable {
            with_engine(fence);
        }
    }

    /// Says nothing: an explorer repeats the same bug in thousands of schedules. Counts of events tell.
    fn warn(&self, _message: fmt::Arguments<'_>) {}

    #[inline]
    fn now_ns(&self) -> u64 {
        with_engine(|engine| {
            engine.spend(engine.costs().clock_ns);
            engine.now_ns()
        })
        .unwrap_or(0)
    }

    #[inline]
    fn relax(&self, round: u32) {
        relax(round);
    }

    fn spins(&self) -> u32 {
        // In an exploration each round is a step, and the sleep is what there is to explore.
        let is_explored = with_engine(|engine| engine.explored().is_some());
        if is_explored.unwrap_or(false) {
            1
        } else {
            SPINS
        }
    }

    fn sleep_until(&self, deadline_ns: u64) {
        with_engine(|engine| {
            if !engine.is_scheduled() {
                return engine.world.clock.advance_to(deadline_ns);
            }
            // An exploration has no time in which to be late.
            let slack_ns = engine.timed().map_or(0, |_| engine.costs().timer_slack_ns);
            engine.spend(engine.costs().syscall_ns);
            sleep(
                engine,
                Timer {
                    kind: TimerKind::Exact,
                    deadline_ns: deadline_ns.saturating_add(slack_ns),
                },
            );
        });
    }

    #[inline]
    fn task(&self) -> u64 {
        with_engine(|engine| number_of(engine.world.tasks.current.get())).unwrap_or(u64::MAX)
    }

    #[inline]
    fn operation(&self) -> SimOperation {
        operation()
    }

    fn forks(&self) -> u64 {
        with_engine(Engine::forks).unwrap_or(0)
    }
}

/// Page of a simulated machine.
#[derive(Debug)]
pub struct SimPage(());

impl Drop for SimPage {
    fn drop(&mut self) {
        with_engine(|engine| engine.spend(engine.costs().page_free_ns));
    }
}

/// Maximum time of computing after which a task checks for preemption, virtual nanoseconds.
const COMPUTE_NS: u64 = 1_000_000;

impl Tasks for Sim {
    type PageMemory = SimPage;

    /// Places the tasks on the CPUs in turn.
    ///
    /// # Panics
    /// With the panic of a task, or with the [`Failure`] that names the tasks if tasks wait without end. Tasks that
    /// have not ended then are given up where they stopped, with the locks that they hold. The machine runs no more,
    /// and an attempt to take such a lock panics. [`Simulator::try_run`] gives up the scenario as well.
    fn run<'scope>(&self, tasks: Vec<Box<dyn FnOnce() + Send + 'scope>>) {
        let tasks = tasks.into_iter().map(|task| (None, task)).collect();
        with_engine(|engine| engine.run(tasks, None))
            .expect("a machine runs while its simulator does");
    }

    fn touch_page(&self, _mark: u64) -> SimPage {
        with_engine(|engine| engine.pass(engine.costs().page_touch_ns));
        SimPage(())
    }

    fn touch_pages(&self, _mark: u64, pages: u64) -> Vec<SimPage> {
        with_engine(|engine| engine.pass(pages * engine.costs().page_touch_ns));
        (0..pages).map(|_| SimPage(())).collect()
    }

    #[inline]
    fn compute(&self, duration_ns: u64) {
        with_engine(|engine| {
            let mut left_ns = engine.timed().map_or(0, |_| duration_ns);
            while left_ns > 0 {
                let some_ns = left_ns.min(COMPUTE_NS);
                engine.pass(some_ns);
                left_ns -= some_ns;
            }
        });
    }
}

impl Watched for Sim {
    fn run_watched<'scope>(
        &self,
        check: Box<dyn FnMut() + 'scope>,
        tasks: Vec<Box<dyn FnOnce() + Send + 'scope>>,
    ) {
        let tasks = tasks.into_iter().map(|task| (None, task)).collect();
        with_engine(|engine| engine.run(tasks, Some(check)))
            .expect("a machine runs while its simulator does");
    }

    /// # Panics
    /// If the machine does not explore: in virtual time tasks run ahead, so whether one waits is known only later.
    fn last_step(&self) -> Watch {
        with_engine(|engine| {
            let explored = engine.explored();
            explored.expect("explored").last_step()
        })
        .expect("a machine runs while its simulator does")
    }

    #[inline]
    fn changes(&self) -> u64 {
        with_engine(|engine| engine.world.changes.get())
            .expect("a machine runs while its simulator does")
    }
}

impl Forks for Sim {
    /// # Panics
    /// If the machine does not explore.
    fn fork(&self) {
        with_engine(fork).expect("a machine runs while its simulator does");
    }
}
