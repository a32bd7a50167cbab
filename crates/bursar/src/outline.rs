//! A tree of groups as text: a line for each group, indented by its depth.

use std::fmt;

use crate::tree::printable;

/// Characters of a line of text.
const COLUMNS: usize = 80;
/// Characters of a name that are always shown, whatever its depth.
const NAME_COLUMNS_MIN: usize = 16;

/// A group's line.
pub(crate) struct Row {
    name: String,
    depth: usize,
    numbers: String,
}

impl Row {
    /// The line of the group at `path`, `depth` levels below the first line's group. That one is shown by its path, and all others
    /// by their names.
    pub(crate) fn of(path: &str, depth: usize, numbers: String) -> Self {
        let name = match depth {
            0 => path,
            _ => path.rsplit('/').next().unwrap_or_default(),
        };
        Self {
            name: printable(name).into_owned(),
            depth,
            numbers,
        }
    }
}

/// Writes lines of at most 80 characters, if the numbers leave room for a name. No newline at the end.
pub(crate) fn write(f: &mut fmt::Formatter<'_>, rows: impl Iterator<Item = Row>) -> fmt::Result {
    let rows: Vec<Row> = rows.collect();
    let widest = rows.iter().map(|row| row.numbers.len()).max().unwrap_or(0);
    let room = COLUMNS.saturating_sub(widest + 2).max(NAME_COLUMNS_MIN);
    // Deep levels have less indentation than they should, so that there is room for a name.
    let indent_max = room - NAME_COLUMNS_MIN;
    let shown: Vec<(usize, String)> = rows
        .iter()
        .map(|row| {
            let indent = (row.depth * 2).min(indent_max);
            (indent, cut(&row.name, room - indent))
        })
        .collect();
    let widths = shown
        .iter()
        .map(|(indent, name)| indent + name.chars().count());
    let width = widths.max().unwrap_or(0);
    for (position, ((indent, name), row)) in shown.iter().zip(&rows).enumerate() {
        let lead = if position == 0 { "" } else { "\n" };
        let width = width - indent;
        write!(f, "{lead}{:indent$}{name:width$}  {}", "", row.numbers)?;
    }
    Ok(())
}

/// A name in at most `columns` characters, of which there are more than two.
fn cut(name: &str, columns: usize) -> String {
    if name.chars().count() <= columns {
        return name.to_owned();
    }
    let kept = name.chars().take(columns - 2);
    kept.chain("..".chars()).collect()
}
