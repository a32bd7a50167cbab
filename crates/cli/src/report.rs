//! `bursar report`: results that are in files, merged where they are parts of one run.

use std::process::ExitCode;

use crate::args::{Global, Report};
use crate::failure::Failure;
use crate::output::Output;
use crate::{format, result_file};

/// Reads, merges and writes. All files are read before anything is written, so a result may be replaced by its merger.
pub fn report(report: &Report, global: &Global) -> Result<ExitCode, Failure> {
    let sources = report.files.iter().map(|path| result_file::read(path));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let documents = bursar_lab::merge(&sources).map_err(Failure::usage)?;
    let output = Output::open(global)?;
    let text = format::documents(&documents, global, output.has_color())?;
    output.write(&text)?;
    Ok(format::exit_code(&documents))
}
