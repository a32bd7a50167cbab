//! Documents for people: in a terminal or on a web page.

use crate::grid::Grid;
use crate::html::escaped;
use crate::width::wrapped;

/// Form of a document for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In a terminal, or in a file of text. Lines are as long as they are if it has no width.
    Terminal {
        color: bool,
        width: Option<usize>,
    },
    Markdown,
    /// The body of a page.
    Html,
}

impl Form {
    /// The columns of a line, if there is a limit.
    pub fn width(self) -> Option<usize> {
        match self {
            Form::Terminal { width, .. } => width,
            Form::Markdown | Form::Html => None,
        }
    }

    /// A line above what it names.
    pub fn heading(self, text: &str) -> String {
        match self {
            Form::Terminal { color, width } => {
                let lines = wrapped(text, width, "", "");
                match color {
                    true => format!("\x1b[1m{}\x1b[0m\n", lines.trim_end()),
                    false => lines,
                }
            }
            Form::Markdown => format!("## {text}\n\n"),
            Form::Html => format!("<h2>{}</h2>\n", escaped(text)),
        }
    }

    /// A line above a part of what a heading names.
    pub fn subheading(self, text: &str) -> String {
        match self {
            Form::Terminal { .. } => self.heading(text),
            Form::Markdown => format!("### {text}\n\n"),
            Form::Html => format!("<h3>{}</h3>\n", escaped(text)),
        }
    }

    /// The table as text.
    pub fn table(self, table: &Grid) -> String {
        match self {
            Form::Terminal { width, .. } => table.for_terminal(width),
            Form::Markdown => table.markdown(),
            Form::Html => table.html(),
        }
    }

    /// Text whose columns must stay as they are.
    pub fn verbatim(self, text: &str) -> String {
        match self {
            Form::Terminal { .. } => text.to_owned(),
            Form::Markdown => format!("```text\n{text}```\n"),
            Form::Html => format!("<pre>{}</pre>\n", escaped(text)),
        }
    }

    /// Sentences.
    pub fn paragraph(self, text: &str) -> String {
        match self {
            Form::Html => format!("<p>{}</p>\n", escaped(text)),
            _ => wrapped(text, self.width(), "", ""),
        }
    }

    /// One of several things to say.
    pub fn item(self, text: &str) -> String {
        match self {
            Form::Terminal { width, .. } => wrapped(text, width, "  ", "    "),
            Form::Markdown => format!("- {text}\n"),
            Form::Html => format!("<ul><li>{}</li></ul>\n", escaped(text)),
        }
    }

    /// Text that must be seen.
    pub fn alarm(self, text: &str) -> String {
        match self {
            Form::Terminal { color: true, .. } => format!("\x1b[31m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }
}
