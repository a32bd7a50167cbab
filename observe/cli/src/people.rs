//! Documents in the form that was asked for.

use serde::Serialize;

use crate::failure::Failure;
use crate::format;
use crate::markup::Markup;
use crate::options::{Format, TextFormat};
use crate::output::Output;
use bursar_term::page;

/// A document as text for people, as lines of numbers, and the title of its page.
pub struct People<D> {
    pub title: &'static str,
    pub text: fn(&D, Markup) -> String,
    pub csv: fn(&D) -> String,
}

/// Writes a document in the form that was asked for.
pub fn write<D: Serialize>(
    document: &D,
    people: People<D>,
    format: Format,
    output: Output,
) -> Result<(), Failure> {
    let text = |form| (people.text)(document, form);
    let text = match format {
        Format::Text(TextFormat::Table) => text(output.terminal()),
        Format::Text(TextFormat::Markdown) => text(Markup::Markdown),
        Format::Text(TextFormat::Json) => format::json(document)?,
        Format::Text(TextFormat::Ndjson) => format::json_line(document)?,
        Format::Text(TextFormat::Csv) => (people.csv)(document),
        Format::Html | Format::Svg => page::of_text(people.title, &text(Markup::Html)),
    };
    output.write(&text, |form| (people.text)(document, form))
}
