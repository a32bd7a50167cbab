//! Documents for people: in a terminal or on a web page.

use crate::escape::{escaped, sentence};
use crate::grid::Grid;
use crate::width::wrapped;

/// Markup of a document for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Markup {
    /// In a terminal, or in a file of text. Lines are as long as they are if it has no width.
    Terminal {
        /// Whether headings and alarms have colours.
        color: bool,
        /// The columns of a line.
        width: Option<usize>,
    },
    /// The body of a page.
    Html,
}

impl Markup {
    /// The columns of a line, if there is a limit.
    pub fn width(self) -> Option<usize> {
        match self {
            Markup::Terminal { width, .. } => width,
            Markup::Html => None,
        }
    }

    /// A line above what it names.
    pub fn heading(self, text: &str) -> String {
        match self {
            Markup::Terminal { color, width } => {
                let lines = wrapped(text, width, "", "");
                match color {
                    true => format!("\x1b[1m{}\x1b[0m\n", lines.trim_end()),
                    false => lines,
                }
            }
            Markup::Html => format!("<h2>{}</h2>\n", escaped(text)),
        }
    }

    /// A line above a part of what a heading names.
    pub fn subheading(self, text: &str) -> String {
        match self {
            Markup::Terminal { .. } => self.heading(text),
            Markup::Html => format!("<h3>{}</h3>\n", escaped(text)),
        }
    }

    /// The table as text.
    pub fn table(self, table: &Grid) -> String {
        match self {
            Markup::Terminal { width, .. } => table.for_terminal(width),
            Markup::Html => table.html(),
        }
    }

    /// Text whose columns must stay as they are.
    pub fn verbatim(self, text: &str) -> String {
        match self {
            Markup::Terminal { .. } => text.to_owned(),
            Markup::Html => format!("<pre>{}</pre>\n", escaped(text)),
        }
    }

    /// Sentences.
    pub fn paragraph(self, text: &str) -> String {
        match self {
            Markup::Html => format!("<p>{}</p>\n", sentence(text)),
            _ => wrapped(text, self.width(), "", ""),
        }
    }

    /// One of several things to say.
    pub fn item(self, text: &str) -> String {
        match self {
            Markup::Terminal { width, .. } => wrapped(text, width, "  ", "    "),
            Markup::Html => format!("<ul><li>{}</li></ul>\n", sentence(text)),
        }
    }

    /// Text that must be seen.
    pub fn alarm(self, text: &str) -> String {
        match self {
            Markup::Terminal { color: true, .. } => format!("\x1b[31m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }
}
