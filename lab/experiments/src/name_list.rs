//! Lists of names in messages, in lines that fit a terminal.

/// Columns of a line.
const WIDTH: usize = 80;
/// Greatest number of names that stay on the message's line.
const INLINE_MAX: usize = 4;

/// Formats names as the end of a message: on its line if they are few, else on lines below of at most 80 columns.
pub fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const INDENT: &str = "\n    ";
    let names: Vec<&str> = names.into_iter().collect();
    if names.len() <= INLINE_MAX {
        return format!(" {}", names.join(", "));
    }
    let mut text = String::new();
    let mut column = WIDTH;
    for (place, name) in names.iter().enumerate() {
        let is_last = place + 1 == names.len();
        let width = name.chars().count() + usize::from(!is_last);
        if column + 1 + width > WIDTH {
            text.push_str(INDENT);
            column = INDENT.len() - 1;
        } else {
            text.push(' ');
            column += 1;
        }
        text.push_str(name);
        if !is_last {
            text.push(',');
        }
        column += width;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::list;

    #[test]
    fn few_names_stay_on_the_line_and_many_fit_80_columns() {
        assert_eq!(list(["one", "two"]), " one, two");
        let names: Vec<_> = (0..60).map(|number| "n".repeat(number % 9 + 1)).collect();
        let text = list(names.iter().map(String::as_str));
        assert!(text.starts_with("\n    "));
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let again: Vec<_> = text.split(',').map(str::trim).collect();
        assert_eq!(again, names);
        let exact = list(["a", "b", "c", "d", &"x".repeat(75)]);
        assert_eq!(exact.lines().last().map(str::len), Some(79));
    }
}
