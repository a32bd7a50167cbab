//! Options of every command, and the form of its document: the one that is asked for, else the one that the file's name tells.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use crate::failure::Failure;

/// The heading of flags that all commands have.
const SHARED: &str = "Options of every command";

/// Flags of all commands.
#[derive(Debug, Args)]
pub struct Global {
    /// Write the document to this file instead of standard output
    #[arg(short, long, value_name = "FILE", global = true, help_heading = SHARED)]
    pub output: Option<PathBuf>,
    /// Form: table, json or html; html is of results alone [default: by the ending of FILE, else table]
    #[arg(short, long, value_enum, global = true, hide_possible_values = true, help_heading = SHARED)]
    pub format: Option<Format>,
    /// Colours: auto, always or never. `auto` means in a terminal, unless NO_COLOR is set
    #[arg(long, value_enum, default_value_t = Color::Auto, global = true, hide_possible_values = true, help_heading = SHARED)]
    pub color: Color,
    /// Show no progress
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = SHARED)]
    pub quiet: bool,
    /// Name each step on standard error, and print all tables
    #[arg(short, long, global = true, help_heading = SHARED)]
    pub verbose: bool,
}

/// Choice of colours for a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// In a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

/// The form of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Table,
    /// For programs: one document.
    Json,
    /// A page, complete in itself.
    Html,
}

/// All forms: what they are called, what they are for, and what the names of such files end in.
const FORMS: [(Format, &str, &str, &[&str]); 3] = [
    (Format::Table, "table", "For people", &["txt"]),
    (Format::Json, "json", "For programs", &["json"]),
    (Format::Html, "html", "A page", &["html", "htm"]),
];

impl Format {
    fn of_name(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        let form = FORMS
            .iter()
            .find(|(.., extensions)| extensions.contains(&extension.as_str()));
        form.map(|(format, ..)| *format)
    }

    fn name(self) -> &'static str {
        let form = FORMS.iter().find(|(format, ..)| *format == self);
        form.map_or("table", |(_, name, ..)| name)
    }
}

impl ValueEnum for Format {
    fn value_variants<'a>() -> &'a [Self] {
        &[Format::Table, Format::Json, Format::Html]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (_, name, help, _) = FORMS.iter().find(|(format, ..)| format == self)?;
        Some(PossibleValue::new(*name).help(*help))
    }
}

impl Global {
    /// The form of a document that has all of them.
    pub fn format(&self) -> Result<Format, Failure> {
        if let Some(format) = self.format {
            return Ok(format);
        }
        let table = Format::Table;
        let Some(path) = self.output.as_deref() else {
            return Ok(table);
        };
        match (Format::of_name(path), path.extension()) {
            (Some(format), _) => Ok(format),
            (None, None) => Ok(table),
            (None, Some(ending)) => {
                let known = FORMS.iter().flat_map(|(.., endings)| *endings);
                let known: Vec<_> = known.map(|ending| format!(".{ending}")).collect();
                Err(Failure::usage(format!(
                    "the ending .{} of {} names no form; known endings: {}; -f names the form of any file",
                    ending.display(),
                    path.display(),
                    known.join(", ")
                )))
            }
        }
    }

    /// Refuses `-f`, for a command whose output has one form.
    pub fn refuse_format(&self, command: &str) -> Result<(), Failure> {
        let named = self.output.as_deref().and_then(Format::of_name);
        match (self.format, named) {
            (None, None | Some(Format::Table)) => Ok(()),
            (None, Some(other)) => Err(Failure::usage(format!(
                "`{command}` does not write {}: its output has one form; give FILE another ending",
                other.name()
            ))),
            (Some(_), _) => Err(Failure::usage(format!(
                "`{command}` has no -f: its output has one form"
            ))),
        }
    }

    /// Whether a document that has no page is asked for as JSON, and not as a table.
    pub fn is_json(&self) -> Result<bool, Failure> {
        match self.format()? {
            Format::Table => Ok(false),
            Format::Json => Ok(true),
            Format::Html => Err(Failure::usage("this command does not have the form html")),
        }
    }
}

/// A parser of whole numbers of a range.
pub fn whole(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| match (text.parse::<u64>(), text.parse::<i128>()) {
        (Ok(number), _) if range.contains(&number) => Ok(number),
        (_, Ok(_)) => Err(format!(
            "{text} is not in {}..={}",
            range.start(),
            range.end()
        )),
        _ => Err(format!(
            "must be a whole number from {} to {}",
            range.start(),
            range.end()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_tell_the_form() {
        for (name, expected) in [
            ("x.txt", Some(Format::Table)),
            ("a/b.c/X.HTML", Some(Format::Html)),
            ("x.json", Some(Format::Json)),
            ("json", None),
            ("x.json.gz", None),
            ("x.pdf", None),
            ("/dev/null", None),
        ] {
            assert_eq!(Format::of_name(Path::new(name)), expected, "{name}");
        }
    }
}
