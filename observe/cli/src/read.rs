//! `bursar observe --read`: the document of a file, which needs no privilege and no kernel.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use bursar_observe::foreign::{self, ForeignError};
use bursar_observe::recording;
use bursar_observe::seen::Seen;
use bursar_observe::symbols::Symbols;

use super::document::Document;
use super::options::Observe;
use super::people::write;
use super::text::PEOPLE;
use super::{read_recording, record, unreadable};
use crate::failure::Failure;
use crate::options::Global;
use crate::output::{Output, refuse_to_replace};
use crate::place::Place;

/// Reads a file, and writes its document and, if asked, its recording.
pub fn read(path: &Path, observe: &Observe, global: &Global) -> Result<ExitCode, Failure> {
    let format = global.page_format()?;
    let inputs = || {
        [Some(path.to_owned()), observe.kallsyms.clone()]
            .into_iter()
            .flatten()
    };
    for written in [&global.output, &observe.record] {
        refuse_to_replace(inputs().collect::<Vec<_>>().iter(), written.as_deref())?;
    }
    let output = Output::open(global)?;
    let place = observe.record.as_deref().map(Place::new).transpose()?;
    let symbols = observe.kallsyms.as_deref().map(symbols).transpose()?;
    let mut seen = contents(path, symbols)?;
    if observe.redact {
        recording::redact(&mut seen);
    }
    let recorded = place.map_or(Ok(()), |place| record(&seen, &place));
    write(
        &Document::new(&seen, None, None, false),
        PEOPLE,
        format,
        output,
    )?;
    recorded.map(|()| ExitCode::SUCCESS)
}

fn symbols(path: &Path) -> Result<Symbols, Failure> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    let symbols = Symbols::parse(&text);
    match symbols.vmstat_update {
        Some(_) => Ok(symbols),
        None => Err(Failure::usage(format!(
            "{}: it has no address of vmstat_update; copy /proc/kallsyms as root",
            path.display()
        ))),
    }
}

fn contents(path: &Path, symbols: Option<Symbols>) -> Result<Seen, Failure> {
    let open = || File::open(path).map_err(|error| unreadable(path, &error));
    let mut begin = Vec::new();
    let taken = open()?.take(64).read_to_end(&mut begin);
    taken.map_err(|error| unreadable(path, &error))?;
    // A recording is a JSON document, and no other file begins so.
    if begin.trim_ascii_start().starts_with(b"{") {
        return read_recording(path);
    }
    foreign::read(BufReader::new(open()?), symbols).map_err(|error| match error {
        ForeignError::Io(error) => unreadable(path, &error),
        ForeignError::UnknownKind => Failure::usage(format!(
            "{}: it is neither a trace.dat, a perf.data nor a recording; `trace-cmd record`, `perf record` and \
             `bursar observe --record` make such files",
            path.display()
        )),
        error => Failure::usage(format!("{}: {error}", path.display())),
    })
}
