//! `bursar-observe watch`: whether the running kernel has the three problems.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bursar_term::failure::{Failure, INTERRUPTED};
use bursar_term::interruption;
use bursar_term::options::{Global, whole};
use bursar_term::output::Output;
use bursar_term::place::Place;
use bursar_watch::probe::Probe;
use bursar_watch::recording;
use bursar_watch::session::{self, Mode, Session};
use bursar_watch::system::now_ns;
use bursar_watch::tracefs::{Janitor, Tracefs, Unavailable};
use clap::Args;

use crate::command::Running;
use crate::document::Document;
use crate::form;
use crate::recordings;
use crate::text::{TITLE, text};

pub const EXAMPLES: &str = "\
Examples:
  bursar-observe watch                          10 s, upkeep and flushes
  bursar-observe watch --seconds 60 -o seen.json
  bursar-observe watch --locks --seconds 60     waits for locks alone, on a production machine
  bursar-observe watch --deep -- make -j8       while a command runs, with page events
  bursar-observe watch --deep --record node7.bursar
  bursar-observe watch --probe-stat /sys/fs/cgroup/system.slice";

pub const NOTES: &str = "\
Needs root and tracefs (a kernel with CONFIG_EVENT_TRACING). All that is changed
is a private trace buffer, which is removed at the end, also if this process is
killed.

COMMAND's standard output goes to standard error. Its exit code is in the
document. It is ended with SIGTERM when --seconds are over.";

#[derive(Debug, Args)]
pub struct Watch {
    /// Trace upkeep and flushes only, which costs next to nothing. The default
    #[arg(long, conflicts_with_all = ["locks", "deep"])]
    light: bool,
    /// Trace waits for spin locks alone: two events a wait. Answers for the zone lock, and slows nothing
    #[arg(long, conflicts_with = "deep")]
    locks: bool,
    /// Also trace each page under a zone lock, and waits for spin locks. Slows page frees while it runs
    #[arg(long)]
    deep: bool,
    /// Observe for N seconds at most [default: until COMMAND ends, or 10]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole(1..=86_400))]
    seconds: Option<u64>,
    /// Also read memory.stat of this cgroup ten times a second, for latency and staleness
    #[arg(long, value_name = "DIRECTORY")]
    probe_stat: Option<PathBuf>,
    /// Also write a recording, for `read` and `replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Leave names of processes and cgroups out of the recording
    #[arg(long, requires = "record")]
    redact: bool,
    /// Command to run meanwhile
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The end of a run.
#[derive(PartialEq)]
enum End {
    Time,
    Interrupted,
    Command,
}

/// Length of a run without a command, seconds.
const SECONDS: u64 = 10;
/// Time between two reads of a probe.
const PROBE_PAUSE: Duration = Duration::from_millis(100);

pub fn watch(watch: &Watch, global: &Global) -> Result<ExitCode, Failure> {
    let format = global.format()?;
    let output = Output::open(global)?;
    if !cfg!(target_os = "linux") {
        return Err(Failure::unavailable(Unavailable::System));
    }
    let probe = watch.probe_stat.as_deref().map(open_probe).transpose()?;
    let mode = match (watch.locks, watch.deep) {
        (true, _) => Mode::Locks,
        (_, true) => Mode::Deep,
        _ => Mode::Light,
    };
    // Before the run, so that a run is not lost to a wrong path.
    let place = watch.record.as_deref().map(Place::new).transpose()?;
    output.refuse_to_share(place.as_ref())?;
    let tracefs = Tracefs::find().map_err(Failure::unavailable)?;
    // Both are declared before the session, so that tracing ends first. A run that fails ends its command.
    let _janitor = janitor(&tracefs)?;
    let command;
    let mut session = Session::start(tracefs, mode).map_err(Failure::unavailable)?;
    let (sender, messages) = channel();
    let to_stop = sender.clone();
    interruption::catch(move || to_stop.send(End::Interrupted).is_ok())?;

    command = start_command(&watch.command, &sender)?;
    let seconds = match (watch.seconds, &command) {
        (None, Some(_)) => None,
        (seconds, _) => Some(seconds.unwrap_or(SECONDS)),
    };
    announce(&session, seconds, mode, global);
    let probing = probe.map(Probing::start);
    let end = poll(&mut session, seconds, &messages)?;
    let probe = probing.and_then(Probing::finish);
    let mut seen = session.finish().map_err(Failure::unavailable)?;
    if let Some(probe) = probe {
        probe.finish(&mut seen);
    }
    let is_interrupted = end == End::Interrupted;
    let ended = command.map(Running::end);
    let document = Document::new(&seen, ended, is_interrupted);
    if watch.redact {
        recording::redact(&mut seen);
    }
    let recorded = place.map_or(Ok(()), |place| recordings::write(&seen, &place));
    form::write(format, &document, TITLE, text, output)?;
    recorded.map(|()| match is_interrupted {
        true => ExitCode::from(INTERRUPTED),
        false => ExitCode::SUCCESS,
    })
}

fn open_probe(directory: &Path) -> Result<Probe, Failure> {
    Probe::open(directory).map_err(|error| {
        let message = format!(
            "cannot probe {}: {error}; name a directory of a memory cgroup other than the root",
            directory.display()
        );
        match error.kind() {
            io::ErrorKind::PermissionDenied => Failure::unavailable(message),
            _ => Failure::usage(message),
        }
    })
}

/// Starts this program again as the process that tidies up when this one is gone.
fn janitor(tracefs: &Tracefs) -> Result<Janitor, Failure> {
    let start = || {
        let (instance, mounted) = session::remains(tracefs);
        let mut command = process::Command::new(std::env::current_exe()?);
        command.arg("tidy").arg(instance);
        if let Some(mounted) = mounted {
            command.arg("--mount").arg(mounted);
        }
        Janitor::start(command)
    };
    let refused =
        |error| format!("cannot start the process that removes the trace buffer: {error}");
    start().map_err(|error| Failure::unavailable(refused(error)))
}

fn start_command(words: &[OsString], sender: &Sender<End>) -> Result<Option<Running>, Failure> {
    let [program, arguments @ ..] = words else {
        return Ok(None);
    };
    let sender = sender.clone();
    let running = Running::start(program, arguments, move || {
        // The run may have ended before.
        let _ = sender.send(End::Command);
    });
    let refused = |error| Failure::usage(format!("cannot run `{}`: {error}", program.display()));
    running.map(Some).map_err(refused)
}

fn announce(session: &Session, seconds: Option<u64>, mode: Mode, global: &Global) {
    if global.quiet || !(global.verbose || io::stderr().is_terminal()) {
        return;
    }
    let until = match seconds {
        Some(seconds) => format!("for {seconds} s"),
        None => "until the command ends".to_owned(),
    };
    let mode = mode.name();
    let machine = session.machine();
    let _ = writeln!(
        io::stderr(),
        "observing Linux {} on {} CPUs {until}, {mode} mode; Ctrl-C ends early",
        machine.kernel,
        machine.cpus
    );
}

/// Polls until the time is over, the command ends, or an interruption comes.
fn poll(
    session: &mut Session,
    seconds: Option<u64>,
    messages: &Receiver<End>,
) -> Result<End, Failure> {
    let deadline_ns = seconds.map(|seconds| now_ns() + seconds * 1_000_000_000);
    loop {
        let left =
            deadline_ns.map(|deadline| Duration::from_nanos(deadline.saturating_sub(now_ns())));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(End::Time);
        }
        match messages.recv_timeout(session.pause().min(left.unwrap_or(Duration::MAX))) {
            Ok(end) => return Ok(end),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        session.poll().map_err(Failure::unavailable)?;
    }
}

/// A thread that reads `memory.stat`.
struct Probing {
    stop: Sender<()>,
    thread: JoinHandle<Probe>,
}

impl Probing {
    fn start(mut probe: Probe) -> Self {
        let (stop, stopped) = channel();
        let thread = thread::spawn(move || {
            // A cgroup that is removed ends the probe.
            while probe.read().is_ok()
                && stopped.recv_timeout(PROBE_PAUSE) == Err(RecvTimeoutError::Timeout)
            {}
            probe
        });
        Self { stop, thread }
    }

    fn finish(self) -> Option<Probe> {
        drop(self.stop);
        self.thread.join().ok()
    }
}
