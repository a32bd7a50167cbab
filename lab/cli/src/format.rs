//! Documents of runs: in the form that was asked for.

use std::process::ExitCode;

use bursar_experiments::document::Document;
pub use bursar_term::format::json;

use crate::{html, table};
use bursar_term::failure::{EXPECTATION_FAILED, Failure};
use bursar_term::markup::Markup;
use bursar_term::options::Format;

/// The documents in the form that was asked for; a table as `terminal` has it, and whole if `is_verbose`.
pub fn documents(
    documents: &[Document],
    format: Format,
    terminal: Markup,
    is_verbose: bool,
) -> Result<String, Failure> {
    match (format, documents) {
        (Format::Table, _) => Ok(table::run(documents, terminal, is_verbose)),
        (Format::Html, _) => html::page(documents),
        (Format::Json, [document]) => json(document),
        (Format::Json, several) => json(&several),
    }
}

/// Whether everything held.
pub fn exit_code(documents: &[Document]) -> ExitCode {
    if documents.iter().all(Document::holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXPECTATION_FAILED)
    }
}
