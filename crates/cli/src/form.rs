//! Documents for people: in a terminal or on a web page.

use comfy_table::{LineStyle, Table, TableStyle, presets};

/// Columns without lines between them, and a line below their names.
const RULED: TableStyle = presets::NOTHING.header_separator(LineStyle::none().fill('─'));

/// Where the table is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Terminal { color: bool },
    Markdown,
}

impl Form {
    /// A line that stands above what it names.
    pub fn heading(self, text: &str) -> String {
        match self {
            Form::Terminal { color: true } => format!("\x1b[1m{text}\x1b[0m\n"),
            Form::Terminal { color: false } => format!("{text}\n"),
            Form::Markdown => format!("## {text}\n\n"),
        }
    }

    /// A line above a part of what a heading names.
    pub fn subheading(self, text: &str) -> String {
        match self {
            Form::Terminal { .. } => self.heading(text),
            Form::Markdown => format!("### {text}\n\n"),
        }
    }

    /// An empty table.
    pub fn table(self, header: &[&str]) -> Table {
        let mut table = Table::new();
        let style = match self {
            Form::Terminal { .. } => RULED,
            Form::Markdown => presets::ASCII_MARKDOWN,
        };
        table.load_style(style).set_header(header);
        table
    }

    /// The table as text.
    pub fn render(self, table: &Table) -> String {
        let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
        lines.collect()
    }

    /// Text whose columns must stay as they are.
    pub fn verbatim(self, text: &str) -> String {
        match self {
            Form::Terminal { .. } => text.to_owned(),
            Form::Markdown => format!("```text\n{text}```\n"),
        }
    }

    /// One of several things to say.
    pub fn item(self, text: &str) -> String {
        match self {
            Form::Terminal { .. } => format!("  {text}\n"),
            Form::Markdown => format!("- {text}\n"),
        }
    }

    /// Text that must be seen.
    pub fn alarm(self, text: &str) -> String {
        match self {
            Form::Terminal { color: true } => format!("\x1b[31m{text}\x1b[0m"),
            _ => text.to_owned(),
        }
    }
}
