//! `bursar-observe read`: the document of a file, which needs no privilege and no kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bursar_term::failure::Failure;
use bursar_term::options::Global;
use bursar_term::output::{Output, refuse_to_replace};
use bursar_term::place::Place;
use bursar_watch::recording;
use bursar_watch::symbols::Symbols;
use clap::Args;

use crate::document::Document;
use crate::form;
use crate::recordings;
use crate::text::{TITLE, text};

pub const EXAMPLES: &str = "\
Examples:
  bursar-observe read trace.dat           what did trace-cmd record?
  bursar-observe read perf.data --kallsyms kallsyms
  bursar-observe read trace.dat --record node7.bursar --redact";

#[derive(Debug, Args)]
pub struct Read {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Addresses of functions, for a file that has none: a copy of /proc/kallsyms of the same boot
    #[arg(long, value_name = "FILE")]
    kallsyms: Option<PathBuf>,
    /// Also write a recording, for `replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Leave names of processes and cgroups out of the document and the recording
    #[arg(long)]
    redact: bool,
}

/// Reads a file, and writes its document and, if asked, its recording.
pub fn read(read: &Read, global: &Global) -> Result<ExitCode, Failure> {
    let format = global.format()?;
    let inputs: Vec<_> = [Some(read.file.clone()), read.kallsyms.clone()]
        .into_iter()
        .flatten()
        .collect();
    for written in [&global.output, &read.record] {
        refuse_to_replace(&inputs, written.as_deref())?;
    }
    let output = Output::open(global)?;
    let place = read.record.as_deref().map(Place::new).transpose()?;
    output.refuse_to_share(place.as_ref())?;
    let symbols = read.kallsyms.as_deref().map(symbols).transpose()?;
    let mut seen = recordings::read_any(&read.file, symbols)?;
    if read.redact {
        recording::redact(&mut seen);
    }
    let recorded = place.map_or(Ok(()), |place| recordings::write(&seen, &place));
    form::write(
        format,
        &Document::new(&seen, None, false),
        TITLE,
        text,
        output,
    )?;
    recorded.map(|()| ExitCode::SUCCESS)
}

fn symbols(path: &Path) -> Result<Symbols, Failure> {
    let text = fs::read_to_string(path).map_err(|error| recordings::unreadable(path, &error))?;
    let symbols = Symbols::parse(&text);
    match symbols.vmstat_update {
        Some(_) => Ok(symbols),
        None => Err(Failure::usage(format!(
            "{}: it has no address of vmstat_update; copy /proc/kallsyms as root",
            path.display()
        ))),
    }
}
