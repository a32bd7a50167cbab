//! Files: recordings, and those of other programs.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use bursar_term::failure::Failure;
use bursar_term::place::Place;
use bursar_watch::foreign::{self, ForeignError};
use bursar_watch::recording::{self, RecordingError};
use bursar_watch::seen::Seen;
use bursar_watch::symbols::Symbols;

/// Writes a recording.
pub fn write(seen: &Seen, place: &Place) -> Result<(), Failure> {
    let written = place.write(|file| {
        recording::write(seen, file).map_err(|error| match error {
            RecordingError::Io(error) => error,
            other => io::Error::other(other),
        })
    });
    written.map_err(|error| Failure::unavailable(format!("cannot write {place}: {error}")))
}

/// Reads a recording.
pub fn read(path: &Path) -> Result<Seen, Failure> {
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    recording::read(&file).map_err(|error| match error {
        RecordingError::Io(error) => unreadable(path, &error),
        error => Failure::usage(format!(
            "{}: {error}; `bursar-observe watch --record FILE` makes recordings",
            path.display()
        )),
    })
}

/// Reads a file of any kind.
pub fn read_any(path: &Path, symbols: Option<Symbols>) -> Result<Seen, Failure> {
    let open = || File::open(path).map_err(|error| unreadable(path, &error));
    let mut begin = Vec::new();
    let taken = open()?.take(64).read_to_end(&mut begin);
    taken.map_err(|error| unreadable(path, &error))?;
    // A recording is a JSON document, and no other file begins so.
    if begin.trim_ascii_start().starts_with(b"{") {
        return read(path);
    }
    foreign::read(BufReader::new(open()?), symbols).map_err(|error| match error {
        ForeignError::Io(error) => unreadable(path, &error),
        ForeignError::UnknownKind => Failure::usage(format!(
            "{}: it is neither a trace.dat, a perf.data nor a recording; `trace-cmd record`, `perf record` and \
             `bursar-observe watch --record` make such files",
            path.display()
        )),
        error => Failure::usage(format!("{}: {error}", path.display())),
    })
}

/// Says that the system refuses to read a file.
pub fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let message = format!("cannot read {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::unavailable(message),
        _ => Failure::usage(message),
    }
}
