//! Text that fits a terminal: how wide it is, and lines of that width.

use std::io;

use terminal_size::{Width, terminal_size_of};
use unicode_width::UnicodeWidthStr;

/// Fewer columns than this hold no table; a narrower terminal is written as if it had so many.
const LEAST: usize = 20;
/// A second column that would be narrower than this goes below the first.
const SECOND_LEAST: usize = 24;

/// The columns of standard output: `COLUMNS` if it is a positive whole number, else those of the terminal. Nothing elsewhere: a
/// pipe or a file gets lines as long as they are.
pub fn of_stdout() -> Option<usize> {
    let set = std::env::var("COLUMNS").ok();
    let set: Option<usize> = set.and_then(|columns| columns.parse().ok());
    let set = set.filter(|columns| *columns > 0);
    let terminal = || terminal_size_of(io::stdout()).map(|(Width(width), _)| width.into());
    set.or_else(terminal).map(|columns| columns.max(LEAST))
}

/// The columns that a text takes on a terminal, without escape sequences of colours. Chinese characters take two each.
pub fn columns(text: &str) -> usize {
    let mut parts = text.split("\x1b[");
    let first = parts.next().map_or(0, |part| part.width());
    let after = |part: &str| part.split_once('m').map_or(0, |(_, it)| it.width());
    first + parts.map(after).sum::<usize>()
}

/// The words of a text in lines of at most `width` columns. The first line begins with `first`, the others with `next`. A word
/// that is longer than a line has one of its own.
pub fn wrapped(text: &str, width: Option<usize>, first: &str, next: &str) -> String {
    let Some(width) = width else {
        return format!("{first}{text}\n");
    };
    let mut lines = String::new();
    let mut line = first.to_owned();
    let mut is_begun = false;
    for word in text.split(' ') {
        if is_begun && columns(&line) + 1 + columns(word) > width {
            lines.push_str(line.trim_end());
            lines.push('\n');
            next.clone_into(&mut line);
        } else if is_begun {
            line.push(' ');
        }
        line.push_str(word);
        is_begun = true;
    }
    lines + line.trim_end() + "\n"
}

/// Lines as they are, and those that are too long continued below where their text begins. Two or more spaces inside a line part
/// two columns, of which the second is continued.
pub fn reflowed(text: &str, width: Option<usize>) -> String {
    let lines = text.lines().map(|line| {
        let Some(all) = width.filter(|width| columns(line) > *width) else {
            return format!("{line}\n");
        };
        let space = |columns: usize| " ".repeat(columns.min(all / 4));
        let indent = columns(line) - columns(line.trim_start());
        let below = match indent {
            0 => String::new(),
            indent => space(indent + 4),
        };
        match second_column(line) {
            None => wrapped(line.trim_start(), width, &space(indent), &below),
            Some(at) if at + SECOND_LEAST <= all => {
                wrapped(&line[at..], width, &line[..at], &" ".repeat(at))
            }
            Some(at) => {
                wrapped(line[..at].trim(), width, &space(indent), &below)
                    + &wrapped(&line[at..], width, &below, &below)
            }
        }
    });
    lines.collect()
}

/// Begin of the second of two columns.
fn second_column(line: &str) -> Option<usize> {
    let begin = line.len() - line.trim_start().len();
    let gap = begin + line[begin..].find("  ")?;
    let rest = line[gap..].trim_start();
    (!rest.is_empty()).then(|| line.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_take_no_columns() {
        assert_eq!(columns("\x1b[31mred\x1b[0m ─"), 5);
    }

    #[test]
    fn words_stay_whole_and_lines_fit() {
        let text = "one two three four incomprehensibilities";
        assert_eq!(
            wrapped(text, Some(12), "- ", "  "),
            "- one two\n  three four\n  incomprehensibilities\n"
        );
        assert_eq!(wrapped(text, None, "- ", "  "), format!("- {text}\n"));
    }

    #[test]
    fn the_second_column_is_continued_beside_or_below_the_first() {
        let line = "  bursar top   one screen of what an experiment found";
        assert_eq!(
            reflowed(line, Some(41)),
            "  bursar top   one screen of what an\n               experiment found\n"
        );
        assert_eq!(
            reflowed(line, Some(30)),
            "  bursar top\n      one screen of what an\n      experiment found\n"
        );
        assert_eq!(reflowed(line, Some(80)), format!("{line}\n"));
        assert_eq!(reflowed("no columns here", Some(12)), "no columns\nhere\n");
        assert_eq!(
            reflowed("  bursar doctor result.json", Some(20)),
            "  bursar doctor\n     result.json\n"
        );
    }
}
