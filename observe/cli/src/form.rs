//! Forms of documents: a table, JSON, or a page.

use bursar_term::failure::Failure;
use bursar_term::format;
use bursar_term::markup::Markup;
use bursar_term::options::{Format, Global, TextFormat};
use bursar_term::output::Output;
use bursar_term::page;
use serde::Serialize;

/// The form of a document.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    Table,
    Json,
    Html,
}

impl Form {
    /// The form that is asked for.
    pub fn of(global: &Global) -> Result<Self, Failure> {
        match global.format()? {
            Format::Text(TextFormat::Table) => Ok(Self::Table),
            Format::Text(TextFormat::Json) => Ok(Self::Json),
            Format::Html => Ok(Self::Html),
            _ => Err(Failure::usage(
                "the forms of this command are table, json and html",
            )),
        }
    }

    /// Writes a document, which is for people what `text` makes of it. A page has this title.
    pub fn write<D: Serialize>(
        self,
        document: &D,
        title: &str,
        text: fn(&D, Markup) -> String,
        output: Output,
    ) -> Result<(), Failure> {
        let written = match self {
            Self::Table => text(document, output.terminal()),
            Self::Json => format::json(document)?,
            Self::Html => page::of_text(title, &text(document, Markup::Html)),
        };
        output.write(&written, |form| text(document, form))
    }
}
