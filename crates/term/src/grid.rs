//! Tables of text: as wide as they are, or in blocks that fit a terminal.

use std::ops::Range;

use unicode_width::UnicodeWidthChar;

use crate::escape::escaped;
use crate::width::{columns, wrapped};

/// Blanks between two columns.
const GAP: usize = 2;
/// Least width of a column of prose, characters, if it has as much to say.
const PROSE_LEAST: usize = 24;
/// Ends all colours.
const RESET: &str = "\x1b[0m";

/// A header and rows. The first column names what a row is about.
pub struct Grid {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    right: Range<usize>,
    has_prose: bool,
}

impl Grid {
    /// A table without rows.
    pub fn new(header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            header: header.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
            right: 0..0,
            has_prose: false,
        }
    }

    /// The table with these columns aligned to the right.
    pub fn right(mut self, columns: Range<usize>) -> Self {
        self.right = columns;
        self
    }

    /// The table with sentences in its last column, which may be continued on further lines.
    pub fn prose(mut self) -> Self {
        self.has_prose = true;
        self
    }

    /// Adds a row, with a cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Adds a line above the rows that belong to it.
    pub fn group(&mut self, name: impl Into<String>) {
        self.rows.push(vec![name.into()]);
    }

    fn is_group(&self, row: &[String]) -> bool {
        row.len() < self.header.len()
    }

    /// Lines for a terminal. Columns that do not fit into `width` go into further blocks below, each with the first column.
    pub fn for_terminal(&self, width: Option<usize>) -> String {
        let blocks = self.blocks(width);
        let drawn: Vec<_> = blocks.iter().map(|block| self.drawn(block)).collect();
        drawn.join("\n")
    }

    /// A table of a page.
    pub fn html(&self) -> String {
        let cells = |row: &[String], kind: &str| -> String {
            let cell = |(at, cell): (usize, &String)| {
                let kind = if at == 0 { "th scope=\"row\"" } else { kind };
                let class = if at == 0 || self.right.contains(&at) {
                    ""
                } else {
                    " class=\"words\""
                };
                let end = &kind[..2];
                format!("<{kind}{class}>{}</{end}>", escaped(cell))
            };
            row.iter().enumerate().map(cell).collect()
        };
        let row = |row: &Vec<String>| match self.is_group(row) {
            true => format!(
                "<tr class=\"group\"><th colspan=\"{}\">{}</th></tr>\n",
                self.header.len(),
                escaped(&row[0])
            ),
            false => format!("<tr>{}</tr>\n", cells(row, "td")),
        };
        let rows: String = self.rows.iter().map(row).collect();
        let header = cells(&self.header, "th");
        format!(
            "<div class=\"scroll\"><table><thead><tr>{header}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
        )
    }

    /// The columns of each block with their widths.
    fn blocks(&self, width: Option<usize>) -> Vec<Vec<(usize, usize)>> {
        let all = (0..self.header.len()).map(|at| (at, self.content(at)));
        let Some(width) = width else {
            return vec![all.collect()];
        };
        let mut all = all;
        let Some((_, first)) = all.next() else {
            return Vec::new();
        };
        let first = (0, first.min(width / 2));
        let mut blocks = vec![vec![first]];
        let mut used = first.1;
        for (at, content) in all {
            let is_prose = self.has_prose && at + 1 == self.header.len();
            let least = if is_prose {
                content.min(PROSE_LEAST)
            } else {
                content
            };
            if used + GAP + least > width && blocks.last().is_some_and(|block| block.len() > 1) {
                blocks.push(vec![first]);
                used = first.1;
            }
            let fitting = content.min(width.saturating_sub(used + GAP)).max(1);
            if let Some(block) = blocks.last_mut() {
                block.push((at, fitting));
            }
            used += GAP + fitting;
        }
        blocks
    }

    /// The columns that the widest cell of a column takes.
    fn content(&self, at: usize) -> usize {
        let rows = self.rows.iter().filter(|row| !self.is_group(row));
        let cells = rows.filter_map(|row| row.get(at));
        let cells = cells.chain(self.header.get(at));
        cells.map(|cell| columns(cell)).max().unwrap_or(0)
    }

    fn drawn(&self, block: &[(usize, usize)]) -> String {
        let all: usize = block.iter().map(|(_, width)| width + GAP).sum();
        let all = all.saturating_sub(GAP);
        let mut text = self.lines(&self.header, block);
        text.push_str(&"─".repeat(all));
        text.push('\n');
        for row in &self.rows {
            text.push_str(&match self.is_group(row) {
                true => wrapped(&row[0], Some(all), "", ""),
                false => self.lines(row, block),
            });
        }
        text
    }

    /// A row, on as many lines as its longest cell needs.
    fn lines(&self, row: &[String], block: &[(usize, usize)]) -> String {
        let cells = block.iter().map(|&(at, width)| -> Vec<String> {
            let cell = row.get(at).map_or("", String::as_str);
            match columns(cell) <= width {
                true => vec![cell.to_owned()],
                false => folded(cell, width),
            }
        });
        let cells: Vec<_> = cells.collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let line = |nth: usize| {
            let parts = block.iter().zip(&cells).map(|(&(at, width), cell)| {
                let part = cell.get(nth).map_or("", String::as_str);
                self.aligned(at, part, width)
            });
            let parts: Vec<_> = parts.collect();
            parts.join(&" ".repeat(GAP)).trim_end().to_owned() + "\n"
        };
        (0..height).map(line).collect()
    }

    fn aligned(&self, at: usize, cell: &str, width: usize) -> String {
        let space = " ".repeat(width.saturating_sub(columns(cell)));
        match self.right.contains(&at) {
            true => format!("{space}{cell}"),
            false => format!("{cell}{space}"),
        }
    }
}

/// A text in pieces of at most `width` columns, which must be two or more. Words that are longer are cut, so that the next column
/// stays where it is. All pieces have the indent of the text, as far as there is room, and each ends the colours that it begins.
fn folded(text: &str, width: usize) -> Vec<String> {
    let words = text.trim_start_matches(' ');
    let indent = " ".repeat((text.len() - words.len()).min(width / 2));
    let room = width - indent.len();
    let mut pieces = Vec::new();
    let mut color = String::new();
    for line in wrapped(words, Some(room), "", "").lines() {
        let mut piece = color.clone();
        let mut used = 0;
        let mut letters = line.chars();
        while let Some(letter) = letters.next() {
            if letter == '\x1b' {
                color = letter.to_string();
                color.extend(letters.by_ref().take_while(|it| *it != 'm'));
                color.push('m');
                piece.push_str(&color);
                if color == RESET {
                    color.clear();
                }
                continue;
            }
            let wide = letter.width().unwrap_or(0);
            if used + wide > room && used > 0 {
                pieces.push(ended(&indent, &piece, &color));
                piece = color.clone();
                used = 0;
            }
            piece.push(letter);
            used += wide;
        }
        pieces.push(ended(&indent, &piece, &color));
    }
    pieces
}

/// A piece of a text, with the end of the colour that is on.
fn ended(indent: &str, piece: &str, color: &str) -> String {
    let end = if color.is_empty() { "" } else { RESET };
    format!("{indent}{piece}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let mut grid = Grid::new(["name", "first", "second", "why"])
            .right(1..3)
            .prose();
        grid.group("both");
        grid.row(["one", "1", "22", "because words are many in here"]);
        grid.row(["another", "333", "4", ""]);
        grid
    }

    #[test]
    fn a_table_without_a_width_has_a_line_a_row() {
        let rule = "─".repeat(54);
        assert_eq!(
            grid().for_terminal(None),
            format!(
                "name     first  second  why\n\
                 {rule}\n\
                 both\n\
                 one          1      22  because words are many in here\n\
                 another    333       4\n"
            )
        );
    }

    #[test]
    fn a_name_that_is_cut_keeps_its_indent() {
        assert_eq!(
            folded("      query-1234567890", 20),
            ["      query-12345678", "      90"]
        );
        assert_eq!(folded("         one two", 8), ["    one", "    two"]);
    }

    #[test]
    fn pieces_are_cut_by_columns_and_end_their_colours() {
        let wide = "\u{6f22}".repeat(12);
        assert_eq!(folded(&wide, 9), vec!["\u{6f22}".repeat(4); 3]);
        assert_eq!(
            folded("\x1b[31mnot reproduced\x1b[0m", 8),
            [
                "\x1b[31mnot\x1b[0m",
                "\x1b[31mreproduc\x1b[0m",
                "\x1b[31med\x1b[0m"
            ]
        );
    }

    #[test]
    fn sentences_are_continued_and_columns_go_below() {
        let narrow = grid().for_terminal(Some(50));
        assert!(narrow.contains("because words are many in\n"), "{narrow}");
        assert!(narrow.lines().any(|line| line.trim() == "here"), "{narrow}");
        for width in [20, 30, 40, 50] {
            let text = grid().for_terminal(Some(width));
            assert!(text.lines().all(|line| columns(line) <= width), "{text}");
            for cell in ["both", "another", "333", "22", "because", "many"] {
                assert!(text.contains(cell), "{cell} is not in\n{text}");
            }
        }
        let blocks = grid().for_terminal(Some(30));
        assert_eq!(blocks.matches("another").count(), 2, "{blocks}");
    }
}
