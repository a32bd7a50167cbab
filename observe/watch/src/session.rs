//! One observation: from enabling events to [`Seen`].

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::path::PathBuf;
use std::time::Duration;

use crate::analysis::Analysis;
use crate::event::{
    CONTEXT_EVENTS, Decoder, FLUSH_EVENTS, HOLD_EVENTS, PAGE_EVENTS, REFRESH, REFRESH_EVENTS,
    TIMER_EVENTS, WAIT_EVENTS, WORK_EVENTS, Wanted,
};
use crate::merge::{Merge, take_page};
use crate::pressure::Pressure;
pub use crate::seen::Mode;
use crate::seen::{Machine, Missing, Seen, Task};
use crate::symbols::Symbols;
use crate::system;
use crate::tracefs::probes::{self, Probes};
use crate::tracefs::{Instance, Tracefs, Trigger, Unavailable};

/// Buffer of a CPU in light mode.
const LIGHT_KB: u64 = 512;
/// Buffer of a CPU in the mode of waits alone: 20,000 waits.
const LOCKS_KB: u64 = 2 * 1024;
/// Buffer of a CPU in deep mode, where memory allows.
const DEEP_KB: u64 = 16 * 1024;
/// Time between two looks at buffers that fill fast.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
/// Buffers take no more than this part of the memory that is available.
const MEMORY_SHARE: u64 = 16;
/// A spin lock that is neither for readers nor for writers.
const SPIN: &str = "flags == 1";
/// Enough stacks to meet the zone locks among other locks.
const STACKS: u32 = 4_000;

impl Mode {
    /// Time between two looks at buffers that fill slowly.
    fn pause(self) -> Duration {
        match self {
            Self::Light => Duration::from_secs(1),
            Self::Locks => Duration::from_millis(200),
            Self::Deep => Duration::from_millis(50),
        }
    }

    fn buffer_kb(self, cpus: usize) -> u64 {
        let wanted = match self {
            Self::Light => LIGHT_KB,
            Self::Locks => LOCKS_KB,
            Self::Deep => DEEP_KB,
        };
        let most = system::available_kb().unwrap_or(u64::MAX) / MEMORY_SHARE / (cpus.max(1) as u64);
        wanted.min(most).max(64)
    }
}

/// A running observation. Dropping it leaves the system as it was.
#[derive(Debug)]
pub struct Session {
    instance: Instance,
    decoder: Decoder,
    merge: Merge,
    analysis: Analysis,
    seen: Seen,
    mode: Mode,
    buffer_kb: u64,
    pause: Duration,
    /// Tasks that flushed, as far as they still ran.
    tasks: BTreeMap<i32, Option<Task>>,
    /// Totals at the beginning.
    pressure: Option<Pressure>,
    // After the instance, which has them enabled.
    probes: Option<Probes>,
    // Last: the file system is unmounted after all else is removed.
    tracefs: Tracefs,
}

/// Directory of the instance and mount point that remain if this process is killed.
pub fn remains(tracefs: &Tracefs) -> (PathBuf, Option<PathBuf>) {
    (
        Instance::place(tracefs),
        tracefs.mounted().map(PathBuf::from),
    )
}

/// Looks up the names of those tasks that were not looked up before.
fn name(tasks: &mut BTreeMap<i32, Option<Task>>, pids: impl Iterator<Item = i32>) {
    for pid in pids {
        (tasks.entry(pid)).or_insert_with(|| system::tasks([pid]).pop());
    }
}

impl Session {
    /// Enables the events of a mode and begins.
    pub fn start(tracefs: Tracefs, mode: Mode) -> Result<Self, Unavailable> {
        let machine = system::machine();
        let buffer_kb = mode.buffer_kb(machine.cpus);
        let instance = Instance::create(&tracefs, buffer_kb)?;
        let analysis = Analysis::new(&machine);
        let mut session = Self {
            instance,
            decoder: Decoder::default(),
            merge: Merge::default(),
            analysis,
            seen: Seen {
                deep: mode == Mode::Deep,
                locks: mode == Mode::Locks,
                machine,
                ..Seen::default()
            },
            mode,
            buffer_kb,
            pause: mode.pause(),
            tasks: BTreeMap::new(),
            pressure: None,
            probes: None,
            tracefs,
        };
        if session.enable_all(mode) == 0 {
            return Err(Unavailable::Events);
        }
        session.pressure = Pressure::read();
        session.seen.start_ns = system::now_ns();
        session.instance.start()?;
        Ok(session)
    }

    /// The observed machine.
    pub fn machine(&self) -> &Machine {
        &self.seen.machine
    }

    /// Time until the buffers must be looked at again. Shorter while they fill fast.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// Takes what the buffers hold. Call it every [`Self::pause`].
    pub fn poll(&mut self) -> Result<(), Unavailable> {
        let Self {
            instance,
            decoder,
            merge,
            seen,
            ..
        } = self;
        let mut filled: BTreeMap<u32, u64> = BTreeMap::new();
        instance.read(|layout, cpu, page| {
            *filled.entry(cpu).or_default() += page.len() as u64;
            let decode = |time, record: &[u8]| decoder.decode(time, cpu, record);
            let (events, losses) = (&mut merge.events, &mut seen.losses);
            take_page(layout, cpu, page, events, losses, decode);
        })?;
        let fullest = filled.values().max().map_or(0, |bytes| bytes / 1024);
        self.pause = match fullest {
            kb if kb > self.buffer_kb / 8 => (self.pause / 4).max(SHORTEST_PAUSE),
            kb if kb < self.buffer_kb / 64 => (self.pause * 2).min(self.mode.pause()),
            _ => self.pause,
        };
        let analysis = &mut self.analysis;
        self.merge.complete(|event| analysis.take(event));
        // A task may end before the run does.
        name(&mut self.tasks, self.analysis.flushing());
        Ok(())
    }

    /// Ends the observation.
    pub fn finish(mut self) -> Result<Seen, Unavailable> {
        self.instance.stop()?;
        self.seen.end_ns = system::now_ns();
        self.poll()?;
        let kswapds = match self.mode {
            Mode::Deep => system::kswapds(),
            Mode::Light | Mode::Locks => BTreeSet::new(),
        };
        let Self {
            instance,
            mut merge,
            mut analysis,
            mut seen,
            mut tasks,
            pressure,
            ..
        } = self;
        merge.rest(|event| analysis.take(event));
        analysis.finish(&mut seen);
        for (cpu, count) in instance.lost() {
            seen.losses.events_lost += count;
            seen.losses.cpus.push(cpu);
        }
        let pids: BTreeSet<_> = seen.flushes.iter().map(|flush| flush.pid).collect();
        name(&mut tasks, pids.iter().copied());
        seen.tasks = tasks.into_values().flatten().collect();
        seen.tasks.retain(|task| pids.contains(&task.pid));
        let ids: BTreeSet<_> = seen.flushes.iter().map(|flush| flush.cgroup).collect();
        seen.cgroups = system::cgroups(&ids.into_iter().collect::<Vec<_>>());
        seen.mark_workers();
        seen.mark_kswapd(|pid| kswapds.contains(&pid));
        seen.pressure = pressure.and_then(|before| Pressure::read()?.since(&before));
        Ok(seen)
    }

    /// Returns the number of events that were enabled.
    fn enable_all(&mut self, mode: Mode) -> usize {
        // The list is long, and in light mode only old kernels need it: those whose filters take no names.
        let symbols = &LazyCell::new(Symbols::read);
        let of_function = |name: &str, address: fn(&Symbols) -> Option<u64>| {
            let by_name = format!("function.function == {name}");
            let by_address = move || Some(format!("function == {:#x}", address(symbols)?));
            iter::once(by_name).chain(iter::once_with(by_address).flatten())
        };
        let work = || of_function("vmstat_update", |it| it.vmstat_update);
        let timer = || of_function("delayed_work_timer_fn", |it| it.delayed_work_timer_fn);
        let mut enabled = 0;
        if mode == Mode::Locks {
            return self.enable_waits(symbols.zone_lockers.clone());
        }
        for wanted in &WORK_EVENTS {
            enabled += self.enable(wanted, work());
        }
        for wanted in &TIMER_EVENTS {
            enabled += self.enable(wanted, timer());
        }
        for wanted in &FLUSH_EVENTS {
            enabled += self.enable(wanted, iter::empty());
        }
        if enabled > 0 {
            enabled += self.enable_probes();
        }
        if mode == Mode::Deep {
            for wanted in PAGE_EVENTS
                .iter()
                .chain(&HOLD_EVENTS)
                .chain(&CONTEXT_EVENTS)
            {
                enabled += self.enable(wanted, iter::empty());
            }
            enabled += self.enable_waits(symbols.zone_lockers.clone());
        }
        enabled
    }

    /// Waits, with stacks that tell which lock it is.
    fn enable_waits(&mut self, zone_lockers: Vec<(u64, u64)>) -> usize {
        let [begin, end] = &WAIT_EVENTS;
        let stack = self.instance.format("ftrace", "kernel_stack");
        if let (Some(stack), false) = (stack, zone_lockers.is_empty()) {
            self.decoder.learn_stack(&stack, zone_lockers);
            let trigger = Trigger {
                count: STACKS,
                condition: SPIN,
            };
            if self.instance.trigger(begin, trigger).is_err() {
                self.miss("stacks of waiters", begin.removes);
            }
        } else {
            self.miss(
                "names of waiters' functions (/proc/kallsyms)",
                begin.removes,
            );
        }
        self.enable(begin, iter::once(SPIN.to_owned())) + self.enable(end, iter::empty())
    }

    /// Times `refresh_cpu_vm_stats()` itself, if it is a function of its own and the kernel permits probes.
    fn enable_probes(&mut self) -> usize {
        const FUNCTION: &str = "refresh_cpu_vm_stats";
        let root = self.tracefs.root();
        let set = match probes::traceable(root, FUNCTION) {
            Some(name) => Probes::set(root, &Instance::place(&self.tracefs), &name)
                .map_err(|error| format!("probes of {FUNCTION}() ({error})")),
            None => Err(format!(
                "{FUNCTION}() as a function that can be traced (available_filter_functions)"
            )),
        };
        match set {
            Ok(probes) => {
                let group = probes.group().to_owned();
                self.probes = Some(probes);
                let enabled = REFRESH_EVENTS
                    .iter()
                    .map(|wanted| self.enable_in(&group, wanted, iter::empty()));
                enabled.sum()
            }
            Err(what) => {
                self.miss(&what, REFRESH);
                0
            }
        }
    }

    fn enable(&mut self, wanted: &Wanted, filters: impl Iterator<Item = String>) -> usize {
        self.enable_in(wanted.system, wanted, filters)
    }

    fn enable_in(
        &mut self,
        system: &str,
        wanted: &Wanted,
        filters: impl Iterator<Item = String>,
    ) -> usize {
        let name = format!("{system}:{}", wanted.name);
        let Some(format) = self.instance.format(system, wanted.name) else {
            self.miss(&format!("event {name}"), wanted.removes);
            return 0;
        };
        match self.decoder.learn(wanted, &format) {
            Ok(fields) => {
                for field in fields {
                    self.miss(&format!("field {field} of {name}"), wanted.removes);
                }
            }
            Err(field) => {
                self.miss(&format!("field {field} of {name}"), wanted.removes);
                return 0;
            }
        }
        match self.instance.enable(system, wanted.name, filters) {
            Ok(()) => 1,
            Err(error) => {
                self.miss(&format!("event {name} ({error})"), wanted.removes);
                0
            }
        }
    }

    fn miss(&mut self, what: &str, removes: &str) {
        if !removes.is_empty() {
            self.seen.missing.push(Missing {
                what: what.to_owned(),
                removes: removes.to_owned(),
            });
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::{Read, Write};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// The file whose readers flush, where the kernel tells of their requests.
    fn observed_stat(root: &Path) -> Option<PathBuf> {
        let stat = system::memory_mount()?.join("memory.stat");
        let event = root.join("events/memcg/memcg_flush_stats");
        (stat.exists() && event.exists()).then_some(stat)
    }

    /// A shell that has read a file once, and ends with its input.
    fn reader(file: &Path) -> Child {
        let mut shell = Command::new("sh");
        let mut shell = shell
            .args(["-c", "read line < \"$0\"; echo; read line; true"])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let output = shell.stdout.as_mut().expect("piped");
        output.read_exact(&mut [0]).expect("its answer");
        shell
    }

    #[test]
    fn a_flusher_that_ends_before_the_run_has_its_name() {
        const NAME: &str = "a_flusher_that_ends_before_the_run_has_its_name";
        let found = Tracefs::find().ok().and_then(|tracefs| {
            let stat = observed_stat(tracefs.root())?;
            Some((tracefs, stat))
        });
        let Some((tracefs, stat)) = found else {
            eprintln!("{NAME}: left out, without tracefs or the event of requests");
            return;
        };
        let mut session = Session::start(tracefs, Mode::Light).expect("a session");
        let mut flusher = reader(&stat);
        // The events of a look are complete with the next one.
        session.poll().expect("a look");
        session.poll().expect("a look");
        drop(flusher.stdin.take());
        flusher.wait().expect("it ends");
        let seen = session.finish().expect("the end");
        let pid = flusher.id() as i32;
        assert!(seen.flushes.iter().any(|flush| flush.pid == pid));
        let named = seen.tasks.iter().filter(|it| it.pid == pid);
        let names: Vec<_> = named.map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["sh"]);
    }

    #[test]
    fn a_task_that_ends_keeps_the_name_that_was_looked_up_before() {
        let mut tasks = BTreeMap::new();
        let mut reader = Command::new("cat");
        let reader = reader.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut reader = reader.spawn().expect("a task");
        let pid = reader.id() as i32;
        // Once it answers it has its own name, and not that of this program any more.
        let (input, output) = (reader.stdin.as_mut(), reader.stdout.as_mut());
        input.expect("piped").write_all(b"x").expect("an input");
        output
            .expect("piped")
            .read_exact(&mut [0])
            .expect("the answer");
        name(&mut tasks, iter::once(pid));
        // It ends with its input.
        drop(reader.stdin.take());
        reader.wait().expect("it ends");
        assert!(system::tasks([pid]).is_empty());
        name(&mut tasks, iter::once(pid));
        let named: Vec<_> = tasks.into_values().flatten().collect();
        assert_eq!((named.len(), named[0].name.as_str()), (1, "cat"));
    }
}
