//! `bursar observe`: whether the running kernel has the three problems.

mod command;
mod document;
mod options;
mod people;
mod read;
mod replay;
mod text;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{ffi::OsString, io};

use bursar_observe::probe::{Probe, Probed};
use bursar_observe::recording::{self, RecordingError};
use bursar_observe::seen::Seen;
use bursar_observe::session::{self, Mode, Session};
use bursar_observe::system::now_ns;
use bursar_observe::tracefs::{self, Janitor, Tracefs, Unavailable};

use crate::failure::{Failure, INTERRUPTED};
use crate::interruption;
use crate::options::Global;
use crate::output::Output;
use crate::place::Place;
use command::{End, Message, Running};
use document::Document;
pub use options::Observe;
use people::write;
use text::PEOPLE;

pub const EXAMPLES: &str = "\
Examples:
  bursar observe                          10 s, upkeep and flushes
  bursar observe --seconds 60 -o seen.json
  bursar observe --deep -- make -j8       while a command runs, with page events
  bursar observe --deep --record node7.bursar
  bursar observe --replay node7.bursar    what would other policies change?
  bursar observe --read trace.dat         what did trace-cmd or perf record?
  bursar observe --probe-stat /sys/fs/cgroup/system.slice";

pub const NOTES: &str = "\
Needs root and tracefs (a kernel with CONFIG_EVENT_TRACING), but for --read and
--replay. All that is changed is a private trace buffer, which is removed at the
end, also if this process is killed.

COMMAND's standard output goes to standard error. Its exit code is in the
document. It is ended with SIGTERM when --seconds are over.

Exit codes:
  0    done
  2    wrong usage, COMMAND does not exist, or a file is damaged or of another kind
  3    not available here: the message says which permission or kernel feature
       is missing
  130  interrupted by Ctrl-C or SIGTERM. The document has what was seen";

/// Length of a run without a command.
const SECONDS: u64 = 10;
/// Time between two reads of a probe.
const PROBE_PAUSE: Duration = Duration::from_millis(100);

pub fn observe(observe: &Observe, global: &Global) -> Result<ExitCode, Failure> {
    if let Some(instance) = &observe.tidy {
        tracefs::tidy(instance, observe.tidy_mount.as_deref());
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(recording) = &observe.replay {
        return replay::replay(recording, observe.machine.as_deref(), global);
    }
    if let Some(file) = &observe.read {
        return read::read(file, observe, global);
    }
    let format = global.page_format()?;
    let output = Output::open(global)?;
    if !cfg!(target_os = "linux") {
        return Err(Failure::unavailable(Unavailable::System));
    }
    let probe = observe.probe_stat.as_deref().map(open_probe).transpose()?;
    let mode = match observe.deep {
        true => Mode::Deep,
        false => Mode::Light,
    };
    // Before the run, so that a run is not lost to a wrong path.
    let place = observe.record.as_deref().map(Place::new).transpose()?;
    let tracefs = Tracefs::find().map_err(Failure::unavailable)?;
    // Declared before the session, so that the session ends first.
    let _janitor = janitor(&tracefs)?;
    let mut session = Session::start(tracefs, mode).map_err(Failure::unavailable)?;
    let (sender, messages) = channel();
    let to_stop = sender.clone();
    interruption::catch(move || to_stop.send(Message::Interrupted).is_ok())?;

    let command = start_command(&observe.command, &sender)?;
    let seconds = match (observe.seconds, &command) {
        (None, Some(_)) => None,
        (seconds, _) => Some(seconds.unwrap_or(SECONDS)),
    };
    announce(&session, seconds, mode, global);
    let probing = probe.map(Probing::start);
    let end = watch(&mut session, seconds, &messages)?;
    let probed = probing.and_then(Probing::finish);
    let mut seen = session.finish().map_err(Failure::unavailable)?;
    let is_interrupted = matches!(end, End::Interrupted);
    let ended = command.map(|running| running.end(end, &messages));
    let document = Document::new(&seen, ended, probed, is_interrupted);
    if observe.redact {
        recording::redact(&mut seen);
    }
    let recorded = place.map_or(Ok(()), |place| record(&seen, &place));
    write(&document, PEOPLE, format, output)?;
    recorded.map(|()| match is_interrupted {
        true => ExitCode::from(INTERRUPTED),
        false => ExitCode::SUCCESS,
    })
}

/// Writes a recording to a file.
fn record(seen: &Seen, place: &Place) -> Result<(), Failure> {
    let written = place.write(|file| {
        recording::write(seen, file).map_err(|error| match error {
            RecordingError::Io(error) => error,
            other => io::Error::other(other),
        })
    });
    written.map_err(|error| Failure::unavailable(format!("cannot write {place}: {error}")))
}

fn read_recording(path: &Path) -> Result<Seen, Failure> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    recording::read(&file).map_err(|error| match error {
        RecordingError::Io(error) => unreadable(path, &error),
        error => Failure::usage(format!(
            "{}: {error}; `bursar observe --record FILE` makes recordings",
            path.display()
        )),
    })
}

/// Says that the system refuses to read a file.
fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let message = format!("cannot read {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::unavailable(message),
        _ => Failure::usage(message),
    }
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
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["observe", "--tidy"]).arg(instance);
        if let Some(mounted) = mounted {
            command.arg("--tidy-mount").arg(mounted);
        }
        Janitor::start(command)
    };
    let refused =
        |error| format!("cannot start the process that removes the trace buffer: {error}");
    start().map_err(|error| Failure::unavailable(refused(error)))
}

fn start_command(words: &[OsString], sender: &Sender<Message>) -> Result<Option<Running>, Failure> {
    let [program, arguments @ ..] = words else {
        return Ok(None);
    };
    let sender = sender.clone();
    let running = Running::start(program, arguments, move |status| {
        // The run may have ended before.
        let _ = sender.send(Message::Ended(status));
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
    let mode = match mode {
        Mode::Light => "light",
        Mode::Deep => "deep",
    };
    let machine = session.machine();
    let _ = writeln!(
        io::stderr(),
        "observing Linux {} on {} CPUs {until}, {mode} mode; Ctrl-C ends early",
        machine.kernel,
        machine.cpus
    );
}

/// Polls until the time is over, the command ends, or an interruption comes.
fn watch(
    session: &mut Session,
    seconds: Option<u64>,
    messages: &Receiver<Message>,
) -> Result<End, Failure> {
    let deadline_ns = seconds.map(|seconds| now_ns() + seconds * 1_000_000_000);
    loop {
        let left =
            deadline_ns.map(|deadline| Duration::from_nanos(deadline.saturating_sub(now_ns())));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(End::Time);
        }
        match messages.recv_timeout(session.pause().min(left.unwrap_or(Duration::MAX))) {
            Ok(Message::Interrupted) => return Ok(End::Interrupted),
            Ok(Message::Ended(status)) => return Ok(End::Command(status)),
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

    fn finish(self) -> Option<Probed> {
        drop(self.stop);
        self.thread.join().ok()?.finish()
    }
}
