//! Documents in the form that was asked for.

use bursar_term::failure::Failure;
use bursar_term::format;
use bursar_term::markup::Markup;
use bursar_term::options::Format;
use bursar_term::output::Output;
use bursar_term::page;
use serde::Serialize;

/// Writes a document, which is for people what `text` makes of it. A page has this title.
pub fn write<D: Serialize>(
    form: Format,
    document: &D,
    title: &str,
    text: fn(&D, Markup) -> String,
    output: Output,
) -> Result<(), Failure> {
    let written = match form {
        Format::Table => text(document, output.terminal()),
        Format::Json => format::json(document)?,
        Format::Html => page::of_text(title, &text(document, Markup::Html)),
    };
    output.write(&written, |form| text(document, form))
}
