//! Recordings: what a run observed, as a file. `observe/docs/recording-format.md` describes it.
//!
//! A file may come from a stranger. Its length is bounded before it is read, each list while it is read, and all numbers before
//! anything computes with them. So [`read`] returns an error for a bad file, and a reader of its result needs no checks.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};

use serde::{Deserialize, Serialize};

use crate::seen::Seen;
use crate::shown::{is_obeyed, shown};
use crate::writer::Writer;

/// Name of the format, and its version.
const FORMAT: &str = "bursar-recording-1";
/// Greatest length of a file.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Greatest time or count: 73 years in nanoseconds. Two of them have a sum.
pub const NUMBER_MAX: u64 = 1 << 61;
/// Greatest number of CPUs.
pub(crate) const CPUS_MAX: u32 = 1 << 16;
/// Greatest number of zones.
const ZONES_MAX: usize = 4_096;
/// Greatest number of ticks a second.
const HZ_MAX: u32 = 10_000;
/// Greatest length of a text.
const TEXT_BYTES_MAX: usize = 4_096;

/// Error of [`read`] and [`write()`].
#[derive(Debug)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file cannot be read or written.
    Io(io::Error),
    /// The file is longer than a recording may be.
    TooLong,
    /// The file is no recording, or is cut off. The text names the place.
    Form(String),
    /// A value is out of its range.
    OutOfRange(&'static str),
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::TooLong => write!(
                f,
                "it is longer than a recording may be ({FILE_BYTES_MAX} bytes)"
            ),
            // serde quotes what the file has.
            Self::Form(why) => write!(f, "it is no whole recording: {}", shown(&why.to_string())),
            Self::OutOfRange(what) => write!(f, "a value is out of range: {what}"),
        }
    }
}

impl std::error::Error for RecordingError {}

impl From<serde_json::Error> for RecordingError {
    fn from(error: serde_json::Error) -> Self {
        match error.is_io() {
            true => Self::Io(error.into()),
            false => Self::Form(error.to_string()),
        }
    }
}

/// The format of a file. A file of another one is refused at once.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Format;

impl TryFrom<String> for Format {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        match name == FORMAT {
            true => Ok(Self),
            false => Err(format!("its format is not `{FORMAT}`")),
        }
    }
}

#[derive(Serialize)]
struct Written<'a> {
    format: &'static str,
    seen: &'a Seen,
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "format")]
    _format: Format,
    seen: Seen,
}

/// Writes a recording.
///
/// # Errors
/// The file cannot be written, or a value is one that [`read`] would refuse.
pub fn write(seen: &Seen, file: impl Write) -> Result<(), RecordingError> {
    check(seen)?;
    let mut file = BufWriter::new(file);
    let format = FORMAT;
    serde_json::to_writer(&mut file, &Written { format, seen })?;
    file.write_all(b"\n").map_err(RecordingError::Io)?;
    file.flush().map_err(RecordingError::Io)
}

/// Reads a recording.
///
/// # Errors
/// The file cannot be read, or is no recording of this version.
pub fn read(file: &File) -> Result<Seen, RecordingError> {
    let length = file.metadata().map_err(RecordingError::Io)?.len();
    if length > FILE_BYTES_MAX {
        return Err(RecordingError::TooLong);
    }
    // A pipe has no length.
    parse(BufReader::new(file.take(FILE_BYTES_MAX)))
}

/// Reads a recording from any source of bounded length.
///
/// # Errors
/// See [`read`].
pub fn parse(file: impl Read) -> Result<Seen, RecordingError> {
    let Document { mut seen, .. } = serde_json::from_reader(file)?;
    sanitize(&mut seen);
    check(&seen)?;
    seen.sort();
    seen.mark_workers();
    seen.recorded_by = Some(Writer::Bursar);
    Ok(seen)
}

/// Puts pseudonyms in place of the names of processes and cgroups. Equal names stay equal, and cgroups keep their places in the
/// tree. Of the kernel's release the numbers remain, because a suffix may name a company.
pub fn redact(seen: &mut Seen) {
    let release = &mut seen.machine.kernel;
    let numbers = release.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    release.truncate(numbers.unwrap_or(release.len()));
    let mut processes = Pseudonyms::new("process");
    for task in &mut seen.tasks {
        task.name = processes.of(&task.name);
    }
    let mut cgroups = Pseudonyms::new("cgroup");
    for cgroup in &mut seen.cgroups {
        let part = |part: &str| match part {
            "" => String::new(),
            part => cgroups.of(part),
        };
        let parts: Vec<String> = cgroup.path.split('/').map(part).collect();
        cgroup.path = parts.join("/");
    }
    seen.is_redacted = true;
}

/// Pseudonyms of one kind.
struct Pseudonyms {
    prefix: &'static str,
    given: BTreeMap<String, usize>,
}

impl Pseudonyms {
    fn new(prefix: &'static str) -> Self {
        let given = BTreeMap::new();
        Self { prefix, given }
    }

    fn of(&mut self, name: &str) -> String {
        let next = self.given.len() + 1;
        let number = *self.given.entry(name.to_owned()).or_insert(next);
        format!("{}-{number}", self.prefix)
    }
}

/// Bounds all texts, and replaces characters that change a terminal's state or the direction of its lines.
fn sanitize(seen: &mut Seen) {
    let zones = seen.machine.zones.iter_mut().map(|it| &mut it.name);
    let missing = seen.missing.iter_mut();
    let texts = [&mut seen.machine.kernel]
        .into_iter()
        .chain(zones)
        .chain(seen.tasks.iter_mut().map(|it| &mut it.name))
        .chain(seen.cgroups.iter_mut().map(|it| &mut it.path))
        .chain(missing.flat_map(|it| [&mut it.what, &mut it.removes]));
    let harmless = |letter: char| match is_obeyed(letter) {
        true => '\u{fffd}',
        false => letter,
    };
    for text in texts {
        if text.len() > TEXT_BYTES_MAX {
            let whole = (0..=TEXT_BYTES_MAX).rev();
            let end = whole.into_iter().find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or(0));
        }
        *text = text.chars().map(harmless).collect();
    }
}

/// Checks every number that others compute with.
fn check(seen: &Seen) -> Result<(), RecordingError> {
    let machine = &seen.machine;
    let zones = machine.zones.len();
    let is_cpu = |cpu: u32| cpu < CPUS_MAX;
    let is_stretch = |start_ns, end_ns| start_ns <= end_ns && end_ns <= NUMBER_MAX;
    let are_small = |numbers: &[Option<u64>]| numbers.iter().flatten().all(|it| *it <= NUMBER_MAX);
    let rules = [
        ("cpus", machine.cpus <= CPUS_MAX as usize),
        ("hz", machine.hz.is_none_or(|hz| (1..=HZ_MAX).contains(&hz))),
        (
            "zones",
            zones <= ZONES_MAX
                && machine.zones.iter().all(|it| {
                    are_small(&[
                        Some(it.start_pfn),
                        Some(it.spanned_pages),
                        Some(it.managed_pages),
                        Some(it.min_pages),
                        Some(it.low_pages),
                        Some(it.high_pages),
                        Some(it.pcp_high),
                    ])
                }),
        ),
        ("start_ns, end_ns", is_stretch(seen.start_ns, seen.end_ns)),
        (
            "upkeep",
            seen.upkeep.iter().all(|it| {
                let jiffies = [it.target_jiffy, it.slot_jiffy, it.expire_jiffy];
                is_cpu(it.cpu)
                    && is_stretch(it.start_ns, it.end_ns)
                    && are_small(&jiffies)
                    && are_small(&[it.expire_ns, it.pages])
            }),
        ),
        (
            "refreshes",
            (seen.refreshes.iter()).all(|it| is_cpu(it.cpu) && is_stretch(it.start_ns, it.end_ns)),
        ),
        (
            "bursts",
            seen.bursts.iter().all(|it| {
                is_cpu(it.cpu)
                    && is_stretch(it.start_ns, it.end_ns)
                    && are_small(&[Some(it.pages)])
                    && it.zone.is_none_or(|zone| usize::from(zone) < zones)
            }),
        ),
        (
            "waits",
            (seen.waits.iter()).all(|it| is_cpu(it.cpu) && is_stretch(it.start_ns, it.end_ns)),
        ),
        (
            "flushes",
            seen.flushes.iter().all(|it| {
                is_cpu(it.cpu)
                    && is_stretch(it.start_ns, it.end_ns)
                    && are_small(&[Some(it.wait_ns), Some(it.held_ns), it.held_ns_max])
                    && it.pending.is_none_or(|it| it.unsigned_abs() <= NUMBER_MAX)
            }),
        ),
        (
            "reads",
            seen.reads.iter().all(|it| {
                let stale = it.stale.unwrap_or_default();
                is_stretch(it.start_ns, it.end_ns)
                    && are_small(&[
                        Some(it.cpu_ns),
                        Some(stale.unchanged_ns),
                        Some(stale.moved_bytes),
                    ])
            }),
        ),
        (
            "release",
            [seen.release, seen.decay_release]
                .iter()
                .all(|it| are_small(&[Some(it.bursts), it.gap_at_batch_ns, it.gap_elsewhere_ns])),
        ),
        (
            "pressure",
            are_small(&seen.pressure.unwrap_or_default().values()),
        ),
        (
            "losses",
            are_small(&[
                Some(seen.losses.events_read),
                Some(seen.losses.events_lost),
                Some(seen.losses.bytes_undecoded),
                Some(seen.losses.items_left_out),
            ]),
        ),
    ];
    match rules.iter().find(|(_, holds)| !holds) {
        Some((what, _)) => Err(RecordingError::OutOfRange(what)),
        None => Ok(()),
    }
}
