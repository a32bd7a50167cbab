//! `bursar-lab report`: results that are in files, merged where they are parts of one run.

use std::process::ExitCode;

use crate::args::Report;
use crate::failure::Failure;
use crate::options::Global;
use crate::output::{self, Output};
use crate::{format, result_file, table};

/// Reads, merges and writes. A file that is read is not written.
pub fn report(report: &Report, global: &Global) -> Result<ExitCode, Failure> {
    let format = global.format()?;
    output::refuse_to_replace(&report.files, global.output.as_deref())?;
    let sources = report.files.iter().map(|path| result_file::read(path));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let documents = bursar_experiments::merge(&sources).map_err(Failure::usage)?;
    let output = Output::open(global)?;
    let text = format::documents(&documents, format, output.terminal(), global.verbose)?;
    output.write(&text, |form| table::run(&documents, form, global.verbose))?;
    Ok(format::exit_code(&documents))
}
