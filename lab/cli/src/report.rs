//! `bursar-lab report`: results that are in files.

use std::process::ExitCode;

use bursar_experiments::document::Document;

use crate::args::Report;
use crate::{format, result_file, table};
use bursar_term::failure::Failure;
use bursar_term::options::Global;
use bursar_term::output::{self, Output};

/// Reads and writes. A file that is read is not written.
pub fn report(report: &Report, global: &Global) -> Result<ExitCode, Failure> {
    let format = global.format()?;
    output::refuse_to_replace(&report.files, global.output.as_deref())?;
    let mut documents: Vec<Document> = Vec::new();
    for path in &report.files {
        documents.extend(result_file::read(path)?.documents);
    }
    // Conclusions of a document are derived from its figures, never believed.
    documents.iter_mut().for_each(Document::conclude);
    // Those of an experiment beside each other.
    let mut experiments: Vec<String> = Vec::new();
    for document in &documents {
        if !experiments.contains(&document.experiment) {
            experiments.push(document.experiment.clone());
        }
    }
    documents.sort_by_key(|it| experiments.iter().position(|name| *name == it.experiment));
    let output = Output::open(global)?;
    let text = format::documents(&documents, format, output.terminal(), global.verbose)?;
    output.write(&text, |form| table::run(&documents, form, global.verbose))?;
    Ok(format::exit_code(&documents))
}

#[cfg(test)]
mod tests;
